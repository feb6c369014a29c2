-- +goose Up
CREATE TABLE devices (
  id              TEXT    NOT NULL PRIMARY KEY,
  driver_id       TEXT    NOT NULL,
  installation_id TEXT    NOT NULL,
  platform        TEXT    NOT NULL,
  push_token      TEXT    NOT NULL UNIQUE,
  app_version     TEXT    NOT NULL,
  locale          TEXT    NOT NULL,
  quarantined_at  INTEGER NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  UNIQUE (driver_id, installation_id)
) STRICT;
CREATE INDEX ix_devices_quarantined ON devices (quarantined_at);

CREATE INDEX ix_drivers_eligible ON drivers (vehicle_class, on_duty);

-- A row is what is to be done for an event: tell of it (event), end the offer (expiry), remind of the work (reminder).
-- claim names who has leased it, '' if nobody: the lease ends at next_at, when the row is simply due again.
ALTER TABLE outbox RENAME TO outbox_before;
DROP INDEX ix_outbox_due;
CREATE TABLE outbox (
  event_id TEXT    NOT NULL,
  task     TEXT    NOT NULL DEFAULT 'event',
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL,
  claim    TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (event_id, task)
) STRICT;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);
INSERT INTO outbox (event_id, state, next_at) SELECT event_id, state, next_at FROM outbox_before;
DROP TABLE outbox_before;

-- One event to one device (or topic). next_at of one that is due or leased is as in outbox; of one that is done, when
-- it is deleted.
CREATE TABLE notifications (
  id          TEXT    NOT NULL PRIMARY KEY,
  event_id    TEXT    NOT NULL,
  device_id   TEXT    NOT NULL,
  topic       TEXT    NOT NULL,
  driver_id   TEXT    NOT NULL,
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  type        TEXT    NOT NULL,
  silent      INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  next_at     INTEGER NOT NULL,
  claim       TEXT    NOT NULL,
  attempts    INTEGER NOT NULL,
  result      TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  sent_at     INTEGER NULL,
  UNIQUE (event_id, device_id)
) STRICT;
CREATE INDEX ix_notifications_due ON notifications (state, next_at, id);
CREATE INDEX ix_notifications_dispatch ON notifications (dispatch_id, created_at, id);

-- What became of an offer with one driver.
CREATE TABLE offers (
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NOT NULL,
  seen_at     INTEGER NULL,
  PRIMARY KEY (dispatch_id, round, driver_id)
) STRICT, WITHOUT ROWID;

-- A large audience, which is told together that an offer is over. ended: it is to be unsubscribed.
CREATE TABLE topics (
  name    TEXT    NOT NULL PRIMARY KEY,
  ended   INTEGER NOT NULL,
  state   INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  claim   TEXT    NOT NULL
) STRICT;
CREATE INDEX ix_topics_due ON topics (state, next_at);

CREATE TABLE topic_members (
  topic      TEXT    NOT NULL,
  device_id  TEXT    NOT NULL,
  push_token TEXT    NOT NULL,
  subscribed INTEGER NOT NULL,
  PRIMARY KEY (topic, device_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE topic_members;
DROP TABLE topics;
DROP TABLE offers;
DROP TABLE notifications;
ALTER TABLE outbox RENAME TO outbox_after;
DROP INDEX ix_outbox_due;
CREATE TABLE outbox (
  event_id TEXT    NOT NULL PRIMARY KEY,
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);
INSERT INTO outbox (event_id, state, next_at) SELECT event_id, state, next_at FROM outbox_after WHERE task = 'event';
DROP TABLE outbox_after;
DROP INDEX ix_drivers_eligible;
DROP TABLE devices;

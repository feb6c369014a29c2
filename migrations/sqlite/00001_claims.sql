-- Times are microseconds since 1970-01-01 UTC. datetime(opens_at / 1000000, 'unixepoch') reads them.

-- +goose Up
CREATE TABLE drivers (
  id               TEXT    NOT NULL PRIMARY KEY,
  name             TEXT    NOT NULL,
  phone            TEXT    NOT NULL,
  regions          TEXT    NOT NULL,
  vehicle_class    TEXT    NOT NULL,
  working_height_m REAL    NULL,
  firebase_uid     TEXT    NULL UNIQUE,
  locale           TEXT    NOT NULL,
  on_duty          INTEGER NOT NULL,
  suspended_until  INTEGER NULL,
  version          INTEGER NOT NULL,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL
) STRICT;

CREATE TABLE dispatches (
  id                   TEXT    NOT NULL PRIMARY KEY,
  external_id          TEXT    NULL UNIQUE,
  region               TEXT    NOT NULL,
  vehicle_class        TEXT    NOT NULL,
  min_working_height_m REAL    NULL,
  site_address         TEXT    NOT NULL,
  site_lat             REAL    NULL,
  site_lng             REAL    NULL,
  work_starts_at       INTEGER NOT NULL,
  work_ends_at         INTEGER NOT NULL,
  fee_amount           INTEGER NOT NULL,
  fee_currency         TEXT    NOT NULL,
  note                 TEXT    NOT NULL,
  opens_at             INTEGER NOT NULL,
  expires_at           INTEGER NOT NULL,
  status               TEXT    NOT NULL,
  round                INTEGER NOT NULL,
  version              INTEGER NOT NULL,
  claim_id             TEXT    NULL,
  accepted_by          TEXT    NULL,
  accepted_at          INTEGER NULL,
  created_at           INTEGER NOT NULL,
  updated_at           INTEGER NOT NULL
) STRICT;
CREATE INDEX ix_dispatches_open ON dispatches (status, region, opens_at);
CREATE INDEX ix_dispatches_driver ON dispatches (accepted_by, status, work_ends_at);

-- driver_seq counts a driver's claims. Two claims of one driver that are decided at the same time want the same
-- number, and only one gets it: without that, each would overlook the other's working hours.
CREATE TABLE claims (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NOT NULL,
  driver_seq  INTEGER NOT NULL,
  outcome     TEXT    NOT NULL,
  accepted_at INTEGER NOT NULL,
  ended_at    INTEGER NULL,
  UNIQUE (dispatch_id, round),
  UNIQUE (driver_id, driver_seq)
) STRICT;

CREATE TABLE events (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NULL,
  actor       TEXT    NOT NULL,
  reason_code TEXT    NOT NULL,
  at          INTEGER NOT NULL
) STRICT;
CREATE INDEX ix_events_dispatch ON events (dispatch_id, id);

-- A row for each event that somebody must still be told of, due at next_at.
CREATE TABLE outbox (
  event_id TEXT    NOT NULL PRIMARY KEY,
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);

CREATE TABLE api_keys (
  id         TEXT    NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  hash       TEXT    NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER NULL
) STRICT;

-- +goose Down
DROP TABLE api_keys;
DROP TABLE outbox;
DROP TABLE events;
DROP TABLE claims;
DROP TABLE dispatches;
DROP TABLE drivers;

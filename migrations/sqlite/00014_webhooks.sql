-- +goose Up
-- Endpoints of other systems that get events. replay_from and replay_until are the events between which a replay still goes on, NULL if
-- none does. A deleted endpoint's row stays, without its URL and secrets, until its deliveries are deleted too.
CREATE TABLE webhooks (
  id              TEXT    NOT NULL PRIMARY KEY,
  url             TEXT    NOT NULL,
  events          TEXT    NOT NULL,
  description     TEXT    NOT NULL,
  status          TEXT    NOT NULL,
  pause_reason    TEXT    NOT NULL,
  failing_since   INTEGER NULL,
  secret          TEXT    NOT NULL,
  previous_secret TEXT    NULL,
  previous_until  INTEGER NULL,
  replay_from     TEXT    NULL,
  replay_until    TEXT    NULL,
  version         INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The deliveries of one dispatch to one endpoint are a lane. It has a row while some of them are pending; next_at is when the earliest
-- of these is to be sent, or when its lease ends.
CREATE TABLE webhook_lanes (
  webhook_id  TEXT    NOT NULL,
  dispatch_id TEXT    NOT NULL,
  next_at     INTEGER NOT NULL,
  claim       TEXT    NOT NULL,
  PRIMARY KEY (webhook_id, dispatch_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ix_webhook_lanes_due ON webhook_lanes (webhook_id, next_at);

-- A test has the event's identifier as its dispatch. attempt counts the attempts since the delivery was written or sent again.
CREATE TABLE webhook_deliveries (
  dispatch_id TEXT    NOT NULL,
  webhook_id  TEXT    NOT NULL,
  event_id    TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  status      TEXT    NOT NULL,
  body        BLOB    NOT NULL,
  attempts    TEXT    NOT NULL,
  attempt     INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (dispatch_id, webhook_id, event_id)
) STRICT;
CREATE INDEX ix_webhook_deliveries_event ON webhook_deliveries (webhook_id, event_id);
CREATE INDEX ix_webhook_deliveries_status ON webhook_deliveries (webhook_id, status, event_id);

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhook_lanes;
DROP TABLE webhooks;

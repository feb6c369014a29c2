-- Events that are or were sent to an endpoint. The relay writes them with the event's notifications, admins by a test, a resend or a
-- replay, and the courier what became of them. A test has the event's identifier as its dispatch. attempt counts the attempts since
-- the delivery was written or sent again.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_deliveries (
  dispatch_id TEXT NOT NULL,
  webhook_id  TEXT NOT NULL,
  event_id    TEXT NOT NULL,
  type        TEXT NOT NULL,
  status      TEXT NOT NULL,
  body        BLOB NOT NULL,
  attempts    TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (dispatch_id, webhook_id, event_id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_event ON webhook_deliveries (webhook_id, event_id);
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_status ON webhook_deliveries (webhook_id, status, event_id);
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_age ON webhook_deliveries (created_at);

-- +goose Down
DROP TABLE IF EXISTS webhook_deliveries;

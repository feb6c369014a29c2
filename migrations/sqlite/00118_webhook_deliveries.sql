-- Events that are or were sent to an endpoint. The courier writes them and what became of them, admins by a test, a resend or a replay.
-- A test has the event's identifier as its dispatch. attempt counts the attempts since the delivery was written or sent again. next_at is
-- when a pending one is due, or when the lease of the courier in claim ends, '' for none.
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
  next_at     INTEGER NOT NULL,
  claim       TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (dispatch_id, webhook_id, event_id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_event ON webhook_deliveries (webhook_id, event_id);
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_due ON webhook_deliveries (webhook_id, status, next_at);
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_status ON webhook_deliveries (webhook_id, status, event_id);
CREATE INDEX IF NOT EXISTS ix_webhook_deliveries_age ON webhook_deliveries (created_at);

-- +goose Down
DROP TABLE IF EXISTS webhook_deliveries;

-- The deliveries of one dispatch to one endpoint are a lane, which is sent in order. A lane has a row while some of them are pending.
-- Whoever writes deliveries makes it, and the courier moves it on. next_at is when the earliest of them is to be sent, or when the
-- courier's lease ends.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_lanes (
  webhook_id  TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  next_at     INTEGER NOT NULL,
  claim       TEXT NOT NULL,
  PRIMARY KEY (webhook_id, dispatch_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ix_webhook_lanes_due ON webhook_lanes (webhook_id, next_at);

-- +goose Down
DROP TABLE IF EXISTS webhook_lanes;

-- What happened to dispatches: their history, and the outbox of pushes. Each transaction that changes a dispatch writes
-- its events. next_at is when the relay is to expand the event into notifications, NULL once it did. claim names the relay that leases
-- it, '' if none does; next_at is then the end of the lease. A row of no dispatch bars a claim whose COMMIT got no answer; the
-- retention deletes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS events (
  id          TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  type        TEXT NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT NULL,
  actor       TEXT NOT NULL,
  reason_code TEXT NOT NULL,
  at          INTEGER NOT NULL,
  request_id  TEXT NOT NULL DEFAULT '',
  next_at     INTEGER NULL,
  claim       TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_events_dispatch ON events (dispatch_id, id);
CREATE INDEX IF NOT EXISTS ix_events_due ON events (next_at, id) WHERE next_at IS NOT NULL;

-- +goose Down
DROP TABLE IF EXISTS events;

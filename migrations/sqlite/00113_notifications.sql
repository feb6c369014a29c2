-- Pushes: one event to one device or topic. A creation writes the first, and the relay the others when it expands their event; it
-- leases them and notes the result. next_at is when a push is due, the end of its lease, or, once it is done, when it is deleted. turn
-- is the place in the queue of one that nobody leases: next_at begins with it. claim names the relay that leases it, '' if none does.
-- +goose Up
CREATE TABLE IF NOT EXISTS notifications (
  id          TEXT NOT NULL,
  event_id    TEXT NOT NULL,
  device_id   TEXT NOT NULL,
  topic       TEXT NOT NULL,
  driver_id   TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  round       INTEGER NOT NULL,
  type        TEXT NOT NULL,
  silent      INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  next_at     INTEGER NOT NULL,
  claim       TEXT NOT NULL,
  attempts    INTEGER NOT NULL,
  result      TEXT NOT NULL,
  reason      TEXT NOT NULL,
  at          INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  sent_at     INTEGER NULL,
  turn        INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (id),
  UNIQUE (event_id, device_id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_notifications_due ON notifications (state, next_at, id);
CREATE INDEX IF NOT EXISTS ix_notifications_dispatch ON notifications (dispatch_id, created_at, id);
CREATE INDEX IF NOT EXISTS ix_notifications_driver ON notifications (dispatch_id, round, driver_id);

-- +goose Down
DROP TABLE IF EXISTS notifications;

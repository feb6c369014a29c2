-- Pushes: one event to one device or topic. The relay writes them when it expands the event, leases them and notes the result.
-- priority is 1 for offers, 2 for pushes about a driver's own job, 3 for the ends of offers, 0 once the push is done. due_at is when it
-- is to be sent, the end of its lease, or, once it is done, when it is deleted. claim names the relay that leases it, '' if none does.
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
  priority    INTEGER NOT NULL,
  due_at      INTEGER NOT NULL,
  claim       TEXT NOT NULL,
  attempts    INTEGER NOT NULL,
  result      TEXT NOT NULL,
  reason      TEXT NOT NULL,
  at          INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  sent_at     INTEGER NULL,
  PRIMARY KEY (id),
  UNIQUE (event_id, device_id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_notifications_due ON notifications (state, priority, due_at, id);
CREATE INDEX IF NOT EXISTS ix_notifications_dispatch ON notifications (dispatch_id, created_at, id);
CREATE INDEX IF NOT EXISTS ix_notifications_driver ON notifications (dispatch_id, round, driver_id);

-- +goose Down
DROP TABLE IF EXISTS notifications;

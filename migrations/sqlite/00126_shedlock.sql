-- Locks that are held until a time. Package lock writes it, and the probe of readiness a row of its own. It can be shared with
-- ShedLock.
-- +goose Up
CREATE TABLE IF NOT EXISTS shedlock (
  name       TEXT NOT NULL,
  lock_until TEXT NOT NULL,
  locked_at  TEXT NOT NULL,
  locked_by  TEXT NOT NULL,
  PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS shedlock;

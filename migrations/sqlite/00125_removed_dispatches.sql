-- Dispatches that the retention has deleted, until their claims, events, taps and notifications are deleted too. The retention writes
-- it.
-- +goose Up
CREATE TABLE IF NOT EXISTS removed_dispatches (
  id TEXT NOT NULL,
  PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS removed_dispatches;

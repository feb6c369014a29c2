-- +goose Up
-- When the driver was erased; the row stays, so that the history has something to point at.
ALTER TABLE drivers ADD COLUMN erased_at INTEGER NULL;

-- The search for erased drivers reads the index only.
ALTER TABLE drivers ADD COLUMN erased INTEGER AS (erased_at IS NOT NULL) VIRTUAL;
CREATE INDEX ix_drivers_erased ON drivers (id) WHERE erased = 1;

-- Dispatches that retention has removed, until their claims, events, taps and notifications are deleted too.
CREATE TABLE removed_dispatches (
  id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- +goose Down
DROP TABLE removed_dispatches;
DROP INDEX ix_drivers_erased;
ALTER TABLE drivers DROP COLUMN erased;
ALTER TABLE drivers DROP COLUMN erased_at;

-- +goose Up
-- When the driver was erased; the row stays, so that the history has something to point at.
ALTER TABLE drivers ADD COLUMN erased_at BIGINT NULL;

-- The search for erased drivers reads the index only.
ALTER TABLE drivers ADD COLUMN erased BOOLEAN AS (erased_at IS NOT NULL) VIRTUAL;
CREATE INDEX ix_drivers_erased ON drivers (erased, id);

-- Dispatches that retention has removed, until their claims, events, taps and notifications are deleted too.
CREATE TABLE removed_dispatches (
  id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE removed_dispatches;
DROP INDEX ix_drivers_erased ON drivers;
ALTER TABLE drivers DROP COLUMN erased;
ALTER TABLE drivers DROP COLUMN erased_at;

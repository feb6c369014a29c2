-- Whoever writes a driver or a dispatch writes what it is found by in the same transaction. So nothing says which rows are not indexed yet.
-- An event is its own outbox row.
-- +goose Up
DROP INDEX ix_drivers_eligible ON drivers;
DROP INDEX ix_drivers_unindexed ON drivers;
ALTER TABLE drivers DROP COLUMN unindexed;
ALTER TABLE drivers DROP COLUMN indexed_version;
DROP INDEX ix_drivers_unworded ON drivers;
ALTER TABLE drivers DROP COLUMN unworded;
ALTER TABLE drivers DROP COLUMN worded_version;
DROP INDEX ix_dispatches_unindexed ON dispatches;
ALTER TABLE dispatches DROP COLUMN unindexed;
ALTER TABLE dispatches DROP COLUMN indexed_round;
ALTER TABLE expansions DROP COLUMN recheck;
DROP TABLE outbox;

-- +goose Down
CREATE TABLE outbox (
  event_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  state    TINYINT     NOT NULL,
  next_at  BIGINT      NOT NULL,
  claim    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  KEY ix_outbox_due (state, next_at, event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
ALTER TABLE expansions ADD COLUMN recheck BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE dispatches ADD COLUMN indexed_round INT NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN unindexed BOOLEAN AS (indexed_round <> round) VIRTUAL;
CREATE INDEX ix_dispatches_unindexed ON dispatches (unindexed);
ALTER TABLE drivers ADD COLUMN worded_version INT NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unworded BOOLEAN AS (worded_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unworded ON drivers (unworded);
ALTER TABLE drivers ADD COLUMN indexed_version INT NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unindexed BOOLEAN AS (indexed_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unindexed ON drivers (unindexed);
CREATE INDEX ix_drivers_eligible ON drivers (vehicle_class, on_duty);

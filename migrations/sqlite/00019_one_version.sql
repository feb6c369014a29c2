-- Whoever writes a driver or a dispatch writes what it is found by in the same transaction. So nothing says which rows are not indexed yet.
-- An event is its own outbox row.
-- +goose Up
DROP INDEX ix_drivers_eligible;
DROP INDEX ix_drivers_unindexed;
ALTER TABLE drivers DROP COLUMN unindexed;
ALTER TABLE drivers DROP COLUMN indexed_version;
DROP INDEX ix_drivers_unworded;
ALTER TABLE drivers DROP COLUMN unworded;
ALTER TABLE drivers DROP COLUMN worded_version;
DROP INDEX ix_dispatches_unindexed;
ALTER TABLE dispatches DROP COLUMN unindexed;
ALTER TABLE dispatches DROP COLUMN indexed_round;
ALTER TABLE expansions DROP COLUMN recheck;
DROP TABLE outbox;

-- +goose Down
CREATE TABLE outbox (
  event_id TEXT    NOT NULL PRIMARY KEY,
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL,
  claim    TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);
ALTER TABLE expansions ADD COLUMN recheck INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN indexed_round INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN unindexed INTEGER AS (indexed_round <> round) VIRTUAL;
CREATE INDEX ix_dispatches_unindexed ON dispatches (id) WHERE unindexed = 1;
ALTER TABLE drivers ADD COLUMN worded_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unworded INTEGER AS (worded_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unworded ON drivers (id) WHERE unworded = 1;
ALTER TABLE drivers ADD COLUMN indexed_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unindexed INTEGER AS (indexed_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unindexed ON drivers (id) WHERE unindexed = 1;
CREATE INDEX ix_drivers_eligible ON drivers (vehicle_class, on_duty);

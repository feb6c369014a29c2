-- Dispatches are found by the words of their external id, address and note; see repository/dispatch_index.go, which fills the table.
-- +goose Up
CREATE TABLE dispatch_words (
  word        TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  PRIMARY KEY (word, dispatch_id)
) STRICT, WITHOUT ROWID;

-- indexed_round is the round whose words dispatch_words has: a round's text does not change. An earlier version of FirstTap begins a round
-- without it.
ALTER TABLE dispatches ADD COLUMN indexed_round INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN unindexed INTEGER AS (indexed_round <> round) VIRTUAL;
CREATE INDEX ix_dispatches_unindexed ON dispatches (id) WHERE unindexed = 1;

-- +goose Down
DROP INDEX ix_dispatches_unindexed;
ALTER TABLE dispatches DROP COLUMN unindexed;
ALTER TABLE dispatches DROP COLUMN indexed_round;
DROP TABLE dispatch_words;

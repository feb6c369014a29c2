-- Dispatches are found by the words of their external id, address and note; see repository/dispatch_index.go, which fills the table. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE dispatch_words (
  word        VARBINARY(160) NOT NULL,
  dispatch_id VARCHAR(40)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (word, dispatch_id)
) ENGINE=InnoDB;

-- indexed_round is the round whose words dispatch_words has: a round's text does not change. An earlier version of FirstTap begins a round
-- without it.
ALTER TABLE dispatches ADD COLUMN indexed_round INT NOT NULL DEFAULT 0;
ALTER TABLE dispatches ADD COLUMN unindexed BOOLEAN AS (indexed_round <> round) VIRTUAL;
CREATE INDEX ix_dispatches_unindexed ON dispatches (unindexed);

-- +goose Down
DROP INDEX ix_dispatches_unindexed ON dispatches;
ALTER TABLE dispatches DROP COLUMN unindexed;
ALTER TABLE dispatches DROP COLUMN indexed_round;
DROP TABLE dispatch_words;

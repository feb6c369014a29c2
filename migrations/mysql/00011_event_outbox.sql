-- An event is its own outbox row: next_at is when its pushes are to be written, NULL after they were. claim names who leases it, '' if
-- nobody. The table outbox is what earlier versions write; its due rows are moved to their events.
-- +goose Up
-- In two statements: together they would rebuild the table.
ALTER TABLE events
  ADD COLUMN next_at BIGINT NULL,
  ADD COLUMN claim   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';
CREATE INDEX ix_events_due ON events (next_at, id);

-- +goose Down
-- An instance that still needs the column writes nothing from here on: its events would be lost.
ALTER TABLE events RENAME COLUMN claim TO claim_before;
INSERT INTO outbox (event_id, state, next_at, claim) SELECT id, 0, next_at, '' FROM events WHERE next_at IS NOT NULL
  ON DUPLICATE KEY UPDATE state = 0, next_at = events.next_at;
DROP INDEX ix_events_due ON events;
ALTER TABLE events DROP COLUMN next_at, DROP COLUMN claim_before;

-- An event is its own outbox row: next_at is when its pushes are to be written, NULL after they were. claim names who leases it, '' if
-- nobody. The table outbox is what earlier versions write; its due rows are moved to their events.
-- +goose Up
ALTER TABLE events ADD COLUMN next_at INTEGER NULL;
ALTER TABLE events ADD COLUMN claim TEXT NOT NULL DEFAULT '';
CREATE INDEX ix_events_due ON events (next_at, id) WHERE next_at IS NOT NULL;

-- +goose Down
INSERT INTO outbox (event_id, state, next_at, claim) SELECT id, 0, next_at, '' FROM events WHERE next_at IS NOT NULL
  ON CONFLICT (event_id) DO UPDATE SET state = 0, next_at = excluded.next_at;
DROP INDEX ix_events_due;
ALTER TABLE events DROP COLUMN claim;
ALTER TABLE events DROP COLUMN next_at;

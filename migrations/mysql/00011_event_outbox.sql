-- An event is its own outbox row: next_at is when its pushes are to be written, NULL after they were. claim names who leases it, '' if
-- nobody. The table outbox is what earlier versions write; its due rows are moved to their events.
-- +goose Up
-- One statement, so that it is there whole or not at all. Both servers accept writes meanwhile.
ALTER TABLE events
  ADD COLUMN next_at BIGINT NULL,
  ADD COLUMN claim   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  ADD KEY ix_events_due (next_at, id);

-- +goose Down
INSERT INTO outbox (event_id, state, next_at, claim) SELECT id, 0, next_at, '' FROM events WHERE next_at IS NOT NULL
  ON DUPLICATE KEY UPDATE state = 0, next_at = events.next_at;
ALTER TABLE events
  DROP KEY ix_events_due,
  DROP COLUMN next_at,
  DROP COLUMN claim;

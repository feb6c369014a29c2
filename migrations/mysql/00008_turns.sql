-- +goose Up
-- The turn of a notification that was not leased yet is its place in the queue: next_at begins with it. See
-- repository/lanes.go. 0: written by a version that knows no turns.
ALTER TABLE notifications ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE notifications DROP COLUMN turn;

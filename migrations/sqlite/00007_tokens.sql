-- What is known of a device's push token. good_at: when the push service took a push to it, noted once a day at most;
-- suspected_at: since when the push service says that it is dead.
-- +goose Up
ALTER TABLE devices ADD COLUMN good_at INTEGER NULL;
ALTER TABLE devices ADD COLUMN suspected_at INTEGER NULL;

-- +goose Down
ALTER TABLE devices DROP COLUMN suspected_at;
ALTER TABLE devices DROP COLUMN good_at;

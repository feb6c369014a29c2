-- The devices that a topic has, or is to have. The relay writes them; the deletion of a device removes its rows.
-- +goose Up
CREATE TABLE IF NOT EXISTS topic_members (
  topic      TEXT NOT NULL,
  device_id  TEXT NOT NULL,
  push_token TEXT NOT NULL,
  subscribed INTEGER NOT NULL,
  PRIMARY KEY (topic, device_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS topic_members;

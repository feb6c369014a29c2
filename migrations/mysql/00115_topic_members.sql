-- The devices that a topic has, or is to have. The relay writes them; the deletion of a device removes its rows.
-- +goose Up
CREATE TABLE IF NOT EXISTS topic_members (
  topic      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  device_id  VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  push_token VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subscribed BOOLEAN NOT NULL,
  PRIMARY KEY (topic, device_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS topic_members;

-- Dispatches that the retention has deleted, until their claims, events, taps and notifications are deleted too. The retention writes
-- it.
-- +goose Up
CREATE TABLE IF NOT EXISTS removed_dispatches (
  id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS removed_dispatches;

-- The rows that the strategy rows locks. Package lock writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS lock_rows (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS lock_rows;

-- Who holds the names and rows that sessions lock. Package lock writes it. session_id is NULL once the name was released.
-- +goose Up
CREATE TABLE IF NOT EXISTS lock_sessions (
  strategy   VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fence      BIGINT NOT NULL,
  locked_by  VARCHAR(255) NULL,
  session_id BIGINT NULL,
  locked_at  DATETIME(6) NULL,
  PRIMARY KEY (strategy, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS lock_sessions;

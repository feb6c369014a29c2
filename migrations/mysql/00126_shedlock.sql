-- Locks that are held until a time. Package lock writes it, and the probe of readiness a row of its own. It can be shared with
-- ShedLock.
-- +goose Up
CREATE TABLE IF NOT EXISTS shedlock (
  name       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  lock_until DATETIME(6) NOT NULL,
  locked_at  DATETIME(6) NOT NULL,
  locked_by  VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS shedlock;

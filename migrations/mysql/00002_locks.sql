-- The tables of package lock; see its Dialect.Schema. shedlock can be shared with ShedLock.

-- +goose Up
CREATE TABLE shedlock (
  name       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  lock_until DATETIME(6)  NOT NULL,
  locked_at  DATETIME(6)  NOT NULL,
  locked_by  VARCHAR(255) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE fences (
  name  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  fence BIGINT      NOT NULL
) ENGINE=InnoDB;

CREATE TABLE lock_rows (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

-- session_id is NULL once the name was released.
CREATE TABLE lock_sessions (
  strategy   VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fence      BIGINT       NOT NULL,
  locked_by  VARCHAR(255) NULL,
  session_id BIGINT       NULL,
  locked_at  DATETIME(6)  NULL,
  PRIMARY KEY (strategy, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE lock_sessions;
DROP TABLE lock_rows;
DROP TABLE fences;
DROP TABLE shedlock;

-- The tables of package lock; see its Dialect.Schema. shedlock can be shared with ShedLock.

-- +goose Up
CREATE TABLE shedlock (
  name       TEXT NOT NULL PRIMARY KEY,
  lock_until TEXT NOT NULL,
  locked_at  TEXT NOT NULL,
  locked_by  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fences (
  name  TEXT    NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE fences;
DROP TABLE shedlock;

-- The newest fencing token of each lock. Package lock writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS fences (
  name  TEXT NOT NULL,
  fence INTEGER NOT NULL,
  PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS fences;

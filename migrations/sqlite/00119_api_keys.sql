-- Keys of the backoffice and of other systems. Admins write them, and a start the first one. hash is all that is kept of a key.
-- +goose Up
CREATE TABLE IF NOT EXISTS api_keys (
  id         TEXT NOT NULL,
  name       TEXT NOT NULL,
  role       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER NULL,
  PRIMARY KEY (id),
  UNIQUE (hash)
) STRICT;

-- +goose Down
DROP TABLE IF EXISTS api_keys;

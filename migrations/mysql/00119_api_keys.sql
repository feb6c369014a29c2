-- Keys of the backoffice and of other systems. Admins write them, and a start the first one. hash is all that is kept of a key.
-- +goose Up
CREATE TABLE IF NOT EXISTS api_keys (
  id         VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name       VARCHAR(200) NOT NULL,
  role       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  hash       CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uq_api_keys_hash (hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS api_keys;

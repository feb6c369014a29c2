-- What was answered to requests that named an Idempotency-Key. The API writes it. seed makes the identifiers of what the request
-- makes, so that whoever does it again, after an instance has died, makes nothing twice; changed says that it has changed its
-- dispatch. answer is sealed: whoever knows the caller's secret can read it.
-- +goose Up
CREATE TABLE IF NOT EXISTS idempotency_keys (
  caller      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name        CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fingerprint CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seed        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  leased      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  lease_ends  BIGINT NOT NULL,
  answer      MEDIUMBLOB NULL,
  changed     TINYINT NOT NULL DEFAULT 0,
  expires_at  BIGINT NOT NULL,
  PRIMARY KEY (caller, name),
  UNIQUE KEY uq_idempotency_keys_seed (seed),
  KEY ix_idempotency_keys_expiry (expires_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS idempotency_keys;

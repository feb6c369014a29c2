-- What was answered to requests that named an Idempotency-Key. The API writes it. seed makes the identifiers of what the request
-- makes, so that whoever does it again, after an instance has died, makes nothing twice; changed says that it has changed its
-- dispatch. answer is sealed: whoever knows the caller's secret can read it.
-- +goose Up
CREATE TABLE IF NOT EXISTS idempotency_keys (
  caller      TEXT NOT NULL,
  name        TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  seed        TEXT NOT NULL,
  leased      TEXT NOT NULL,
  lease_ends  INTEGER NOT NULL,
  answer      BLOB NULL,
  changed     INTEGER NOT NULL DEFAULT 0,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (caller, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS uq_idempotency_keys_seed ON idempotency_keys (seed);
CREATE INDEX IF NOT EXISTS ix_idempotency_keys_expiry ON idempotency_keys (expires_at);

-- +goose Down
DROP TABLE IF EXISTS idempotency_keys;

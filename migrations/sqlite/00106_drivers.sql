-- Drivers. Admins and the driver API write them. Tokens of an older token_generation are refused. An erased driver's row stays,
-- without what is personal, so that the history has something to point at.
-- +goose Up
CREATE TABLE IF NOT EXISTS drivers (
  id                TEXT NOT NULL,
  name              TEXT NOT NULL,
  phone             TEXT NOT NULL,
  regions           TEXT NOT NULL,
  vehicle_class     TEXT NOT NULL,
  working_height_m  REAL NULL,
  firebase_uid      TEXT NULL,
  locale            TEXT NOT NULL,
  on_duty           INTEGER NOT NULL,
  suspended_until   INTEGER NULL,
  version           INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  updated_at        INTEGER NOT NULL,
  token_generation  INTEGER NOT NULL DEFAULT 0,
  tokens_revoked_at INTEGER NULL,
  erased_at         INTEGER NULL,
  erased            INTEGER AS (erased_at IS NOT NULL) VIRTUAL, -- an index of NULLs would have every driver
  PRIMARY KEY (id),
  UNIQUE (firebase_uid)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_drivers_revoked ON drivers (token_generation, tokens_revoked_at, id) WHERE token_generation > 0;
CREATE INDEX IF NOT EXISTS ix_drivers_suspended ON drivers (on_duty, suspended_until);
CREATE INDEX IF NOT EXISTS ix_drivers_erased ON drivers (id) WHERE erased = 1;

-- +goose Down
DROP TABLE IF EXISTS drivers;

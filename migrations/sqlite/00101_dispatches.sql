-- Jobs that are offered to drivers. Admins make and change them; drivers accept, withdraw, start and complete them; scheduled jobs end
-- what is overdue. Each change is written together with its events. Times in all tables are microseconds since 1970-01-01 UTC: no
-- session's zone can shift them. round counts how often a dispatch was offered anew; version counts its changes. claim_id, accepted_by
-- and accepted_at name the claim in force, NULL if none is. Identifiers begin with the time, so an index that ends with id is a list,
-- newest first.
-- +goose Up
CREATE TABLE IF NOT EXISTS dispatches (
  id                   TEXT NOT NULL,
  external_id          TEXT NULL,
  region               TEXT NOT NULL,
  vehicle_class        TEXT NOT NULL,
  min_working_height_m REAL NULL,
  site_address         TEXT NOT NULL,
  site_lat             REAL NULL,
  site_lng             REAL NULL,
  work_starts_at       INTEGER NOT NULL,
  work_ends_at         INTEGER NOT NULL,
  fee_amount           INTEGER NOT NULL, -- in the currency's smallest unit
  fee_currency         TEXT NOT NULL,
  note                 TEXT NOT NULL,
  opens_at             INTEGER NOT NULL,
  expires_at           INTEGER NOT NULL,
  status               TEXT NOT NULL,
  round                INTEGER NOT NULL,
  version              INTEGER NOT NULL,
  claim_id             TEXT NULL,
  accepted_by          TEXT NULL,
  accepted_at          INTEGER NULL,
  created_at           INTEGER NOT NULL,
  updated_at           INTEGER NOT NULL,
  PRIMARY KEY (id),
  UNIQUE (external_id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_dispatches_driver ON dispatches (accepted_by, status, work_ends_at);
CREATE INDEX IF NOT EXISTS ix_dispatches_expiry ON dispatches (status, expires_at);
CREATE INDEX IF NOT EXISTS ix_dispatches_work ON dispatches (status, work_starts_at);
CREATE INDEX IF NOT EXISTS ix_dispatches_status ON dispatches (status, id);
CREATE INDEX IF NOT EXISTS ix_dispatches_region ON dispatches (region, id);
CREATE INDEX IF NOT EXISTS ix_dispatches_region_status ON dispatches (region, status, id);
CREATE INDEX IF NOT EXISTS ix_dispatches_open ON dispatches (status, region, vehicle_class, opens_at, id);
CREATE INDEX IF NOT EXISTS ix_dispatches_updated ON dispatches (status, updated_at);
CREATE INDEX IF NOT EXISTS ix_dispatches_jobs ON dispatches (accepted_by, accepted_at, id);

-- +goose Down
DROP TABLE IF EXISTS dispatches;

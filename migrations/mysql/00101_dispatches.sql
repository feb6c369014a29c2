-- Jobs that are offered to drivers. Admins make and change them; drivers accept, withdraw, start and complete them; scheduled jobs end
-- what is overdue. Each change is written together with its events. Times in all tables are microseconds since 1970-01-01 UTC: no
-- session's zone can shift them. round counts how often a dispatch was offered anew; version counts its changes. claim_id, accepted_by
-- and accepted_at name the claim in force, NULL if none is. Identifiers begin with the time, so an index that ends with id is a list,
-- newest first.
-- +goose Up
CREATE TABLE IF NOT EXISTS dispatches (
  id                   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  external_id          VARCHAR(128) NULL,
  region               VARCHAR(64) NOT NULL,
  vehicle_class        VARCHAR(64) NOT NULL,
  min_working_height_m DOUBLE NULL,
  site_address         VARCHAR(500) NOT NULL,
  site_lat             DOUBLE NULL,
  site_lng             DOUBLE NULL,
  work_starts_at       BIGINT NOT NULL,
  work_ends_at         BIGINT NOT NULL,
  fee_amount           BIGINT NOT NULL, -- in the currency's smallest unit
  fee_currency         CHAR(3) NOT NULL,
  note                 VARCHAR(2000) NOT NULL,
  opens_at             BIGINT NOT NULL,
  expires_at           BIGINT NOT NULL,
  status               VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round                INT NOT NULL,
  version              INT NOT NULL,
  claim_id             VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  accepted_by          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  accepted_at          BIGINT NULL,
  created_at           BIGINT NOT NULL,
  updated_at           BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uq_dispatches_external_id (external_id),
  KEY ix_dispatches_driver (accepted_by, status, work_ends_at),
  KEY ix_dispatches_expiry (status, expires_at),
  KEY ix_dispatches_work (status, work_starts_at),
  KEY ix_dispatches_status (status, id),
  KEY ix_dispatches_region (region, id),
  KEY ix_dispatches_region_status (region, status, id),
  KEY ix_dispatches_open (status, region, vehicle_class, opens_at, id),
  KEY ix_dispatches_updated (status, updated_at),
  KEY ix_dispatches_jobs (accepted_by, accepted_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS dispatches;

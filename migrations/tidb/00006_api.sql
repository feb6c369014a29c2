-- As mysql/00006_api.sql, but that offers has its character set from the beginning: TiDB converts no indexed column.
-- +goose Up
ALTER TABLE events ADD COLUMN request_id VARCHAR(128) NOT NULL DEFAULT '';

ALTER TABLE attempts
  ADD COLUMN instance    VARCHAR(64) NOT NULL DEFAULT '',
  ADD COLUMN app_version VARCHAR(64) NOT NULL DEFAULT '';
CREATE INDEX ix_attempts_driver ON attempts (driver_id, at);
CREATE INDEX ix_attempts_list ON attempts (dispatch_id, id);
DROP INDEX ix_attempts_dispatch ON attempts;
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id, result, at);
CREATE INDEX ix_notifications_driver ON notifications (dispatch_id, round, driver_id);

ALTER TABLE offers
  ADD COLUMN declined_at    BIGINT      NULL,
  ADD COLUMN decline_reason VARCHAR(64) NOT NULL DEFAULT '';

-- Identifiers begin with the time: these are the lists, newest first.
CREATE INDEX ix_dispatches_status ON dispatches (status, id);
CREATE INDEX ix_dispatches_region ON dispatches (region, id);
CREATE INDEX ix_dispatches_region_status ON dispatches (region, status, id);
-- What a driver is offered, latest opening first.
DROP INDEX ix_dispatches_open ON dispatches;
CREATE INDEX ix_dispatches_open ON dispatches (status, region, vehicle_class, opens_at, id);
CREATE INDEX ix_dispatches_updated ON dispatches (status, updated_at);
CREATE INDEX ix_dispatches_jobs ON dispatches (accepted_by, accepted_at, id);

-- Every change by an admin that is no event of a dispatch.
CREATE TABLE audit (
  id         VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  at         BIGINT        NOT NULL,
  actor      VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_id VARCHAR(128)  NOT NULL,
  action     VARCHAR(32)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  target     VARCHAR(64)   NOT NULL,
  detail     VARCHAR(2000) NOT NULL,
  KEY ix_audit_target (target, id),
  KEY ix_audit_actor (actor, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What was answered to a request that named an Idempotency-Key. seed makes the identifiers of what the request makes,
-- so that whoever does it again, after an instance has died, makes nothing twice; changed, that it has changed its dispatch.
-- answer is sealed: only who knows the caller's secret reads it.
CREATE TABLE idempotency_keys (
  caller      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name        CHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fingerprint CHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seed        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  leased      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  lease_ends  BIGINT      NOT NULL,
  answer      MEDIUMBLOB  NULL,
  changed     TINYINT     NOT NULL DEFAULT 0,
  expires_at  BIGINT      NOT NULL,
  PRIMARY KEY (caller, name),
  UNIQUE KEY uq_idempotency_keys_seed (seed),
  KEY ix_idempotency_keys_expiry (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE audit;
DROP INDEX ix_dispatches_jobs ON dispatches;
DROP INDEX ix_dispatches_updated ON dispatches;
DROP INDEX ix_dispatches_open ON dispatches;
CREATE INDEX ix_dispatches_open ON dispatches (status, region, opens_at);
DROP INDEX ix_dispatches_region_status ON dispatches;
DROP INDEX ix_dispatches_region ON dispatches;
DROP INDEX ix_dispatches_status ON dispatches;
ALTER TABLE offers DROP COLUMN declined_at, DROP COLUMN decline_reason;
DROP INDEX ix_notifications_driver ON notifications;
DROP INDEX ix_attempts_dispatch ON attempts;
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id);
DROP INDEX ix_attempts_list ON attempts;
DROP INDEX ix_attempts_driver ON attempts;
ALTER TABLE attempts DROP COLUMN instance, DROP COLUMN app_version;
ALTER TABLE events DROP COLUMN request_id;

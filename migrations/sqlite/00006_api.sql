-- +goose Up
ALTER TABLE events ADD COLUMN request_id TEXT NOT NULL DEFAULT '';

ALTER TABLE attempts ADD COLUMN instance TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN app_version TEXT NOT NULL DEFAULT '';
CREATE INDEX ix_attempts_driver ON attempts (driver_id, at);
CREATE INDEX ix_attempts_list ON attempts (dispatch_id, id);
DROP INDEX ix_attempts_dispatch;
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id, result, at);
CREATE INDEX ix_notifications_driver ON notifications (dispatch_id, round, driver_id);

ALTER TABLE offers ADD COLUMN declined_at INTEGER NULL;
ALTER TABLE offers ADD COLUMN decline_reason TEXT NOT NULL DEFAULT '';

-- Identifiers begin with the time: these are the lists, newest first.
CREATE INDEX ix_dispatches_status ON dispatches (status, id);
CREATE INDEX ix_dispatches_region ON dispatches (region, id);
CREATE INDEX ix_dispatches_region_status ON dispatches (region, status, id);
-- What a driver is offered, latest opening first.
DROP INDEX ix_dispatches_open;
CREATE INDEX ix_dispatches_open ON dispatches (status, region, vehicle_class, opens_at, id);
CREATE INDEX ix_dispatches_updated ON dispatches (status, updated_at);
CREATE INDEX ix_dispatches_jobs ON dispatches (accepted_by, accepted_at, id);

-- Every change by an admin that is no event of a dispatch.
CREATE TABLE audit (
  id         TEXT    NOT NULL PRIMARY KEY,
  at         INTEGER NOT NULL,
  actor      TEXT    NOT NULL,
  request_id TEXT    NOT NULL,
  action     TEXT    NOT NULL,
  target     TEXT    NOT NULL,
  detail     TEXT    NOT NULL
) STRICT;
CREATE INDEX ix_audit_target ON audit (target, id);
CREATE INDEX ix_audit_actor ON audit (actor, id);

-- What was answered to a request that named an Idempotency-Key. seed makes the identifiers of what the request makes,
-- so that whoever does it again, after an instance has died, makes nothing twice; changed, that it has changed its dispatch.
-- answer is sealed: only who knows the caller's secret reads it.
CREATE TABLE idempotency_keys (
  caller      TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  fingerprint TEXT    NOT NULL,
  seed        TEXT    NOT NULL,
  leased      TEXT    NOT NULL,
  lease_ends  INTEGER NOT NULL,
  answer      BLOB    NULL,
  changed     INTEGER NOT NULL DEFAULT 0,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (caller, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX uq_idempotency_keys_seed ON idempotency_keys (seed);
CREATE INDEX ix_idempotency_keys_expiry ON idempotency_keys (expires_at);

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE audit;
DROP INDEX ix_dispatches_jobs;
DROP INDEX ix_dispatches_updated;
DROP INDEX ix_dispatches_open;
CREATE INDEX ix_dispatches_open ON dispatches (status, region, opens_at);
DROP INDEX ix_dispatches_region_status;
DROP INDEX ix_dispatches_region;
DROP INDEX ix_dispatches_status;
ALTER TABLE offers DROP COLUMN declined_at;
ALTER TABLE offers DROP COLUMN decline_reason;
DROP INDEX ix_notifications_driver;
DROP INDEX ix_attempts_dispatch;
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id);
DROP INDEX ix_attempts_list;
DROP INDEX ix_attempts_driver;
ALTER TABLE attempts DROP COLUMN instance;
ALTER TABLE attempts DROP COLUMN app_version;
ALTER TABLE events DROP COLUMN request_id;

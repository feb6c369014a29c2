-- +goose Up
-- The ledger of taps on Accept: one row for a driver's taps on a round of a dispatch with one result, with the first, the last and how many.
-- However often an app taps, what is read of it stays as small. id, instance and app_version are those of the tap that was stored first.
CREATE TABLE taps (
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NOT NULL,
  result      TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  last_at     INTEGER NOT NULL,
  count       INTEGER NOT NULL,
  instance    TEXT    NOT NULL,
  app_version TEXT    NOT NULL,
  PRIMARY KEY (dispatch_id, round, driver_id, result)
) STRICT, WITHOUT ROWID;
CREATE INDEX ix_taps_driver ON taps (driver_id, dispatch_id);

DROP TABLE tap_batches;
DROP TABLE attempts;

-- +goose Down
CREATE TABLE attempts (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NOT NULL,
  result      TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  instance    TEXT    NOT NULL DEFAULT '',
  app_version TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX ix_attempts_driver ON attempts (driver_id, at);
CREATE INDEX ix_attempts_list ON attempts (dispatch_id, id);
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id, result, at);
CREATE TABLE tap_batches (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  instance    TEXT    NOT NULL,
  count       INTEGER NOT NULL,
  taps        TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX ix_tap_batches_dispatch ON tap_batches (dispatch_id);
DROP TABLE taps;

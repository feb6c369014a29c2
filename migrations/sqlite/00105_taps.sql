-- The ledger of taps on Accept: one row for a driver's taps on a round with one result, with the first, the last and how many. An
-- instance writes it behind the answers, many taps in a statement. id, instance and app_version are those of the tap that was stored
-- first.
-- +goose Up
CREATE TABLE IF NOT EXISTS taps (
  dispatch_id TEXT NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT NOT NULL,
  result      TEXT NOT NULL,
  id          TEXT NOT NULL,
  at          INTEGER NOT NULL,
  last_at     INTEGER NOT NULL,
  count       INTEGER NOT NULL,
  instance    TEXT NOT NULL,
  app_version TEXT NOT NULL,
  PRIMARY KEY (dispatch_id, round, driver_id, result)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ix_taps_driver ON taps (driver_id, dispatch_id);

-- +goose Down
DROP TABLE IF EXISTS taps;

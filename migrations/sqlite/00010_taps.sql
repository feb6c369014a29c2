-- +goose Up
-- Taps on Accept, one row for those on one dispatch that an instance writes together. The table attempts, with a row for each tap, is
-- what earlier versions wrote: it is read until its rows have expired.
CREATE TABLE tap_batches (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  instance    TEXT    NOT NULL,
  count       INTEGER NOT NULL,
  taps        TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX ix_tap_batches_dispatch ON tap_batches (dispatch_id);

-- +goose Down
DROP TABLE tap_batches;

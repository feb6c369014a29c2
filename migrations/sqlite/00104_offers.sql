-- What became of a round's offer with one driver. The driver API writes a row when a driver has seen the offer or declines it.
-- +goose Up
CREATE TABLE IF NOT EXISTS offers (
  dispatch_id    TEXT NOT NULL,
  round          INTEGER NOT NULL,
  driver_id      TEXT NOT NULL,
  seen_at        INTEGER NULL,
  declined_at    INTEGER NULL,
  decline_reason TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (dispatch_id, round, driver_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS offers;

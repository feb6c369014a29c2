-- +goose Up
-- Every tap on Accept, written behind the answer.
CREATE TABLE attempts (
  id          TEXT    NOT NULL PRIMARY KEY,
  dispatch_id TEXT    NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT    NOT NULL,
  result      TEXT    NOT NULL,
  at          INTEGER NOT NULL
) STRICT;
CREATE INDEX ix_attempts_dispatch ON attempts (dispatch_id, round, driver_id);

-- +goose Down
DROP TABLE attempts;

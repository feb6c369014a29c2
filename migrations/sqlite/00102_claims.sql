-- Who won which round of a dispatch. A claim is written with the dispatch that it accepts, and its outcome when the work ends or is
-- given back. uq_claims_round bars a second winner. driver_seq counts a driver's claims: two claims of one driver that are decided at
-- the same time want the same number, and one gets it. Without that each would overlook the other's working hours.
-- +goose Up
CREATE TABLE IF NOT EXISTS claims (
  id          TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  round       INTEGER NOT NULL,
  driver_id   TEXT NOT NULL,
  driver_seq  INTEGER NOT NULL,
  outcome     TEXT NOT NULL,
  accepted_at INTEGER NOT NULL,
  ended_at    INTEGER NULL,
  PRIMARY KEY (id),
  UNIQUE (dispatch_id, round),
  UNIQUE (driver_id, driver_seq)
) STRICT;

-- +goose Down
DROP TABLE IF EXISTS claims;

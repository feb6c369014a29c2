-- Who won which round of a dispatch. A claim is written with the dispatch that it accepts, and its outcome when the work ends or is
-- given back. uq_claims_round bars a second winner. driver_seq counts a driver's claims: two claims of one driver that are decided at
-- the same time want the same number, and one gets it. Without that each would overlook the other's working hours.
-- +goose Up
CREATE TABLE IF NOT EXISTS claims (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  driver_seq  INT NOT NULL,
  outcome     VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  accepted_at BIGINT NOT NULL,
  ended_at    BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uq_claims_round (dispatch_id, round),
  UNIQUE KEY uq_claims_driver_seq (driver_id, driver_seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS claims;

-- The ledger of taps on Accept: one row for a driver's taps on a round with one result, with the first, the last and how many. An
-- instance writes it behind the answers, many taps in a statement. id, instance and app_version are those of the tap that was stored
-- first.
-- +goose Up
CREATE TABLE IF NOT EXISTS taps (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  result      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at          BIGINT NOT NULL,
  last_at     BIGINT NOT NULL,
  count       INT NOT NULL,
  instance    VARCHAR(64) NOT NULL,
  app_version VARCHAR(64) NOT NULL,
  PRIMARY KEY (dispatch_id, round, driver_id, result),
  KEY ix_taps_driver (driver_id, dispatch_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS taps;

-- What became of a round's offer with one driver. The driver API writes a row when a driver has seen the offer or declines it.
-- +goose Up
CREATE TABLE IF NOT EXISTS offers (
  dispatch_id    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round          INT NOT NULL,
  driver_id      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seen_at        BIGINT NULL,
  declined_at    BIGINT NULL,
  decline_reason VARCHAR(64) NOT NULL DEFAULT '',
  PRIMARY KEY (dispatch_id, round, driver_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS offers;

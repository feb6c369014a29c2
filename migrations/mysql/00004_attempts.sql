-- +goose Up
-- Every tap on Accept, written behind the answer.
CREATE TABLE attempts (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT         NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  result      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at          BIGINT      NOT NULL,
  KEY ix_attempts_dispatch (dispatch_id, round, driver_id)
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE attempts;

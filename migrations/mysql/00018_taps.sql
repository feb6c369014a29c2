-- +goose Up
-- The ledger of taps on Accept: one row for a driver's taps on a round of a dispatch with one result, with the first, the last and how many.
-- However often an app taps, what is read of it stays as small. id, instance and app_version are those of the tap that was stored first.
CREATE TABLE taps (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT         NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  result      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at          BIGINT      NOT NULL,
  last_at     BIGINT      NOT NULL,
  count       INT         NOT NULL,
  instance    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  app_version VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (dispatch_id, round, driver_id, result),
  KEY ix_taps_driver (driver_id, dispatch_id)
) ENGINE=InnoDB;

DROP TABLE tap_batches;
DROP TABLE attempts;

-- +goose Down
CREATE TABLE attempts (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT         NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  result      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at          BIGINT      NOT NULL,
  instance    VARCHAR(64) NOT NULL DEFAULT '',
  app_version VARCHAR(64) NOT NULL DEFAULT '',
  KEY ix_attempts_driver (driver_id, at),
  KEY ix_attempts_list (dispatch_id, id),
  KEY ix_attempts_dispatch (dispatch_id, round, driver_id, result, at)
) ENGINE=InnoDB;
CREATE TABLE tap_batches (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  instance    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  count       INT         NOT NULL,
  taps        MEDIUMBLOB  NOT NULL,
  KEY ix_tap_batches_dispatch (dispatch_id)
) ENGINE=InnoDB;
DROP TABLE taps;

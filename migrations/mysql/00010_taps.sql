-- +goose Up
-- Taps on Accept, one row for those on one dispatch that an instance writes together. The table attempts, with a row for each tap, is
-- what earlier versions wrote: it is read until its rows have expired.
CREATE TABLE tap_batches (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  instance    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  count       INT         NOT NULL,
  taps        MEDIUMBLOB  NOT NULL, -- JSON in UTF-8: in a text column the search for a driver takes five times as long
  KEY ix_tap_batches_dispatch (dispatch_id)
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE tap_batches;

-- Drivers are found by the words of their name, phone and firebase_uid; see repository/driver_words.go, which fills the table. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE driver_words (
  word      VARBINARY(160) NOT NULL,
  driver_id VARCHAR(40)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (word, driver_id),
  KEY ix_driver_words_driver (driver_id)
) ENGINE=InnoDB;

-- worded_version is the version of the driver that driver_words has. An earlier version of FirstTap increments version alone.
ALTER TABLE drivers ADD COLUMN worded_version INT NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unworded BOOLEAN AS (worded_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unworded ON drivers (unworded);

-- +goose Down
DROP INDEX ix_drivers_unworded ON drivers;
ALTER TABLE drivers DROP COLUMN unworded;
ALTER TABLE drivers DROP COLUMN worded_version;
DROP TABLE driver_words;

-- Drivers are found by the words of their name, phone and firebase_uid; see repository/driver_words.go, which fills the table.
-- +goose Up
CREATE TABLE driver_words (
  word      TEXT NOT NULL,
  driver_id TEXT NOT NULL,
  PRIMARY KEY (word, driver_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ix_driver_words_driver ON driver_words (driver_id);

-- worded_version is the version of the driver that driver_words has. An earlier version of FirstTap increments version alone.
ALTER TABLE drivers ADD COLUMN worded_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unworded INTEGER AS (worded_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unworded ON drivers (id) WHERE unworded = 1;

-- +goose Down
DROP INDEX ix_drivers_unworded;
ALTER TABLE drivers DROP COLUMN unworded;
ALTER TABLE drivers DROP COLUMN worded_version;
DROP TABLE driver_words;

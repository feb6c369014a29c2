-- An index of drivers by the words of their name, phone and firebase_uid. Each transaction that changes a driver writes it. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_words (
  word      TEXT NOT NULL,
  driver_id TEXT NOT NULL,
  PRIMARY KEY (word, driver_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ix_driver_words_driver ON driver_words (driver_id);

-- +goose Down
DROP TABLE IF EXISTS driver_words;

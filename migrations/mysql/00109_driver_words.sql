-- An index of drivers by the words of their name, phone and firebase_uid. Each transaction that changes a driver writes it. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_words (
  word      VARBINARY(160) NOT NULL,
  driver_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (word, driver_id),
  KEY ix_driver_words_driver (driver_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS driver_words;

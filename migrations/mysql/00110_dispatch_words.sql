-- An index of dispatches by the words of their external id, address and note. Each transaction that changes these writes it. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS dispatch_words (
  word        VARBINARY(160) NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (word, dispatch_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS dispatch_words;

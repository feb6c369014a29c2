-- An index of dispatches by the words of their external id, address and note. Each transaction that changes these writes it. Words are
-- compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS dispatch_words (
  word        TEXT NOT NULL,
  dispatch_id TEXT NOT NULL,
  PRIMARY KEY (word, dispatch_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS dispatch_words;

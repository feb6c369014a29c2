-- Large audiences, which are told together that an offer is over. The relay writes them. ended: all members are to be unsubscribed.
-- +goose Up
CREATE TABLE IF NOT EXISTS topics (
  name    TEXT NOT NULL,
  ended   INTEGER NOT NULL,
  state   INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  claim   TEXT NOT NULL,
  PRIMARY KEY (name)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_topics_due ON topics (state, next_at);

-- +goose Down
DROP TABLE IF EXISTS topics;

-- How far the expansion of an event with a large audience is. The relay writes it. An event that is expanded at
-- once has no row. due_at is when the event's next notification is due at the earliest.
-- +goose Up
CREATE TABLE IF NOT EXISTS expansions (
  event_id   TEXT NOT NULL,
  leg        INTEGER NOT NULL,
  start      TEXT NOT NULL,
  position   TEXT NOT NULL,
  large      INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  PRIMARY KEY (event_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS expansions;

-- How far the expansion of an event with a large audience is. The relay writes it. An event that is expanded at once has no row.
-- +goose Up
CREATE TABLE IF NOT EXISTS expansions (
  event_id   TEXT NOT NULL,
  delivery   INTEGER NOT NULL,
  leg        INTEGER NOT NULL,
  start      TEXT NOT NULL,
  position   TEXT NOT NULL,
  large      INTEGER NOT NULL,
  offer_turn INTEGER NOT NULL,
  end_turn   INTEGER NOT NULL,
  PRIMARY KEY (event_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS expansions;

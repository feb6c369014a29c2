-- How far the expansion of an event with a large audience is; see repository/audience.go. An event that is expanded in one part has no row.
-- +goose Up
CREATE TABLE expansions (
  event_id   TEXT    NOT NULL PRIMARY KEY,
  delivery   INTEGER NOT NULL,
  leg        INTEGER NOT NULL,
  start      TEXT    NOT NULL,
  position   TEXT    NOT NULL,
  recheck    INTEGER NOT NULL,
  large      INTEGER NOT NULL,
  offer_turn INTEGER NOT NULL,
  end_turn   INTEGER NOT NULL
) WITHOUT ROWID;

-- +goose Down
DROP TABLE expansions;

-- How far the expansion of an event with a large audience is; see repository/audience.go. An event that is expanded in one part has no row.
-- +goose Up
CREATE TABLE expansions (
  event_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  delivery   TINYINT     NOT NULL,
  leg        TINYINT     NOT NULL,
  start      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  recheck    BOOLEAN     NOT NULL,
  large      BOOLEAN     NOT NULL,
  offer_turn BIGINT      NOT NULL,
  end_turn   BIGINT      NOT NULL
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE expansions;

-- How far the expansion of an event with a large audience is. The relay writes it. An event that is expanded at
-- once has no row. due_at is when the event's next notification is due at the earliest.
-- +goose Up
CREATE TABLE IF NOT EXISTS expansions (
  event_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  leg        TINYINT NOT NULL,
  start      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  large      BOOLEAN NOT NULL,
  due_at     BIGINT NOT NULL,
  PRIMARY KEY (event_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS expansions;

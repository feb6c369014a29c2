-- Large audiences, which are told together that an offer is over. The relay writes them. ended: all members are to be unsubscribed.
-- +goose Up
CREATE TABLE IF NOT EXISTS topics (
  name    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ended   BOOLEAN NOT NULL,
  state   TINYINT NOT NULL,
  next_at BIGINT NOT NULL,
  claim   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (name),
  KEY ix_topics_due (state, next_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS topics;

-- The deliveries of one dispatch to one endpoint are a lane, which is sent in order. A lane has a row while some of them are pending.
-- Whoever writes deliveries makes it, and the courier moves it on. next_at is when the earliest of them is to be sent, or when the
-- courier's lease ends.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_lanes (
  webhook_id  VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  next_at     BIGINT NOT NULL,
  claim       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (webhook_id, dispatch_id),
  KEY ix_webhook_lanes_due (webhook_id, next_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS webhook_lanes;

-- Events that are or were sent to an endpoint. The courier writes them and what became of them, admins by a test, a resend or a replay.
-- A test has the event's identifier as its dispatch. attempt counts the attempts since the delivery was written or sent again. next_at is
-- when a pending one is due, or when the lease of the courier in claim ends, '' for none.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_deliveries (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  webhook_id  VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  event_id    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  body        MEDIUMBLOB NOT NULL,
  attempts    MEDIUMTEXT NOT NULL,
  attempt     INT NOT NULL,
  created_at  BIGINT NOT NULL,
  next_at     BIGINT NOT NULL,
  claim       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (dispatch_id, webhook_id, event_id),
  KEY ix_webhook_deliveries_event (webhook_id, event_id),
  KEY ix_webhook_deliveries_due (webhook_id, status, next_at),
  KEY ix_webhook_deliveries_status (webhook_id, status, event_id),
  KEY ix_webhook_deliveries_age (created_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS webhook_deliveries;

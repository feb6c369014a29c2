-- Pushes: one event to one device or topic. The relay writes them when it expands the event, leases them and notes the result.
-- priority is 1 for offers, 2 for pushes about a driver's own job, 3 for the ends of offers, 0 once the push is done. due_at is when it
-- is to be sent, the end of its lease, or, once it is done, when it is deleted. claim names the relay that leases it, '' if none does.
-- +goose Up
CREATE TABLE IF NOT EXISTS notifications (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  event_id    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  device_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT NOT NULL,
  type        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  silent      BOOLEAN NOT NULL,
  state       TINYINT NOT NULL,
  priority    TINYINT NOT NULL,
  due_at      BIGINT NOT NULL,
  claim       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  attempts    INT NOT NULL,
  result      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason      VARCHAR(255) NOT NULL,
  at          BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  sent_at     BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uq_notifications_event (event_id, device_id),
  KEY ix_notifications_due (state, priority, due_at, id),
  KEY ix_notifications_dispatch (dispatch_id, created_at, id),
  KEY ix_notifications_driver (dispatch_id, round, driver_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS notifications;

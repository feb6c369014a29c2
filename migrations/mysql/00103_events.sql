-- What happened to dispatches: their history, and the outbox of pushes. Each transaction that changes a dispatch writes
-- its events. next_at is when the relay is to expand the event into notifications, NULL once it did. claim names the relay that leases
-- it, '' if none does; next_at is then the end of the lease. A row of no dispatch bars a claim whose COMMIT got no answer; the
-- retention deletes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS events (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  actor       VARCHAR(40) NOT NULL,
  reason_code VARCHAR(64) NOT NULL,
  at          BIGINT NOT NULL,
  request_id  VARCHAR(128) NOT NULL DEFAULT '',
  next_at     BIGINT NULL,
  claim       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  KEY ix_events_dispatch (dispatch_id, id),
  KEY ix_events_due (next_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS events;

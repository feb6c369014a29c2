-- Events whose deliveries to webhooks are still to be written. The transaction that writes an event writes its row here, and the courier
-- deletes it in the transaction that writes the deliveries.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_events (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  event_id    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (dispatch_id, event_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS webhook_events;

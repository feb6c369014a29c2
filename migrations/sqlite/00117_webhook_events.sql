-- Events whose deliveries to webhooks are still to be written. The transaction that writes an event writes its row here, and the courier
-- deletes it in the transaction that writes the deliveries.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_events (
  dispatch_id TEXT NOT NULL,
  event_id    TEXT NOT NULL,
  PRIMARY KEY (dispatch_id, event_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS webhook_events;

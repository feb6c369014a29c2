package webhooks

import (
	"context"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
	"firsttap/webhook"
)

// The transaction that writes an event also writes the event's key into webhook_events. A courier writes the event's
// deliveries to the endpoints that are active then, and deletes the key. This has a table of its own, and is not a
// column of the event: the relay locks the event's row at the same moment, and neither must wait for the other.

// EventRow is a row of the table webhook_events.
type EventRow struct {
	DispatchID dispatch.ID
	EventID    dispatch.EventID
}

// TableName implements gorm.Tabler.
func (EventRow) TableName() string { return "webhook_events" }

// DeliveryRow is a row of the table webhook_deliveries.
type DeliveryRow struct {
	DispatchID dispatch.ID
	WebhookID  webhook.ID
	EventID    dispatch.EventID
	Type       dispatch.EventType
	Status     webhook.DeliveryStatus
	Body       []byte
	Attempts   string // JSON
	Attempt    int
	CreatedAt  int64  `gorm:"autoCreateTime:false"`
	NextAt     int64  // of a pending one: the next attempt, or the end of the lease
	Claim      string // the owner of the lease, "" for none
}

// TableName implements gorm.Tabler.
func (DeliveryRow) TableName() string { return "webhook_deliveries" }

// newDelivery returns the row of a delivery that is due.
func newDelivery(to webhook.ID, e *dispatch.Event, body []byte, now time.Time) DeliveryRow {
	return DeliveryRow{
		DispatchID: e.Dispatch, WebhookID: to, EventID: e.ID, Type: e.Type, Status: webhook.Pending, Body: body, Attempts: "[]",
		CreatedAt: database.Micros(now), NextAt: database.Micros(now),
	}
}

// asIs leaves deliveries that are written already as they are.
const asIs = "event_id = webhook_deliveries.event_id"

// writeDeliveries writes deliveries that are due. Present is the SQL for those that are written already.
func writeDeliveries(tx database.Tx, rows []DeliveryRow, present string) error {
	const atOnce = 200 // a body has some kilobytes
	for part := range slices.Chunk(rows, atOnce) {
		args := make([]any, 0, 10*len(part))
		for _, r := range part {
			args = append(args, r.DispatchID, r.WebhookID, r.EventID, r.Type, r.Status, r.Body, r.Attempt, r.Attempts, r.CreatedAt, r.NextAt)
		}
		err := tx.Exec(
			"INSERT INTO webhook_deliveries (dispatch_id, webhook_id, event_id, type, status, body, attempt, "+
				"attempts, created_at, next_at, claim) VALUES "+
				strings.ReplaceAll(database.Placeholders(len(part), 10), "?)", "?, '')")+" {or_update} "+present,
			args...).Error
		if err != nil {
			return database.Unavailable(err)
		}
	}
	return nil
}

// eventsAtOnce bounds the events of one transaction.
const eventsAtOnce = 200

// WriteDeliveries writes the deliveries to active endpoints of some events that have none yet, and of a part of one
// replay. More says that there may be more to write, active that an endpoint is active. Several couriers may call it
// at once: of two events of a dispatch the later one's deliveries may then be written first, but LeaseDeliveries does
// not lease them first. ErrUnavailable, ErrUnknown.
func (o *Outbox) WriteDeliveries(ctx context.Context, body webhook.Body) (more, active bool, err error) {
	var to []Row
	err = o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
		more, to, err = o.fanOut(tx, body)
		return database.Unavailable(err)
	})
	if err != nil {
		return false, false, err
	}
	replays, err := o.replayOne(ctx, to, body)
	return more || replays, len(to) > 0, err
}

// fanOut writes the deliveries of events, takes the events from the queue, and returns the active endpoints.
func (o *Outbox) fanOut(tx database.Tx, body webhook.Body) (more bool, to []Row, err error) {
	var queued []EventRow
	err = tx.Raw("SELECT dispatch_id, event_id FROM webhook_events ORDER BY dispatch_id, event_id LIMIT ? {skip_locked}", eventsAtOnce).
		Scan(&queued).Error
	if err != nil {
		return false, nil, err
	}
	// Read after the events: an endpoint that was active before an event was committed is among them.
	err = tx.Raw("SELECT * FROM webhooks WHERE status = ? ORDER BY id", webhook.Active).Scan(&to).Error
	if err != nil || len(queued) == 0 {
		return false, to, err
	}
	if len(to) > 0 {
		ids := make([]dispatch.EventID, len(queued))
		for i, q := range queued {
			ids[i] = q.EventID
		}
		var found []announced // an event that the retention has deleted has no deliveries
		if err := tx.Raw(announcedSQL+" WHERE e.id IN ? ORDER BY e.id", ids).Scan(&found).Error; err != nil {
			return false, nil, err
		}
		if err := writeDeliveries(tx, deliveriesOf(found, to, body), asIs); err != nil {
			return false, nil, err
		}
	}
	for _, q := range queued { // one by one: for many keys a server may read other rows too, and wait for those that are locked
		err := tx.Exec("{delete q} FROM webhook_events AS q {force PRIMARY} WHERE q.dispatch_id = ? AND q.event_id = ?",
			q.DispatchID, q.EventID).Error
		if err != nil {
			return false, nil, err
		}
	}
	return len(queued) == eventsAtOnce, to, nil
}

// announced is an event and its dispatch as it is now.
type announced struct {
	Event    journal.EventRow    `gorm:"embedded;embeddedPrefix:event_"`
	Dispatch dispatches.TimedRow `gorm:"embedded"`
}

// announcedSQL selects announced events.
const announcedSQL = "SELECT d.*, {now} now, " + journal.EventColumns + " FROM events e {force PRIMARY}" +
	" JOIN dispatches d ON d.id = e.dispatch_id"

// deliveriesOf returns the deliveries of the events to those of the endpoints that want them.
func deliveriesOf(events []announced, to []Row, body webhook.Body) (rows []DeliveryRow) {
	endpoints := webhookEndpoints(to)
	for i := range events {
		e, now := events[i].Event.Event(), database.Time(events[i].Dispatch.Now)
		var text []byte
		for k := range endpoints {
			if !endpoints[k].Subscribes(e.Type) {
				continue
			}
			if text == nil {
				text = body(events[i].Dispatch.Row.At(now), e)
			}
			rows = append(rows, newDelivery(endpoints[k].ID, &e, text, now))
		}
	}
	return rows
}

// deliveryKey names a delivery.
type deliveryKey struct {
	dispatch dispatch.ID
	webhook  webhook.ID
	event    dispatch.EventID
}

func (row *DeliveryRow) key() deliveryKey {
	return deliveryKey{row.DispatchID, row.WebhookID, row.EventID}
}

// keyOf returns the key of a delivery. A test has its event's identifier as its dispatch.
func keyOf(d *webhook.Delivery) deliveryKey {
	if d.Dispatch == "" {
		return deliveryKey{dispatch.ID(d.Event), d.Endpoint, d.Event}
	}
	return deliveryKey{d.Dispatch, d.Endpoint, d.Event}
}

// anyOf returns the condition n times, with OR between.
func anyOf(condition string, n int) string {
	return "(" + strings.Join(slices.Repeat([]string{condition}, n), " OR ") + ")"
}

// theseDeliveries returns the SQL for deliveries by their keys, and its arguments.
func theseDeliveries(keys []deliveryKey) (string, []any) {
	args := make([]any, 0, 3*len(keys))
	for _, k := range keys {
		args = append(args, k.dispatch, k.webhook, k.event)
	}
	return anyOf("dispatch_id = ? AND webhook_id = ? AND event_id = ?", len(keys)), args
}

package webhooks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
)

// While an endpoint is active, the transaction that writes an event also writes the event's key into webhook_events. A courier writes the
// event's deliveries to the endpoints that are active then, and deletes the key. This has a table of its own, and is not a
// column of the event: the relay locks the event's row at the same moment, and neither must wait for the other.

// EventRow is a row of the table webhook_events.
type EventRow struct {
	DispatchID dispatch.ID
	EventID    dispatch.EventID
}

// TableName implements gorm.Tabler.
func (EventRow) TableName() string { return "webhook_events" }

// Key names a delivery. One that an admin asks for as a test has its event's identifier for a dispatch.
type Key struct {
	DispatchID dispatch.ID      `gorm:"primaryKey"`
	WebhookID  webhook.ID       `gorm:"primaryKey"`
	EventID    dispatch.EventID `gorm:"primaryKey"`
}

func keyOf(d *webhook.Delivery) Key { return Key{d.Dispatch, d.Endpoint, d.Event} }

// DeliveryRow is a row of the table webhook_deliveries.
type DeliveryRow struct {
	Key
	Type      dispatch.EventType
	Status    webhook.DeliveryStatus
	Body      []byte
	Attempts  []webhook.Attempt `gorm:"serializer:json;not null"`
	Attempt   int               // how many of them count
	CreatedAt int64             `gorm:"autoCreateTime:false"`
	NextAt    int64             // of a pending one: the next attempt, or the end of the lease
	Claim     string            // the owner of the lease, "" for none
}

// TableName implements gorm.Tabler.
func (DeliveryRow) TableName() string { return "webhook_deliveries" }

// KeepDeliveries is how long a delivery is kept, also if it is still pending: its endpoint may be paused for ever.
const KeepDeliveries = 30 * 24 * time.Hour

// newDelivery returns the row of a delivery that is due.
func newDelivery(to webhook.ID, e *dispatch.Event, body []byte, now time.Time) DeliveryRow {
	return DeliveryRow{
		Key: Key{e.Dispatch, to, e.ID}, Type: e.Type, Status: webhook.Pending, Body: body,
		CreatedAt: database.Micros(now), NextAt: database.Micros(now),
	}
}

// deliveriesAtOnce bounds the deliveries of one INSERT: a body has some kilobytes.
const deliveriesAtOnce = 200

// eventsAtOnce bounds the events of one transaction.
const eventsAtOnce = 200

// WriteDeliveries writes the deliveries to active endpoints of some events that have none yet, and of a part of each
// replay. More says that more such events may wait, active that an endpoint is active. Several couriers may call it
// at once: of two events of a dispatch the later one's deliveries may then be written first, but LeaseDeliveries does
// not lease them first. ErrUnavailable, ErrUnknown.
func (o *Outbox) WriteDeliveries(ctx context.Context, body webhook.Body) (more, active bool, err error) {
	var to []Row
	err = o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
		more, to, err = o.fanOut(tx, body)
		return database.Unavailable(err)
	})
	for i := 0; i < len(to) && ctx.Err() == nil; i++ { // an error of one endpoint's replay stops no other's
		if to[i].ReplayUntil != nil {
			part := func(tx database.Tx) error { return database.Unavailable(replay(tx, to[i].ID, body)) }
			err = errors.Join(err, o.db.Work.Transact(ctx, part))
		}
	}
	return more, len(to) > 0, err
}

// fanOut writes the deliveries of events, takes the events from the queue, and returns the active endpoints.
func (o *Outbox) fanOut(tx database.Tx, body webhook.Body) (more bool, to []Row, err error) {
	var queued []EventRow
	err = tx.Raw("SELECT dispatch_id, event_id FROM webhook_events ORDER BY dispatch_id, event_id LIMIT ? {skip_locked}", eventsAtOnce).
		Scan(&queued).Error
	if err != nil {
		return false, nil, err
	}
	// Read after the events: an endpoint that was active when an event was written is among them.
	err = tx.Raw("SELECT * FROM webhooks WHERE status = ? ORDER BY id", webhook.Active).Scan(&to).Error
	if err != nil || len(queued) == 0 {
		return false, to, err
	}
	ids := make([]dispatch.EventID, len(queued))
	for i, q := range queued {
		ids[i] = q.EventID
	}
	if len(to) > 0 {
		var found []announced // an event that the retention has deleted has no deliveries
		if err := tx.Raw(announcedSQL+" WHERE e.id IN ? ORDER BY e.id", ids).Scan(&found).Error; err != nil {
			return false, nil, err
		}
		rows := deliveriesOf(found, to, body)
		if err := tx.Clauses(database.KeepPresent).CreateInBatches(rows, deliveriesAtOnce).Error; err != nil {
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
	all := endpoints(to)
	for i := range events {
		e, now := events[i].Event.Event(), database.Time(events[i].Dispatch.Now)
		var text []byte
		for k := range all {
			if !all[k].Subscribes(e.Type) {
				continue
			}
			if text == nil {
				text = body(events[i].Dispatch.Row.At(now), e)
			}
			rows = append(rows, newDelivery(all[k].ID, &e, text, now))
		}
	}
	return rows
}

// anyOf returns the condition n times, with OR between.
func anyOf(condition string, n int) string {
	return "(" + strings.Join(slices.Repeat([]string{condition}, n), " OR ") + ")"
}

// theseDeliveries returns the SQL for deliveries by their keys, and its arguments.
func theseDeliveries(keys []Key) (string, []any) {
	args := make([]any, 0, 3*len(keys))
	for _, k := range keys {
		args = append(args, k.DispatchID, k.WebhookID, k.EventID)
	}
	return anyOf("dispatch_id = ? AND webhook_id = ? AND event_id = ?", len(keys)), args
}

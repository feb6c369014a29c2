package repository

import (
	"context"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
	"firsttap/webhook"
)

// The transaction that writes an event also writes the event's key into webhook_events. A courier writes the event's
// deliveries to the endpoints that are active then, and deletes the key. This has a table of its own, and is not a
// column of the event: the relay locks the event's row at the same moment, and neither must wait for the other.

type webhookEventRow struct {
	DispatchID dispatch.ID
	EventID    dispatch.EventID
}

func (webhookEventRow) TableName() string { return "webhook_events" }

// queueForWebhooks has the deliveries of the events written after tx has been committed.
func queueForWebhooks(tx *gorm.DB, events []dispatch.Event) error {
	keys := make([]any, 0, 2*len(events))
	for _, e := range events {
		keys = append(keys, e.Dispatch, e.ID)
	}
	return tx.Exec("INSERT INTO webhook_events (dispatch_id, event_id) VALUES "+placeholders(len(events), 2), keys...).Error
}

type deliveryRow struct {
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

func (deliveryRow) TableName() string { return "webhook_deliveries" }

// newDelivery returns the row of a delivery that is due.
func newDelivery(to webhook.ID, e *dispatch.Event, body []byte, now time.Time) deliveryRow {
	return deliveryRow{
		DispatchID: e.Dispatch, WebhookID: to, EventID: e.ID, Type: e.Type, Status: webhook.Pending, Body: body, Attempts: "[]",
		CreatedAt: micros(now), NextAt: micros(now),
	}
}

// writeDeliveries writes deliveries. How says what becomes of those that are written already.
func writeDeliveries(tx *gorm.DB, rows []deliveryRow, how clause.OnConflict) error {
	if len(rows) == 0 {
		return nil
	}
	const atOnce = 200 // a body has some kilobytes
	return unavailable(tx.Clauses(how).CreateInBatches(rows, atOnce).Error)
}

// eventsAtOnce bounds the events of one transaction.
const eventsAtOnce = 200

// WriteDeliveries writes the deliveries to active endpoints of some events that have none yet, and of a part of one
// replay. More says that there may be more to write, active that an endpoint is active. Several couriers may call it
// at once: of two events of a dispatch the later one's deliveries may then be written first, but LeaseDeliveries does
// not lease them first. ErrUnavailable, ErrUnknown.
func (o *WebhookOutbox) WriteDeliveries(ctx context.Context, body webhook.Body) (more, active bool, err error) {
	var to []webhookRow
	err = o.transactWithRetry(ctx, o.work, func(tx *gorm.DB) (err error) {
		more, to, err = o.fanOut(tx, body)
		return unavailable(err)
	})
	if err != nil {
		return false, false, err
	}
	replays, err := o.replayOne(ctx, to, body)
	return more || replays, len(to) > 0, err
}

// fanOut writes the deliveries of events, takes the events from the queue, and returns the active endpoints.
func (o *WebhookOutbox) fanOut(tx *gorm.DB, body webhook.Body) (more bool, to []webhookRow, err error) {
	var queued []webhookEventRow
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
		if err := writeDeliveries(tx, deliveriesOf(found, to, body), clause.OnConflict{DoNothing: true}); err != nil {
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
	Event    eventRow `gorm:"embedded;embeddedPrefix:event_"`
	Dispatch timedRow `gorm:"embedded"`
}

// eventColumns are the columns of events e as an announced reads them.
const eventColumns = `e.id event_id, e.dispatch_id event_dispatch_id, e.type event_type, e.round event_round, e.driver_id event_driver_id,
	e.actor event_actor, e.reason_code event_reason_code, e.request_id event_request_id, e.at event_at`

// announcedSQL selects announced events.
const announcedSQL = "SELECT d.*, {now} now, " + eventColumns + " FROM events e {force PRIMARY} JOIN dispatches d ON d.id = e.dispatch_id"

// deliveriesOf returns the deliveries of the events to those of the endpoints that want them.
func deliveriesOf(events []announced, to []webhookRow, body webhook.Body) (rows []deliveryRow) {
	endpoints := webhookEndpoints(to)
	for i := range events {
		e, now := events[i].Event.event(), fromMicros(events[i].Dispatch.Now)
		var text []byte
		for k := range endpoints {
			if !endpoints[k].Subscribes(e.Type) {
				continue
			}
			if text == nil {
				text = body(events[i].Dispatch.Row.at(now), e)
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

func (row *deliveryRow) key() deliveryKey {
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

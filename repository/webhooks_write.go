package repository

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
	"firsttap/webhook"
)

// A delivery is written in the transaction that completes its event, and with it the row of its lane, which is written first. A completion
// of deliveries takes the lane's row first, too. So of a writer and a completion, the second sees what the first did: the lane has a row
// whenever one of its deliveries is pending. Whoever takes several lanes takes them in the order of their keys.

type deliveryRow struct {
	DispatchID dispatch.ID
	WebhookID  webhook.ID
	EventID    dispatch.EventID
	Type       dispatch.EventType
	Status     webhook.DeliveryStatus
	Body       []byte
	Attempts   string // JSON
	Attempt    int
	CreatedAt  int64 `gorm:"autoCreateTime:false"`
}

func (deliveryRow) TableName() string { return "webhook_deliveries" }

type laneRow struct {
	WebhookID  webhook.ID
	DispatchID dispatch.ID
	NextAt     int64
	Claim      string // the owner of the lease, "" for none
}

func (laneRow) TableName() string { return "webhook_lanes" }

// laneKey names a lane.
type laneKey struct {
	webhook  webhook.ID
	dispatch dispatch.ID
}

func compareLanes(a, b laneKey) int {
	return cmp.Or(strings.Compare(string(a.webhook), string(b.webhook)), strings.Compare(string(a.dispatch), string(b.dispatch)))
}

// newDelivery returns the row of a delivery that is to be sent.
func newDelivery(to webhook.ID, e *dispatch.Event, body []byte, now time.Time) deliveryRow {
	return deliveryRow{
		DispatchID: e.Dispatch, WebhookID: to, EventID: e.ID, Type: e.Type, Status: webhook.Pending, Body: body, Attempts: "[]", CreatedAt: micros(now),
	}
}

// deliveriesPerStatement bounds one statement: a body has some kilobytes.
const deliveriesPerStatement = 200

// keepWritten leaves deliveries that are written already as they are.
var keepWritten = clause.OnConflict{DoNothing: true}

// writeDeliveries writes the deliveries, and has their lanes sent from now on. How says what becomes of a delivery that is written already.
func writeDeliveries(tx *gorm.DB, rows []deliveryRow, how clause.OnConflict, now time.Time) error {
	lanes := make([]laneKey, len(rows))
	for i := range rows {
		lanes[i] = laneKey{rows[i].WebhookID, rows[i].DispatchID}
	}
	if err := takeLanes(tx, lanes, now); err != nil {
		return err
	}
	return unavailable(tx.Clauses(how).CreateInBatches(rows, deliveriesPerStatement).Error)
}

// takeLane changes the row of a lane that exists: on another node of a Galera cluster a lock alone would not keep a completion from deleting it.
var takeLane = clause.OnConflict{
	Columns:   []clause.Column{{Name: "webhook_id"}, {Name: "dispatch_id"}},
	DoUpdates: clause.Assignments(map[string]any{"next_at": gorm.Expr("webhook_lanes.next_at + 1")}),
}

// takeLanes locks the lanes until tx ends, and makes those that have no row due now.
func takeLanes(tx *gorm.DB, lanes []laneKey, now time.Time) error {
	slices.SortFunc(lanes, compareLanes)
	lanes = slices.Compact(lanes)
	rows := make([]laneRow, len(lanes))
	for i, l := range lanes {
		rows[i] = laneRow{WebhookID: l.webhook, DispatchID: l.dispatch, NextAt: micros(now)}
	}
	return unavailable(tx.Clauses(takeLane).CreateInBatches(rows, rowsPerStatement).Error)
}

// subscription is what an event's completion needs to know of an active endpoint.
type subscription struct {
	ID     webhook.ID
	Events string
}

func (s subscription) wants(t dispatch.EventType) bool {
	e := webhook.Endpoint{Events: strings.Split(s.Events, ",")}
	return e.Subscribes(t)
}

func subscriptions(db *gorm.DB) (all []subscription, err error) {
	err = db.Raw("SELECT id, events FROM webhooks WHERE status = ? ORDER BY id", webhook.Active).Scan(&all).Error
	return all, unavailable(err)
}

// writeEvent writes the deliveries of an event to the active endpoints, and reports whether there are any.
func (s *Store) writeEvent(tx *gorm.DB, d dispatch.Dispatch, e *dispatch.Event, now time.Time) (bool, error) {
	to, err := subscriptions(tx)
	if err != nil {
		return false, err
	}
	var rows []deliveryRow
	var body []byte
	for _, sub := range to {
		if !sub.wants(e.Type) {
			continue
		}
		if body == nil {
			body = s.options.WebhookBody(d, *e)
		}
		rows = append(rows, newDelivery(sub.ID, e, body, now))
	}
	if len(rows) == 0 {
		return false, nil
	}
	return true, writeDeliveries(tx, rows, keepWritten, now)
}

// eventsPerCompletion bounds the events that one transaction completes with their deliveries.
const eventsPerCompletion = 100

// completeWithDeliveries completes those of the events that the owner leases, and writes their deliveries.
func (o *Outbox) completeWithDeliveries(ctx context.Context, events []dispatch.EventID) error {
	for chunk := range slices.Chunk(events, eventsPerCompletion) {
		var written bool
		err := o.transactWithRetry(ctx, o.relay, func(tx *gorm.DB) error {
			written = false
			rows, leased, now, err := o.deliveriesOf(tx, chunk)
			if err != nil || len(leased) == 0 {
				return err
			}
			if err := o.completeLeased(tx, leased); err != nil {
				return unavailable(err)
			}
			if written = len(rows) > 0; !written {
				return nil
			}
			return writeDeliveries(tx, rows, keepWritten, now)
		})
		if err != nil {
			return err
		}
		if written {
			o.wakeWebhooks()
		}
	}
	return nil
}

// deliveriesOf returns the deliveries of those of the events that the owner leases, these events, and the database's time.
func (o *Outbox) deliveriesOf(tx *gorm.DB, events []dispatch.EventID) (rows []deliveryRow, leased []dispatch.EventID, now time.Time, err error) {
	var found []struct {
		Event         eventRow `gorm:"embedded;embeddedPrefix:event_"`
		Dispatch      timedRow `gorm:"embedded"`
		WebhookID     *webhook.ID
		WebhookEvents *string
	}
	err = tx.Raw("SELECT d.*, "+o.dialect.now()+" now, "+eventColumns+", w.id webhook_id, w.events webhook_events FROM events e"+o.dialect.forceIndex("PRIMARY")+
		" JOIN dispatches d ON d.id = e.dispatch_id LEFT JOIN webhooks w ON w.status = ?"+
		" WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ? ORDER BY e.id", webhook.Active, events, o.Owner).Scan(&found).Error
	if err != nil {
		return nil, nil, now, unavailable(err)
	}
	bodies := map[dispatch.EventID][]byte{}
	for i := range found {
		f := &found[i]
		now = fromMicros(f.Dispatch.Now)
		if n := len(leased); n == 0 || leased[n-1] != f.Event.ID {
			leased = append(leased, f.Event.ID)
		}
		if f.WebhookID == nil || f.WebhookEvents == nil || !(subscription{*f.WebhookID, *f.WebhookEvents}).wants(f.Event.Type) {
			continue
		}
		e := f.Event.event()
		if bodies[e.ID] == nil {
			bodies[e.ID] = o.options.WebhookBody(f.Dispatch.Row.at(now), e)
		}
		rows = append(rows, newDelivery(*f.WebhookID, &e, bodies[e.ID], now))
	}
	return rows, leased, now, nil
}

// eventColumns are the columns of events e as an embedded eventRow with the prefix event_ reads them.
const eventColumns = `e.id event_id, e.dispatch_id event_dispatch_id, e.type event_type, e.round event_round, e.driver_id event_driver_id,
	e.actor event_actor, e.reason_code event_reason_code, e.request_id event_request_id, e.at event_at`

// earlyEvent is an event that is completed later, when it is pushed. Endpoints get it at once from the instance that has committed it, if that
// sends webhooks; otherwise when it is pushed, as from an instance that does not lead with FIRSTTAP_RELAY=leader.
type earlyEvent struct {
	dispatch dispatch.Dispatch
	event    dispatch.Event
}

// maxEarly bounds the early events that wait. The deliveries of one that does not fit are written when it is completed.
const maxEarly = 1024

// queueEarly queues those of the events that this process has committed and that are completed later.
func (s *Store) queueEarly(d dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		if !e.PushAt.After(e.At) || !s.webhooksMayExist() {
			continue
		}
		select {
		case s.early <- earlyEvent{d, e}:
			s.wakeWebhooks()
		default:
		}
	}
}

// writeEarly writes the deliveries of the early events that wait. What it does not write, the completion of the event does.
func (o *WebhookOutbox) writeEarly(ctx context.Context) {
	for range maxEarly {
		select {
		case early := <-o.early:
			err := o.transactWithRetry(ctx, o.webhooks, func(tx *gorm.DB) error {
				now, err := o.clock(tx)
				if err != nil || !early.event.PushAt.After(now) { // its completion writes it, or has written it
					return err
				}
				_, err = o.writeEvent(tx, early.dispatch, &early.event, now)
				return err
			})
			if err != nil {
				o.log.Warn("webhook deliveries of an event were not written ahead of its pushes; they will be written with these",
					"event", early.event.ID, "push_at", early.event.PushAt, "error", err)
			}
		default:
			return
		}
	}
}

// writeOvertaken writes the deliveries of events that are pushed later, which queueEarly could not have written early: their later events wait
// for them. What it does not write, the next look at the lane does.
func (o *WebhookOutbox) writeOvertaken(ctx context.Context, events []dispatch.EventID) {
	if len(events) == 0 {
		return
	}
	err := o.transactWithRetry(ctx, o.webhooks, func(tx *gorm.DB) error {
		var found []announced
		err := tx.Raw("SELECT d.*, "+o.dialect.now()+" now, "+eventColumns+" FROM events e"+o.dialect.forceIndex("PRIMARY")+
			" JOIN dispatches d ON d.id = e.dispatch_id WHERE e.id IN ? ORDER BY e.id", events).Scan(&found).Error
		for i := 0; i < len(found) && err == nil; i++ {
			e, now := found[i].Event.event(), fromMicros(found[i].Dispatch.Now)
			_, err = o.writeEvent(tx, found[i].Dispatch.Row.at(now), &e, now)
		}
		return unavailable(err)
	})
	if err != nil {
		o.log.Warn("webhook deliveries that hold back later ones were not written; they will be tried again when their lanes are looked at", "events", len(events), "error", err)
	}
}

// announced is an event and its dispatch as it is now.
type announced struct {
	Event    eventRow `gorm:"embedded;embeddedPrefix:event_"`
	Dispatch timedRow `gorm:"embedded"`
}

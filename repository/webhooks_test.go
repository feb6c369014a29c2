package repository

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// webhookBody is a body that names what it is made of.
func webhookBody(d dispatch.Dispatch, e dispatch.Event) []byte {
	return fmt.Appendf(nil, "%s %s %d", e.ID, d.ID, d.Version)
}

// courier is the database as one instance uses it that sends webhooks.
type courier struct {
	*database
	sends *WebhookOutbox
}

// courier returns an instance of that name.
func (db *database) courier(t testing.TB, name string, edit ...func(*Options)) *courier {
	t.Helper()
	o := Options{Log: quiet, Patience: testkit.Patience, Retention: usualRetention}
	for _, e := range edit {
		e(&o)
	}
	in := &courier{database: db.by(openWith(t, db.url, o))}
	in.sends = in.WebhookOutbox(WebhookOptions{Owner: name, LeaseTerm: term})
	return in
}

// endpoint adds an endpoint that has been active for an hour, for these events, as edit changes it.
func (db *database) endpoint(t testing.TB, events string, edit func(*webhookRow)) webhook.ID {
	t.Helper()
	now := db.now(t)
	row := webhookRow{
		ID: webhook.ID(dispatch.NewUniqueID(dispatch.WebhookPrefix, now)), URL: "https://example.com/hook", Events: events,
		Status: webhook.Active, Secret: "whsec_c2VjcmV0", Version: 1,
		CreatedAt: micros(now.Add(-time.Hour)), UpdatedAt: micros(now.Add(-time.Hour)),
	}
	if edit != nil {
		edit(&row)
	}
	must(t, db.decide.WithContext(t.Context()).Create(&row).Error)
	return row.ID
}

// changed adds a dispatch and changes it, so that it has n events. It returns them in their order.
func (db *database) changed(t testing.TB, n int) (dispatch.Dispatch, []dispatch.EventID) {
	t.Helper()
	d := db.add(t, nil)
	for range n - 1 {
		d = db.mustUpdate(t, d.ID, touch)
	}
	return d, db.eventsOf(t, d.ID)
}

func (db *database) eventsOf(t testing.TB, id dispatch.ID) []dispatch.EventID {
	t.Helper()
	var events []dispatch.EventID
	must(t, db.serve.WithContext(t.Context()).Raw("SELECT id FROM events WHERE dispatch_id = ? ORDER BY id", id).Scan(&events).Error)
	return events
}

// fanOut writes the deliveries of all events, and of no replay.
func (in *courier) fanOut(t testing.TB) {
	t.Helper()
	for more := true; more; {
		must(t, in.transactWithRetry(t.Context(), in.work, func(tx *gorm.DB) (err error) {
			more, _, err = in.sends.fanOut(tx, webhookBody)
			return err
		}))
	}
}

// writePart writes deliveries as a courier does, and reports whether there may be more to write.
func (in *courier) writePart(t testing.TB) bool {
	t.Helper()
	more, _, err := in.sends.WriteDeliveries(t.Context(), webhookBody)
	must(t, err)
	return more
}

// unwritten calls do while the events' deliveries are to be written, as if another instance were about to do so.
func (in *courier) unwritten(t testing.TB, events []dispatch.EventID, do func()) {
	t.Helper()
	var rows []webhookEventRow
	must(t, in.decide.Raw("SELECT * FROM webhook_events WHERE event_id IN ?", events).Scan(&rows).Error)
	must(t, in.decide.Exec("DELETE FROM webhook_events WHERE event_id IN ?", events).Error)
	in.fanOut(t)
	in.write(t, rows)
	do()
	in.fanOut(t)
}

// deliveries is what is stored of the endpoint's deliveries, in the order of the events.
func (db *database) deliveries(t testing.TB, id webhook.ID) (rows []deliveryRow) {
	t.Helper()
	must(t, db.serve.WithContext(t.Context()).Where("webhook_id = ?", id).Order("event_id").Find(&rows).Error)
	return rows
}

// allDue makes every delivery due, also those that are leased.
func (db *database) allDue(t testing.TB) {
	t.Helper()
	db.exec(t, "UPDATE webhook_deliveries SET next_at = 1")
}

func (in *courier) mustLease(t testing.TB, want int) []webhook.Lease {
	t.Helper()
	leases, _, err := in.sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
	must(t, err)
	if len(leases) != want {
		t.Fatalf("%d deliveries are leased, want %d: %v", len(leases), want, leases)
	}
	return leases
}

func succeeded(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 204, Took: time.Millisecond}}
}

func failed(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{
		At: time.Now(), HTTPStatus: 500, Error: "the answer is 500", Took: time.Millisecond, Answer: "no",
	}}
}

func (in *courier) mustComplete(t testing.TB, results ...webhook.Result) []webhook.Endpoint {
	t.Helper()
	paused, err := in.sends.CompleteDeliveries(t.Context(), results)
	must(t, err)
	return paused
}

// Each active endpoint gets one delivery of each event that it wants, whatever wrote the event, and also if it is pushed later.
func TestDeliveriesOfEvents(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		all := db.endpoint(t, "*", nil)
		some := db.endpoint(t, "dispatch.accepted,dispatch.updated", nil)
		paused := db.endpoint(t, "*", func(w *webhookRow) { w.Status = webhook.Paused })
		deleted := db.endpoint(t, "*", func(w *webhookRow) { w.Status = deletedWebhook })
		drivers := db.drivers(t, 2)
		d := db.add(t, nil)
		must(t, db.Decline(t.Context(), d.ID, 1, drivers[1].ID, "FAR"))
		db.mustAccept(t, d.ID, drivers[0].ID) // by the procedure where there is one
		db.mustUpdate(t, d.ID, withdraw)
		must(t, errorOf(db.accept(keyed(t), d.ID, drivers[1].ID))) // in a transaction
		d = db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, err := touch(d, now)
			events[0].PushAt = now.Add(time.Hour)
			return events, err
		})
		events := db.eventsOf(t, d.ID)
		in.fanOut(t)
		db.mustCount(t, 0, "webhook_events")
		rows := in.deliveries(t, all)
		testkit.Equal(t, "the events", events, collect(rows, func(r deliveryRow) dispatch.EventID { return r.EventID }))
		testkit.Equal(t, "types", []dispatch.EventType{
			dispatch.EventCreated, dispatch.EventDeclined, dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventReopened,
			dispatch.EventAccepted, dispatch.EventUpdated,
		}, collect(rows, func(r deliveryRow) dispatch.EventType { return r.Type }))
		testkit.Equal(t, "a delivery", deliveryRow{
			DispatchID: d.ID, WebhookID: all, EventID: events[0], Type: dispatch.EventCreated, Status: webhook.Pending,
			Body: fmt.Appendf(nil, "%s %s %d", events[0], d.ID, d.Version), Attempts: "[]", CreatedAt: rows[0].CreatedAt, NextAt: rows[0].CreatedAt,
		}, rows[0])
		testkit.Equal(t, "the events that one wants", []dispatch.EventID{events[2], events[5], events[6]},
			collect(in.deliveries(t, some), func(r deliveryRow) dispatch.EventID { return r.EventID }))
		db.mustCount(t, 0, "webhook_deliveries WHERE webhook_id IN (?, ?)", paused, deleted)
		// An event whose delivery is written already keeps it.
		db.exec(t, "UPDATE webhook_deliveries SET status = 'DELIVERED', body = ?", []byte("sent"))
		db.write(t, []webhookEventRow{{d.ID, events[0]}, {d.ID, "evt_removed"}})
		in.fanOut(t)
		db.mustCount(t, len(events)+3, "webhook_deliveries WHERE status = 'DELIVERED' AND body = ?", []byte("sent"))
		db.mustCount(t, 0, "webhook_events")
	})
}

// An event leaves the queue with its deliveries, or stays in it. Without an active endpoint it has none.
func TestFanOutIsOneTransaction(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		in.changed(t, 2)
		if _, active, err := in.sends.WriteDeliveries(t.Context(), webhookBody); active || err != nil {
			t.Errorf("without an endpoint: %t, %v", active, err)
		}
		db.mustCount(t, 0, "webhook_events")
		db.endpoint(t, "*", nil)
		in.changed(t, 2)
		db.without(t, "webhook_deliveries", func() {
			_, _, err := in.sends.WriteDeliveries(t.Context(), webhookBody)
			mustBeError(t, "a fan-out", err, dispatch.ErrUnavailable)
		})
		db.mustCount(t, 2, "webhook_events")
		in.fanOut(t)
		db.mustCount(t, 2, "webhook_deliveries")
		// Many events are written in several transactions.
		n := eventsAtOnce + 1
		rows := make([]webhookEventRow, n)
		for i := range rows {
			rows[i] = webhookEventRow{dispatch.NewID(time.Now()), "evt_removed"}
		}
		db.write(t, rows)
		for _, want := range []bool{true, false} {
			more, active, err := in.sends.WriteDeliveries(t.Context(), webhookBody)
			if more != want || !active || err != nil {
				t.Errorf("%t, %t, %v", more, active, err)
			}
		}
		db.mustCount(t, 0, "webhook_events")
	})
}

// An event that is committed after an endpoint became active is delivered to it, also if a fan-out is under way in that moment.
func TestAnEndpointGetsWhatIsCommittedAfterIt(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		statements := 0
		in := db.courier(t, "ins_a", func(o *Options) {
			o.Observer = func(ctx context.Context, s Statement) (context.Context, func(error)) {
				if s.Pool == "work" && strings.HasPrefix(s.Query, "SELECT") {
					if statements++; statements == 2 { // the first has read something
						db.endpoint(t, "*", nil)
						db.changed(t, 1)
					}
				}
				return ctx, func(error) {}
			}
		})
		in.fanOut(t)
		in.fanOut(t)
		db.mustCount(t, 1, "webhook_deliveries")
	})
}

// A fan-out waits for no transaction that is about to write an event, to expand one or to fan one out, and none of
// them for a fan-out.
func TestFanOutWaitsForNobody(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "SKIP LOCKED")
		in := db.courier(t, "ins_a")
		db.endpoint(t, "*", nil)
		d, first := in.changed(t, 1)
		_, others := in.changed(t, 3)
		db.begun(t, "SELECT * FROM events FOR UPDATE",
			fmt.Sprintf("SELECT * FROM webhook_events WHERE dispatch_id = '%s' AND event_id = '%s' FOR UPDATE", d.ID, first[0]),
			"INSERT INTO webhook_events (dispatch_id, event_id) VALUES ('dsp_', 'evt_')")
		in.fanOut(t)
		in.unlockedDeliveries(t, others)
	})
}

// unlockedDeliveries fails the test unless there are deliveries of these events, and of no others.
func (in *courier) unlockedDeliveries(t testing.TB, events []dispatch.EventID) {
	t.Helper()
	var written []dispatch.EventID
	must(t, in.serve.Raw("SELECT event_id FROM webhook_deliveries").Scan(&written).Error)
	slices.Sort(written)
	testkit.Equal(t, "the events with deliveries", events, written)
}

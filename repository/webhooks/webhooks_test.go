package webhooks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/webhooks"
)

// changed adds a dispatch and changes it, so that it has n events. It returns them in their order.
func changed(db *Bench, t testing.TB, n int) (dispatch.Dispatch, []dispatch.EventID) {
	t.Helper()
	d := db.Add(t, nil)
	for range n - 1 {
		d = db.MustUpdate(t, d.ID, Touch)
	}
	return d, db.EventsOf(t, d.ID)
}

// deliveries is what is stored of the endpoint's deliveries, in the order of the events.
func deliveries(db *Bench, t testing.TB, id webhook.ID) (rows []webhooks.DeliveryRow) {
	t.Helper()
	Must(t, db.Serve.With(t.Context()).Where("webhook_id = ?", id).Order("event_id").Find(&rows).Error)
	return rows
}

// allDue makes every delivery due, also those that are leased.
func allDue(db *Bench, t testing.TB) {
	t.Helper()
	db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1")
}

func succeeded(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 204, Took: time.Millisecond}}
}

func failed(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{
		At: time.Now(), HTTPStatus: 500, Error: "the answer is 500", Took: time.Millisecond, Answer: "no",
	}}
}

// Each active endpoint gets one delivery of each event that it wants, whatever wrote the event, and also if it is pushed later.
func TestDeliveriesOfEvents(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		all := db.AddEndpoint(t, "*", nil)
		some := db.AddEndpoint(t, "dispatch.accepted,dispatch.updated", nil)
		paused := db.AddEndpoint(t, "*", func(w *webhooks.Row) { w.Status = webhook.Paused })
		drivers := db.Fleet(t, 2)
		d := db.Add(t, nil)
		Must(t, db.Decline(t.Context(), d.ID, 1, drivers[1].ID, "FAR"))
		db.MustAccept(t, d.ID, drivers[0].ID) // by the procedure where there is one
		db.MustUpdate(t, d.ID, Withdraw)
		Must(t, ErrorOf(db.Accept(keyed(t), d.ID, drivers[1].ID))) // in a transaction
		d = db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, err := Touch(d, now)
			events[0].PushAt = now.Add(time.Hour)
			return events, err
		})
		events := db.EventsOf(t, d.ID)
		fanOut(in, t)
		db.MustCount(t, 0, "webhook_events")
		rows := deliveries(in.Bench, t, all)
		testkit.Equal(t, "the events", events, Collect(rows, func(r webhooks.DeliveryRow) dispatch.EventID { return r.EventID }))
		testkit.Equal(t, "types", []dispatch.EventType{
			dispatch.EventCreated, dispatch.EventDeclined, dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventReopened,
			dispatch.EventAccepted, dispatch.EventUpdated,
		}, Collect(rows, func(r webhooks.DeliveryRow) dispatch.EventType { return r.Type }))
		testkit.Equal(t, "a delivery", webhooks.DeliveryRow{
			Key: webhooks.Key{DispatchID: d.ID, WebhookID: all, EventID: events[0]}, Type: dispatch.EventCreated, Status: webhook.Pending,
			Body: fmt.Appendf(nil, "%s %s %d", events[0], d.ID, d.Version), CreatedAt: rows[0].CreatedAt, NextAt: rows[0].CreatedAt,
		}, rows[0])
		testkit.Equal(t, "the events that one wants", []dispatch.EventID{events[2], events[5], events[6]},
			Collect(deliveries(in.Bench, t, some), func(r webhooks.DeliveryRow) dispatch.EventID { return r.EventID }))
		db.MustCount(t, 0, "webhook_deliveries WHERE webhook_id = ?", paused)
		// An event whose delivery is written already keeps it.
		db.Exec(t, "UPDATE webhook_deliveries SET status = 'DELIVERED', body = ?", []byte("sent"))
		db.Write(t, []webhooks.EventRow{{d.ID, events[0]}, {d.ID, "evt_removed"}})
		fanOut(in, t)
		db.MustCount(t, len(events)+3, "webhook_deliveries WHERE status = 'DELIVERED' AND body = ?", []byte("sent"))
		db.MustCount(t, 0, "webhook_events")
	})
}

// An event is queued while an endpoint is active, and leaves the queue with its deliveries, or stays in it.
func TestFanOutIsOneTransaction(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		id := db.AddEndpoint(t, "*", nil)
		db.Exec(t, "UPDATE webhooks SET status = 'PAUSED'")
		d, _ := changed(in.Bench, t, 2)
		db.MustAccept(t, d.ID, db.Fleet(t, 1)[0].ID)
		db.MustCount(t, 0, "webhook_events")
		if _, active, err := in.Sends.WriteDeliveries(t.Context(), WebhookBody); active || err != nil {
			t.Errorf("without an active endpoint: %t, %v", active, err)
		}
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE' WHERE id = ?", id)
		changed(in.Bench, t, 2)
		db.Without(t, "webhook_deliveries", func() {
			_, _, err := in.Sends.WriteDeliveries(t.Context(), WebhookBody)
			MustBeError(t, "a fan-out", err, dispatch.ErrUnavailable)
		})
		db.MustCount(t, 2, "webhook_events")
		fanOut(in, t)
		db.MustCount(t, 2, "webhook_deliveries")
		// Many events are written in several transactions.
		n := webhooks.EventsAtOnce + 1
		rows := make([]webhooks.EventRow, n)
		for i := range rows {
			rows[i] = webhooks.EventRow{DispatchID: dispatch.NewID(time.Now()), EventID: "evt_removed"}
		}
		db.Write(t, rows)
		for _, want := range []bool{true, false} {
			more, active, err := in.Sends.WriteDeliveries(t.Context(), WebhookBody)
			if more != want || !active || err != nil {
				t.Errorf("%t, %t, %v", more, active, err)
			}
		}
		db.MustCount(t, 0, "webhook_events")
	})
}

// An event that is written after an endpoint became active is delivered to it, also if a fan-out is under way in that moment.
func TestAnEndpointGetsWhatIsWrittenAfterIt(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		statements := 0
		in := db.Courier(t, "ins_a", func(o *repository.Options) {
			o.Observer = func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				if s.Pool == "work" && strings.HasPrefix(s.Query, "SELECT") {
					if statements++; statements == 2 { // the first has read something
						db.AddEndpoint(t, "*", nil)
						changed(db, t, 1)
					}
				}
				return ctx, func(error) {}
			}
		})
		fanOut(in, t)
		fanOut(in, t)
		db.MustCount(t, 1, "webhook_deliveries")
	})
}

// A fan-out waits for no transaction that is about to write an event, to expand one or to fan one out, and none of
// them for a fan-out.
func TestFanOutWaitsForNobody(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "SKIP LOCKED")
		in := db.Courier(t, "ins_a")
		db.AddEndpoint(t, "*", nil)
		d, first := changed(in.Bench, t, 1)
		_, others := changed(in.Bench, t, 3)
		db.Begun(t, "SELECT * FROM events FOR UPDATE",
			fmt.Sprintf("SELECT * FROM webhook_events WHERE dispatch_id = '%s' AND event_id = '%s' FOR UPDATE", d.ID, first[0]),
			"INSERT INTO webhook_events (dispatch_id, event_id) VALUES ('dsp_', 'evt_')")
		fanOut(in, t)
		in.UnlockedDeliveries(t, others)
	})
}

// fanOut writes the deliveries of all events, and of no replay.
func fanOut(in *Courier, t testing.TB) {
	t.Helper()
	for more := true; more; {
		Must(t, in.Work.Transact(t.Context(), func(tx database.Tx) (err error) {
			more, _, err = in.Sends.FanOut(tx, WebhookBody)
			return err
		}))
	}
}

// unwritten calls do while the events' deliveries are to be written, as if another instance were about to do so.
func unwritten(in *Courier, t testing.TB, events []dispatch.EventID, do func()) {
	t.Helper()
	var rows []webhooks.EventRow
	Must(t, in.Decide.With(t.Context()).Raw("SELECT * FROM webhook_events WHERE event_id IN ?", events).Scan(&rows).Error)
	Must(t, in.Decide.With(t.Context()).Exec("DELETE FROM webhook_events WHERE event_id IN ?", events).Error)
	fanOut(in, t)
	in.Write(t, rows)
	do()
	fanOut(in, t)
}

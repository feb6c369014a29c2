package webhooks_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
	"firsttap/repository/webhooks"
	"firsttap/testkit"
	"firsttap/webhook"
)

// A replay delivers every event since that time that the endpoint wants, whether it got it before or not, in the
// order of each dispatch. It goes on after an interruption, on another instance too.
func TestReplay(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.Courier(t, "ins_a"), db.Courier(t, "ins_b")
		old, before := changed(a.Bench, t, 2)
		var ids []dispatch.ID
		var events []dispatch.EventID
		for len(events) < webhooks.ReplayPart+20 {
			d, more := changed(a.Bench, t, 20)
			ids, events = append(ids, d.ID), append(events, more...)
		}
		to := db.AddEndpoint(t, "*", nil)
		db.Exec(t, "DELETE FROM webhook_events WHERE event_id <> ?", events[0]) // the others happened before the endpoint was there
		fanOut(a, t)
		a.MustComplete(t, succeeded(a.MustLease(t, 1)[0]))
		Must(t, a.ReplayWebhook(t.Context(), to, db.Now(t).Add(-time.Hour)))
		db.Exec(t, "UPDATE webhooks SET replay_from = ?", before[1])
		due, err := a.Sends.Due(t.Context())
		Must(t, err)
		if due.Webhooks.After(time.Now()) || due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
		testkit.Equal(t, "more after the first part", true, a.WritePart(t))
		db.MustCount(t, webhooks.ReplayPart, "webhook_deliveries WHERE status = 'PENDING'")
		db.MustCount(t, 1, "webhooks WHERE replay_from = ?", events[webhooks.ReplayPart-1])
		testkit.Equal(t, "more after the second part", false, b.WritePart(t))
		db.MustCount(t, 1, "webhooks WHERE replay_from IS NULL AND replay_until IS NULL")
		db.MustCount(t, len(events), "webhook_deliveries WHERE status = 'PENDING'")
		db.MustCount(t, 0, "webhook_deliveries WHERE dispatch_id = ?", old.ID)
		var r receiver
		r.deliverAll(t, len(events), a, b)
		for i, id := range ids {
			r.mustHaveGot(t, to, id, events[20*i:20*(i+1)])
		}
	})
}

// A replay is slow while the endpoint has many deliveries to get: it writes one part for each look. A paused
// endpoint's replay waits until the endpoint is active, and none begins before.
func TestReplayWaits(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to, d, now := db.AddEndpoint(t, "*", nil), db.Add(t, nil), db.Now(t)
		db.Exec(t, "DELETE FROM webhook_events")
		events := make([]journal.EventRow, 3*webhooks.ReplayPart)
		for i := range events {
			events[i] = journal.EventRow{ID: dispatch.NewEventID(now.Add(-time.Minute)), DispatchID: d.ID, Type: dispatch.EventUpdated}
		}
		db.Write(t, events)
		Must(t, in.ReplayWebhook(t.Context(), to, now.Add(-time.Hour)))
		waiting := make([]webhooks.DeliveryRow, webhooks.MaxReplayAhead)
		for i := range waiting {
			e := dispatch.Event{ID: dispatch.NewEventID(now), Dispatch: dispatch.NewID(now), Type: dispatch.EventTaken}
			waiting[i] = webhooks.NewDelivery(to, &e, []byte("{}"), now)
		}
		db.Write(t, waiting)
		mustHave := func(more bool, parts int) {
			t.Helper()
			testkit.Equal(t, "more at once", more, in.WritePart(t))
			db.MustCount(t, parts*webhooks.ReplayPart, "webhook_deliveries WHERE type = 'dispatch.updated'")
		}
		db.Exec(t, "UPDATE webhooks SET status = 'PAUSED'")
		mustHave(false, 0)
		MustBeError(t, "a replay of a paused endpoint", in.ReplayWebhook(t.Context(), to, db.Now(t)), webhook.ErrPaused)
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		mustHave(false, 1)
		db.Exec(t, "DELETE FROM webhook_deliveries WHERE type = 'dispatch.taken'")
		mustHave(true, 2)
	})
}

// A replay that is asked for while another goes on goes on with both. While a part is being written, the request
// waits, so it is not lost.
func TestReplayThatIsAskedForAgain(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "SKIP LOCKED")
		_, events := changed(db, t, 3)
		to := db.AddEndpoint(t, "*", nil)
		Must(t, db.ReplayWebhook(t.Context(), to, db.Now(t).Add(-time.Hour)))
		Must(t, db.ReplayWebhook(t.Context(), to, db.Now(t)))
		if w, err := webhooks.FindWebhook(db.Serve.With(t.Context()), to, ""); err != nil || *w.ReplayFrom >= events[0] {
			t.Errorf("the earlier one is lost: %v, %v", *w.ReplayFrom, err)
		}
		unlocked := -1
		in := db.Courier(t, "ins_a", func(o *repository.Options) {
			o.Observer = func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				if strings.HasPrefix(s.Query, "UPDATE webhooks SET replay_from") {
					unlocked = db.Count(t, "(SELECT id FROM webhooks FOR UPDATE SKIP LOCKED) w")
				}
				return ctx, func(error) {}
			}
		})
		in.WritePart(t)
		testkit.Equal(t, "endpoints that are not locked while a part is written", 0, unlocked)
		db.MustCount(t, len(events), "webhook_deliveries")
	})
}

// A new event waits for the earlier ones of its dispatch that a replay has yet to write.
func TestNewEventsWaitForTheReplay(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		d, events := changed(in.Bench, t, 2)
		fanOut(in, t) // before the endpoint was there
		to := db.AddEndpoint(t, "*", nil)
		Must(t, in.ReplayWebhook(t.Context(), to, db.Now(t).Add(-time.Hour)))
		in.MustUpdate(t, d.ID, Touch)
		last := in.EventsOf(t, d.ID)[2]
		_, other := changed(in.Bench, t, 1)
		fanOut(in, t)
		testkit.Equal(t, "what need not wait", other[0], in.MustLease(t, 1)[0].Delivery.Event)
		in.WritePart(t)
		db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		var r receiver
		r.deliverAll(t, 3, in)
		r.mustHaveGot(t, to, d.ID, append(slices.Clone(events), last))
	})
}

// After a deletion nothing is left: what waits, the log, and in the end the endpoint's row.
func TestDeletedWebhookLeavesNothing(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		gone, stays := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "*", nil)
		changed(in.Bench, t, 3)
		fanOut(in, t)
		in.MustComplete(t, Collect(in.MustLease(t, 2), succeeded)...)
		Must(t, in.DeleteWebhook(t.Context(), gone))
		in.MustLease(t, 1) // of the other one
		db.MustPrune(t, 0) // a transaction that was under way at the deletion may still write one
		db.MustCount(t, 1, "webhooks WHERE id = ?", gone)
		db.Exec(t, "UPDATE webhooks SET updated_at = ? WHERE id = ?", database.Micros(db.Now(t).Add(-retention.KeepDeletedWebhook-time.Second)), gone)
		db.MustPrune(t, 3+1)
		db.MustCount(t, 0, "webhooks WHERE id = ?", gone)
		db.MustCount(t, 0, "webhook_deliveries WHERE webhook_id = ?", gone)
		db.MustCount(t, 3, "webhook_deliveries WHERE webhook_id = ?", stays)
	})
}

// Deliveries stay for thirty days, also those that are pending as their endpoint is paused. An older one is not sent
// any more, and holds back none of its dispatch.
func TestRetentionOfDeliveries(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		to, now := db.AddEndpoint(t, "*", func(w *webhooks.Row) { w.Status = webhook.Paused }), db.Now(t)
		add := func(age time.Duration, status webhook.DeliveryStatus, edit func(*webhooks.DeliveryRow)) {
			at := now.Add(-age)
			row := webhooks.NewDelivery(to, &dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at)}, []byte("{}"), at)
			if row.Status = status; edit != nil {
				edit(&row)
			}
			Must(t, db.Decide.With(t.Context()).Create(&row).Error)
		}
		for _, status := range []webhook.DeliveryStatus{webhook.Pending, webhook.Delivered, webhook.Failed} {
			add(webhooks.KeepDeliveries+time.Second, status, func(r *webhooks.DeliveryRow) { r.DispatchID = "dsp_1" })
			add(webhooks.KeepDeliveries-10*time.Minute, status, func(r *webhooks.DeliveryRow) { r.DispatchID = "dsp_1" })
		}
		add(90*Day, webhook.Delivered, func(r *webhooks.DeliveryRow) { r.CreatedAt = database.Micros(now) }) // replayed today
		add(90*Day, webhook.Pending, func(r *webhooks.DeliveryRow) { r.CreatedAt = database.Micros(now) })
		add(webhooks.KeepDeliveries+time.Second, webhook.Pending, nil)
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		in := db.Courier(t, "ins_a")
		for range 2 {
			leases, _, err := in.Sends.LeaseDeliveries(t.Context(), 10, nil, 10)
			Must(t, err)
			in.MustComplete(t, Collect(leases, succeeded)...)
			db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1")
		}
		db.MustCount(t, 2, "webhook_deliveries WHERE attempt = 1")
		db.Exec(t, "UPDATE webhook_deliveries SET status = 'PENDING' WHERE status = 'FAILED'") // as if the endpoint had been paused
		db.MustPrune(t, 4)
		db.MustCount(t, 5, "webhook_deliveries")
	})
}

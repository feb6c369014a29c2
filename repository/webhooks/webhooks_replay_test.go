package webhooks_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/webhooks"
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
		db.Write(t, []webhooks.EventRow{{ids[0], events[0]}}) // the others happened before the endpoint was there
		fanOut(a, t)
		a.MustComplete(t, succeeded(a.MustLease(t, 1)[0]))
		Must(t, a.ReplayWebhook(t.Context(), to, db.Now(t).Add(-time.Hour)))
		db.Exec(t, "UPDATE webhooks SET replay_from = ?", before[1])
		due, err := a.Sends.Due(t.Context())
		Must(t, err)
		if due.Webhooks.After(time.Now()) || due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
		a.WritePart(t)
		db.MustCount(t, webhooks.ReplayPart, "webhook_deliveries WHERE status = 'PENDING'")
		db.MustCount(t, 1, "webhooks WHERE replay_from = ?", events[webhooks.ReplayPart-1])
		b.WritePart(t)
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

// A replay writes one part at each look. A paused endpoint's replay waits until the endpoint is active, and none begins
// before.
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
		mustHave := func(parts int) {
			t.Helper()
			testkit.Equal(t, "more at once", false, in.WritePart(t))
			db.MustCount(t, parts*webhooks.ReplayPart, "webhook_deliveries WHERE type = 'dispatch.updated'")
		}
		db.Exec(t, "UPDATE webhooks SET status = 'PAUSED'")
		mustHave(0)
		MustBeError(t, "a replay of a paused endpoint", in.ReplayWebhook(t.Context(), to, db.Now(t)), webhook.ErrPaused)
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		mustHave(1)
		mustHave(2)
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

// After a deletion nothing is sent, not even what a transaction that was under way writes, and its secret is gone.
func TestDeletedWebhookGetsNothing(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		gone := db.AddEndpoint(t, "*", nil)
		changed(in.Bench, t, 1)
		fanOut(in, t)
		l := in.MustLease(t, 1)[0]
		changed(in.Bench, t, 1)
		fanOut(in, t)
		Must(t, in.DeleteWebhook(t.Context(), gone))
		db.MustCount(t, 0, "webhooks")
		in.MustLease(t, 0)
		in.MustComplete(t, failed(l))
		changed(in.Bench, t, 1)
		fanOut(in, t)
		db.MustCount(t, 2, "webhook_deliveries")
		due, err := in.Sends.Due(t.Context())
		Must(t, err)
		if !due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
	})
}

// Deliveries stay for thirty days, also those that are pending as their endpoint is paused. Then they hold back none of
// their dispatches.
func TestRetentionOfDeliveries(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in, now := db.Courier(t, "ins_a"), db.Now(t)
		to := db.AddEndpoint(t, "*", func(w *webhooks.Row) { w.Status = webhook.Paused })
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
		db.MustPrune(t, 4)
		db.MustCount(t, 5, "webhook_deliveries")
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		in.MustLease(t, 2)
	})
}

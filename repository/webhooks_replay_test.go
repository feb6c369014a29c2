package repository

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// A replay delivers every event since that time that the endpoint wants, whether it got it before or not, in the
// order of each dispatch. It goes on after an interruption, on another instance too.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		old, before := a.changed(t, 2)
		var ids []dispatch.ID
		var events []dispatch.EventID
		for len(events) < replayPart+20 {
			d, more := a.changed(t, 20)
			ids, events = append(ids, d.ID), append(events, more...)
		}
		to := db.endpoint(t, "*", nil)
		db.exec(t, "DELETE FROM webhook_events WHERE event_id <> ?", events[0]) // the others happened before the endpoint was there
		a.fanOut(t)
		a.mustComplete(t, succeeded(a.mustLease(t, 1)[0]))
		must(t, a.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		db.exec(t, "UPDATE webhooks SET replay_from = ?", before[1])
		due, err := a.sends.Due(t.Context())
		must(t, err)
		if due.Webhooks.After(time.Now()) || due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
		testkit.Equal(t, "more after the first part", true, a.writePart(t))
		db.mustCount(t, replayPart, "webhook_deliveries WHERE status = 'PENDING'")
		db.mustCount(t, 1, "webhooks WHERE replay_from = ?", events[replayPart-1])
		testkit.Equal(t, "more after the second part", false, b.writePart(t))
		db.mustCount(t, 1, "webhooks WHERE replay_from IS NULL AND replay_until IS NULL")
		db.mustCount(t, len(events), "webhook_deliveries WHERE status = 'PENDING'")
		db.mustCount(t, 0, "webhook_deliveries WHERE dispatch_id = ?", old.ID)
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
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to, d, now := db.endpoint(t, "*", nil), db.add(t, nil), db.now(t)
		db.exec(t, "DELETE FROM webhook_events")
		events := make([]eventRow, 3*replayPart)
		for i := range events {
			events[i] = eventRow{ID: dispatch.NewEventID(now.Add(-time.Minute)), DispatchID: d.ID, Type: dispatch.EventUpdated}
		}
		db.write(t, events)
		must(t, in.ReplayWebhook(t.Context(), to, now.Add(-time.Hour)))
		waiting := make([]deliveryRow, maxReplayAhead)
		for i := range waiting {
			e := dispatch.Event{ID: dispatch.NewEventID(now), Dispatch: dispatch.NewID(now), Type: dispatch.EventTaken}
			waiting[i] = newDelivery(to, &e, []byte("{}"), now)
		}
		db.write(t, waiting)
		mustHave := func(more bool, parts int) {
			t.Helper()
			testkit.Equal(t, "more at once", more, in.writePart(t))
			db.mustCount(t, parts*replayPart, "webhook_deliveries WHERE type = 'dispatch.updated'")
		}
		db.exec(t, "UPDATE webhooks SET status = 'PAUSED'")
		mustHave(false, 0)
		mustBeError(t, "a replay of a paused endpoint", in.ReplayWebhook(t.Context(), to, db.now(t)), webhook.ErrPaused)
		db.exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		mustHave(false, 1)
		db.exec(t, "DELETE FROM webhook_deliveries WHERE type = 'dispatch.taken'")
		mustHave(true, 2)
	})
}

// A replay that is asked for while another goes on goes on with both. While a part is being written, the request
// waits, so it is not lost.
func TestReplayThatIsAskedForAgain(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "SKIP LOCKED")
		_, events := db.changed(t, 3)
		to := db.endpoint(t, "*", nil)
		must(t, db.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		must(t, db.ReplayWebhook(t.Context(), to, db.now(t)))
		if w, err := findWebhook(db.serve, to, ""); err != nil || *w.ReplayFrom >= events[0] {
			t.Errorf("the earlier one is lost: %v, %v", *w.ReplayFrom, err)
		}
		unlocked := -1
		in := db.courier(t, "ins_a", func(o *Options) {
			o.Observer = func(ctx context.Context, s Statement) (context.Context, func(error)) {
				if strings.HasPrefix(s.Query, "UPDATE webhooks SET replay_from") {
					unlocked = db.count(t, "(SELECT id FROM webhooks FOR UPDATE SKIP LOCKED) w")
				}
				return ctx, func(error) {}
			}
		})
		in.writePart(t)
		testkit.Equal(t, "endpoints that are not locked while a part is written", 0, unlocked)
		db.mustCount(t, len(events), "webhook_deliveries")
	})
}

// A new event waits for the earlier ones of its dispatch that a replay has yet to write.
func TestNewEventsWaitForTheReplay(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		d, events := in.changed(t, 2)
		in.fanOut(t) // before the endpoint was there
		to := db.endpoint(t, "*", nil)
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		in.mustUpdate(t, d.ID, touch)
		last := in.eventsOf(t, d.ID)[2]
		_, other := in.changed(t, 1)
		in.fanOut(t)
		testkit.Equal(t, "what need not wait", other[0], in.mustLease(t, 1)[0].Delivery.Event)
		in.writePart(t)
		db.exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		var r receiver
		r.deliverAll(t, 3, in)
		r.mustHaveGot(t, to, d.ID, append(slices.Clone(events), last))
	})
}

// After a deletion nothing is left: what waits, the log, and in the end the endpoint's row.
func TestDeletedWebhookLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		gone, stays := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		in.changed(t, 3)
		in.fanOut(t)
		in.mustComplete(t, collect(in.mustLease(t, 2), succeeded)...)
		must(t, in.DeleteWebhook(t.Context(), gone))
		in.mustLease(t, 1) // of the other one
		db.mustPrune(t, 0) // a transaction that was under way at the deletion may still write one
		db.mustCount(t, 1, "webhooks WHERE id = ?", gone)
		db.exec(t, "UPDATE webhooks SET updated_at = ? WHERE id = ?", micros(db.now(t).Add(-keepDeletedWebhook-time.Second)), gone)
		db.mustPrune(t, 3+1)
		db.mustCount(t, 0, "webhooks WHERE id = ?", gone)
		db.mustCount(t, 0, "webhook_deliveries WHERE webhook_id = ?", gone)
		db.mustCount(t, 3, "webhook_deliveries WHERE webhook_id = ?", stays)
	})
}

// Deliveries stay for thirty days, also those that are pending as their endpoint is paused. An older one is not sent
// any more, and holds back none of its dispatch.
func TestRetentionOfDeliveries(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		to, now := db.endpoint(t, "*", func(w *webhookRow) { w.Status = webhook.Paused }), db.now(t)
		add := func(age time.Duration, status webhook.DeliveryStatus, edit func(*deliveryRow)) {
			at := now.Add(-age)
			row := newDelivery(to, &dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at)}, []byte("{}"), at)
			if row.Status = status; edit != nil {
				edit(&row)
			}
			must(t, db.decide.Create(&row).Error)
		}
		for _, status := range []webhook.DeliveryStatus{webhook.Pending, webhook.Delivered, webhook.Failed} {
			add(keepDeliveries+time.Second, status, func(r *deliveryRow) { r.DispatchID = "dsp_1" })
			add(keepDeliveries-10*time.Minute, status, func(r *deliveryRow) { r.DispatchID = "dsp_1" })
		}
		add(90*day, webhook.Delivered, func(r *deliveryRow) { r.CreatedAt = micros(now) }) // replayed today
		add(90*day, webhook.Pending, func(r *deliveryRow) { r.CreatedAt = micros(now) })
		add(keepDeliveries+time.Second, webhook.Pending, nil)
		db.exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		in := db.courier(t, "ins_a")
		for range 2 {
			leases, _, err := in.sends.LeaseDeliveries(t.Context(), 10, nil, 10)
			must(t, err)
			in.mustComplete(t, collect(leases, succeeded)...)
			db.exec(t, "UPDATE webhook_deliveries SET next_at = 1")
		}
		db.mustCount(t, 2, "webhook_deliveries WHERE attempt = 1")
		db.exec(t, "UPDATE webhook_deliveries SET status = 'PENDING' WHERE status = 'FAILED'") // as if the endpoint had been paused
		db.mustPrune(t, 4)
		db.mustCount(t, 5, "webhook_deliveries")
	})
}

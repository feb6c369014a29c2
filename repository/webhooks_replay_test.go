package repository

import (
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// A replay delivers every event since that time that the endpoint wants, whether it got it before or not, in the order of each dispatch.
// It goes on after an interruption, on another instance too, and two instances that write the same part write it once.
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
		a.expanded(t, events[:5]...) // the others happened before the endpoint was there
		db.exec(t, "UPDATE events SET next_at = NULL, claim = ''")
		a.mustComplete(t, succeeded(a.mustLease(t, 1)[0]))
		since := events[0]
		must(t, a.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		db.exec(t, "UPDATE webhooks SET replay_from = ?", before[1])
		due, err := a.sends.Due(t.Context())
		must(t, err)
		if due.Webhooks.After(time.Now()) || due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
		var begun webhookRow
		must(t, db.general.Raw("SELECT * FROM webhooks WHERE id = ?", to).Scan(&begun).Error)
		mustAll(t, 2, func(i int) error { return errorOf([]*courier{a, b}[i].sends.ReplayNext(t.Context())) })
		mustBeError(t, "the first part, once more", b.sends.replay(t.Context(), &begun), errReplayed)
		var from *dispatch.EventID
		must(t, db.general.Raw("SELECT replay_from FROM webhooks WHERE id = ?", to).Row().Scan(&from))
		if from == nil { // one of the two began after the other had written the first part
			db.mustCount(t, len(events), "webhook_deliveries WHERE status = 'PENDING' OR event_id = ?", since)
		} else {
			db.mustCount(t, replayPart, "webhook_deliveries WHERE status = 'PENDING' OR event_id = ?", since)
			testkit.Equal(t, "how far it is", events[replayPart-1], *from)
			more, err := b.sends.ReplayNext(t.Context())
			if err != nil || !more {
				t.Errorf("the second part: %t, %v", more, err)
			}
		}
		if more, err := b.sends.ReplayNext(t.Context()); more || err != nil {
			t.Errorf("after the end: %t, %v", more, err)
		}
		db.mustCount(t, len(events), "webhook_deliveries WHERE status = 'PENDING'")
		db.mustCount(t, 0, "webhook_deliveries WHERE dispatch_id = ?", old.ID)
		var r receiver
		r.deliverAll(t, len(events), a, b)
		for i, id := range ids {
			r.mustHaveGot(t, to, id, events[20*i:20*(i+1)])
		}
	})
}

// A replay is slow while the endpoint has many lanes to send: it writes one part for each look. A paused endpoint's replay waits until the
// endpoint is active, and none begins before.
func TestReplayWaits(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to := db.endpoint(t, "*", nil)
		in.changed(t, 1)
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		lanes := make([]laneRow, maxReplayLanes)
		for i := range lanes {
			lanes[i] = laneRow{WebhookID: to, DispatchID: dispatch.NewID(time.Now()), NextAt: int64(i)}
		}
		db.write(t, lanes)
		next := func(want bool) {
			t.Helper()
			if more, err := in.sends.ReplayNext(t.Context()); more != want || err != nil {
				t.Errorf("%t, %v; want %t", more, err, want)
			}
		}
		db.exec(t, "UPDATE webhooks SET status = 'PAUSED'")
		next(false)
		mustBeError(t, "a replay of a paused endpoint", in.ReplayWebhook(t.Context(), to, db.now(t)), webhook.ErrPaused)
		db.mustCount(t, 0, "webhook_deliveries")
		db.exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		next(false)
		db.mustCount(t, 1, "webhook_deliveries")
		db.mustCount(t, 0, "webhooks WHERE replay_until IS NOT NULL")
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		db.exec(t, "DELETE FROM webhook_lanes WHERE next_at < 2")
		next(true)
		next(false)
	})
}

// A replay that is asked for while a part of another is being written is not lost: the part is written again.
func TestReplayThatIsAskedForAgain(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		_, events := in.changed(t, 3)
		to := db.endpoint(t, "*", nil)
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t)))
		before, err := findWebhook(in.general, to, "")
		must(t, err)
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		mustBeError(t, "a part of the first replay", in.sends.replay(t.Context(), &before), errReplayed)
		must(t, errorOf(in.sends.ReplayNext(t.Context())))
		db.mustCount(t, len(events), "webhook_deliveries")
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t)))
		if w, err := findWebhook(in.general, to, ""); err != nil || *w.ReplayFrom >= events[0] {
			t.Errorf("the earlier one is lost: %v, %v", *w.ReplayFrom, err)
		}
	})
}

// A new event waits for the earlier ones of its dispatch that a replay has yet to write.
func TestNewEventsWaitForTheReplay(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		d, events := in.changed(t, 2)
		db.exec(t, "UPDATE events SET next_at = NULL, claim = ''")
		to := db.endpoint(t, "*", nil)
		must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
		in.mustUpdate(t, d.ID, touch)
		last := in.eventsOf(t, d.ID)[2]
		in.expanded(t, last)
		_, other := in.changed(t, 1)
		in.expanded(t, other...)
		testkit.Equal(t, "what need not wait", other[0], in.mustLease(t, 1)[0].Delivery.Event)
		must(t, errorOf(in.sends.ReplayNext(t.Context())))
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1 WHERE claim = ''")
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
		_, events := in.changed(t, 3)
		in.expanded(t, events...)
		in.mustComplete(t, collect(in.mustLease(t, 2), succeeded)...)
		must(t, in.DeleteWebhook(t.Context(), gone))
		in.mustLease(t, 1) // of the other one
		db.mustPrune(t, 0) // a transaction that was under way at the deletion may still write one
		db.mustCount(t, 1, "webhooks WHERE id = ?", gone)
		db.exec(t, "UPDATE webhooks SET updated_at = ? WHERE id = ?", micros(db.now(t).Add(-keepDeletedWebhook-time.Second)), gone)
		db.mustPrune(t, 3+1+1)
		for _, table := range []string{"webhooks WHERE id = ?", "webhook_deliveries WHERE webhook_id = ?", "webhook_lanes WHERE webhook_id = ?"} {
			db.mustCount(t, 0, table, gone)
		}
		db.mustCount(t, 3, "webhook_deliveries WHERE webhook_id = ?", stays)
	})
}

// Deliveries stay for thirty days, also those that are pending as their endpoint is paused, and an older one is not sent any more. The lanes of
// those that are gone go too.
func TestRetentionOfDeliveries(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		to, now := db.endpoint(t, "*", func(w *webhookRow) { w.Status = webhook.Paused }), db.now(t)
		add := func(age time.Duration, status webhook.DeliveryStatus, edit func(*deliveryRow)) {
			at := now.Add(-age)
			row := newDelivery(to, &dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at)}, []byte("{}"), at)
			if row.Status = status; edit != nil {
				edit(&row)
			}
			must(t, db.writes.Create(&row).Error)
			if row.Status == webhook.Pending {
				db.write(t, []laneRow{{WebhookID: to, DispatchID: row.DispatchID, NextAt: micros(at)}})
			}
		}
		for _, status := range []webhook.DeliveryStatus{webhook.Pending, webhook.Delivered, webhook.Failed} {
			add(keepDeliveries+time.Second, status, nil)
			add(keepDeliveries-10*time.Minute, status, nil)
		}
		add(90*day, webhook.Delivered, func(r *deliveryRow) { r.CreatedAt = micros(now) }) // replayed today
		add(90*day, webhook.Pending, func(r *deliveryRow) { r.CreatedAt = micros(now) })
		db.exec(t, "UPDATE webhooks SET status = 'ACTIVE'")
		leased, err := db.courier(t, "ins_a").sends.LeaseDeliveries(t.Context(), 10, nil, 10)
		if must(t, err); len(leased) != 2 {
			t.Errorf("%d deliveries are sent, want 2", len(leased))
		}
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1, claim = ''") // as if the endpoint had been paused all the time
		add(keepDeliveries+time.Second, webhook.Pending, nil)
		db.mustPrune(t, 4+1) // and an empty lane
		db.mustCount(t, 2, "webhook_deliveries WHERE status = 'PENDING'")
		db.mustCount(t, 2, "webhook_lanes")
		db.mustCount(t, 3, "webhook_deliveries WHERE status <> 'PENDING'")
	})
}

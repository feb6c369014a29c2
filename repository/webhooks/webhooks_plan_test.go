package webhooks_test

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/webhooks"
)

// delivered fills the log of the endpoint with n deliveries that have ended and n that wait for an attempt later,
// each of a dispatch of its own.
func delivered(db *Bench, t testing.TB, to webhook.ID, n int) {
	t.Helper()
	now := db.Now(t)
	const first = 500
	rows := make([]webhooks.DeliveryRow, 2*first)
	for i := range rows {
		at := now.Add(-time.Duration(i) * time.Minute)
		e := dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at), Type: dispatch.EventTaken}
		rows[i] = webhooks.NewDelivery(to, &e, []byte("{}"), at)
		if rows[i].NextAt = database.Micros(now.Add(time.Hour)) + int64(i); i >= first {
			rows[i].Status = []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2]
		}
	}
	db.Write(t, rows)
	for have, letter := first, 'a'; have < n; have, letter = 2*have, letter+1 {
		db.Exec(t, `INSERT INTO webhook_deliveries (dispatch_id, webhook_id, event_id, type, status, body, attempts, attempt, created_at, next_at)
			SELECT CONCAT(dispatch_id, ?), webhook_id, event_id, type, status, body, attempts, attempt, created_at, next_at
			FROM webhook_deliveries WHERE webhook_id = ?`, string(letter), to)
	}
}

// Fan-outs, leases, results, the log and the look read a few rows, found by an index, however many deliveries
// have ended, or wait for an endpoint that is down.
func TestPlansOfWebhooks(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to, other := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "*", nil)
		n := testkit.Scale(1000, 100_000)
		delivered(db, t, to, n)
		delivered(db, t, other, 500)
		db.Elsewhere(t, 1000)
		fanOut(in, t)
		_, events := changed(in.Bench, t, 4)
		db.Exec(t, "UPDATE events SET next_at = NULL") // as a relay does
		server := !db.SQLite()
		if server {
			db.Exec(t, "ANALYZE TABLE webhooks, webhook_deliveries, events, dispatches")
		}
		page := dispatch.Page{Limit: 10}
		in.MustReadFew(t, map[string]Reading{"a courier": {Do: func() error {
			fanOut(in, t)
			in.MustComplete(t, Collect(in.MustLease(t, 2), failed)...)
			Must(t, in.ResendWebhook(t.Context(), to, webhook.DeliveryOf(events[0])))
			in.MustComplete(t, Collect(in.MustLease(t, 1), succeeded)...)
			Must(t, ErrorOf(in.Poll.Waiting(t.Context(), 0, nil)))
			for _, status := range []webhook.DeliveryStatus{"", webhook.Pending, webhook.Failed} {
				items, next, err := in.WebhookDeliveries(t.Context(), to, status, page)
				Must(t, err)
				if page.Cursor = next; len(items) != page.Limit {
					t.Errorf("%d items", len(items))
				}
			}
			Must(t, in.ReplayWebhook(t.Context(), to, db.Now(t).Add(-time.Hour)))
			changed(in.Bench, t, 1)
			fanOut(in, t)
			in.MustLease(t, 2)
			in.WritePart(t)
			queue := make([]webhooks.EventRow, 1000)
			for i := range queue {
				queue[i] = webhooks.EventRow{DispatchID: dispatch.NewID(time.Now()), EventID: dispatch.NewEventID(time.Now())}
			}
			db.Write(t, queue)
			if server {
				db.Exec(t, "ANALYZE TABLE webhook_events")
			}
			return nil
		}, Each: webhooks.EventsAtOnce + 50}})
	})
}

package repository

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// delivered fills the log of the endpoint with n deliveries that have ended and n that wait for an attempt later,
// each of a dispatch of its own.
func (db *database) delivered(t testing.TB, to webhook.ID, n int) {
	t.Helper()
	now := db.now(t)
	const first = 500
	rows := make([]deliveryRow, 2*first)
	for i := range rows {
		at := now.Add(-time.Duration(i) * time.Minute)
		e := dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at), Type: dispatch.EventTaken}
		rows[i] = newDelivery(to, &e, []byte("{}"), at)
		if rows[i].NextAt = micros(now.Add(time.Hour)) + int64(i); i >= first {
			rows[i].Status = []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2]
		}
	}
	db.write(t, rows)
	for have, letter := first, 'a'; have < n; have, letter = 2*have, letter+1 {
		db.exec(t, `INSERT INTO webhook_deliveries (dispatch_id, webhook_id, event_id, type, status, body, attempts, attempt, created_at, next_at)
			SELECT CONCAT(dispatch_id, ?), webhook_id, event_id, type, status, body, attempts, attempt, created_at, next_at
			FROM webhook_deliveries WHERE webhook_id = ?`, string(letter), to)
	}
}

// Fan-outs, leases, results, the log and the look read a few rows, found by an index, however many deliveries
// have ended, or wait for an endpoint that is down.
func TestPlansOfWebhooks(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to, other := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		n := testkit.Scale(1000, 100_000)
		db.delivered(t, to, n)
		db.delivered(t, other, 500)
		db.elsewhere(t, 1000)
		in.fanOut(t)
		_, events := in.changed(t, 4)
		db.exec(t, "UPDATE events SET next_at = NULL") // as a relay does
		server := !db.dialect.text.sqlite
		if server {
			db.exec(t, "ANALYZE TABLE webhooks, webhook_deliveries, events, dispatches")
		}
		page := dispatch.Page{Limit: 10}
		all := statements(t, []*gorm.DB{in.work, in.serve, in.watch}, func() {
			in.fanOut(t)
			in.mustComplete(t, collect(in.mustLease(t, 2), failed)...)
			must(t, in.ResendWebhook(t.Context(), to, webhook.DeliveryOf(events[0])))
			in.mustComplete(t, collect(in.mustLease(t, 1), succeeded)...)
			must(t, errorOf(in.look(t.Context(), 0, nil)))
			for _, status := range []webhook.DeliveryStatus{"", webhook.Pending, webhook.Failed} {
				items, next, err := in.WebhookDeliveries(t.Context(), to, status, page)
				must(t, err)
				if page.Cursor = next; len(items) != page.Limit {
					t.Errorf("%d items", len(items))
				}
			}
			must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
			in.changed(t, 1)
			in.fanOut(t)
			in.mustLease(t, 2)
			in.writePart(t)
		})
		queue := make([]webhookEventRow, 1000)
		for i := range queue {
			queue[i] = webhookEventRow{dispatch.NewID(time.Now()), dispatch.NewEventID(time.Now())}
		}
		db.write(t, queue)
		if server {
			db.exec(t, "ANALYZE TABLE webhook_events")
		}
		looked := map[string]int{}
		for _, s := range all {
			// A replay counts the pending deliveries, up to the number from which it waits.
			reads := readsRows.MatchString(s) || strings.HasPrefix(s, "DELETE")
			if !reads || !strings.Contains(s, "webhook_") || strings.HasPrefix(s, "SELECT COUNT(*)") {
				continue
			}
			for _, table := range []string{"webhook_events", "webhook_deliveries"} {
				looked[table] += strings.Count(s, table)
			}
			if !server {
				for _, step := range db.plan(t, s) {
					for _, large := range []string{"webhook_deliveries", "events", "dispatches", "d", "p", "q", "e"} {
						if step == "SCAN "+large || strings.HasPrefix(step, "SCAN "+large+" ") {
							t.Errorf("%.300s: %s", s, step)
						}
					}
				}
				continue
			}
			for _, p := range db.explain(t, s) {
				large := slices.Contains([]string{"webhook_deliveries", "events", "dispatches", "d", "p", "q", "e"}, p["table"])
				if large && (p["type"] == "ALL" || p["type"] == "index" || strings.Contains(p["extra"], "filesort") && !strings.Contains(s, "IN (")) {
					t.Errorf("%.400s\n%v", s, p)
				}
			}
			if strings.HasPrefix(s, "SELECT") {
				if n := db.rowsRead(t, s); n > eventsAtOnce+50 {
					t.Errorf("%d rows are read for %.400s", n, s)
				}
			}
		}
		if looked["webhook_events"] < 5 || looked["webhook_deliveries"] < 10 {
			t.Errorf("too few statements were looked at: %v", looked)
		}
	})
}

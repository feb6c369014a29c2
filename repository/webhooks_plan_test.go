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

// delivered fills the log of the endpoint with n deliveries that have ended and n that wait, each of a lane of its own, due later.
func (db *database) delivered(t testing.TB, to webhook.ID, n int) {
	t.Helper()
	now := db.now(t)
	rows, lanes := make([]deliveryRow, 2*n), make([]laneRow, n)
	for i := range rows {
		at := now.Add(-time.Duration(i) * time.Minute)
		rows[i] = newDelivery(to, &dispatch.Event{ID: dispatch.NewEventID(at), Dispatch: dispatch.NewID(at), Type: dispatch.EventTaken}, []byte("{}"), at)
		if i < n {
			lanes[i] = laneRow{WebhookID: to, DispatchID: rows[i].DispatchID, NextAt: micros(now.Add(time.Hour)) + int64(i)}
		} else {
			rows[i].Status = []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2]
		}
	}
	db.write(t, rows)
	db.write(t, lanes)
}

// Leases, results, the log and the look read a few rows, found by an index, however many deliveries there are.
func TestPlansOfWebhooks(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to, other := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		n := testkit.Scale(1000, 5000)
		db.delivered(t, to, n)
		db.delivered(t, other, n)
		db.elsewhere(t, n)
		_, events := in.changed(t, 4)
		server := db.dialect.skipLocked != ""
		if server {
			db.exec(t, "ANALYZE TABLE webhooks, webhook_lanes, webhook_deliveries, events, dispatches")
		}
		in.expanded(t, events[0], events[2])
		page := dispatch.Page{Limit: 10}
		all := statements(t, []*gorm.DB{in.webhooks, in.general, in.lookPool, in.database.relay}, func() {
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
			must(t, in.relay.CompleteEvents(t.Context(), events))
			must(t, in.ReplayWebhook(t.Context(), to, db.now(t).Add(-time.Hour)))
			must(t, errorOf(in.sends.ReplayNext(t.Context())))
		})
		looked := map[string]int{}
		for _, s := range all {
			// A replay counts the lanes, up to the number from which it waits.
			if !readsRows.MatchString(s) && !strings.HasPrefix(s, "DELETE") || !strings.Contains(s, "webhook_") || strings.HasPrefix(s, "SELECT COUNT(*)") {
				continue
			}
			for _, table := range []string{"webhook_lanes", "webhook_deliveries"} {
				looked[table] += strings.Count(s, table)
			}
			if !server {
				for _, step := range db.plan(t, s) {
					if strings.HasPrefix(step, "SCAN webhook_") || strings.HasPrefix(step, "SCAN d") || strings.HasPrefix(step, "SCAN l") || strings.HasPrefix(step, "SCAN e") {
						t.Errorf("%.300s: %s", s, step)
					}
				}
				continue
			}
			for _, p := range db.explain(t, s) {
				large := slices.Contains([]string{"webhook_lanes", "webhook_deliveries", "events", "dispatches", "d", "l", "p", "e"}, p["table"])
				if large && (p["type"] == "ALL" || p["type"] == "index" || strings.Contains(p["extra"], "filesort") && !strings.Contains(s, "IN (")) {
					t.Errorf("%.400s\n%v", s, p)
				}
			}
			if strings.HasPrefix(s, "SELECT") {
				if n := db.rowsRead(t, s); n > 150 {
					t.Errorf("%d rows are read for %.400s", n, s)
				}
			}
		}
		if looked["webhook_lanes"] < 10 || looked["webhook_deliveries"] < 10 {
			t.Errorf("too few statements were looked at: %v", looked)
		}
	})
}

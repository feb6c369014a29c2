package repositorytest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
	"firsttap/repository/retention"
	"firsttap/repository/runs"
	"firsttap/repository/search"
	"firsttap/repository/webhooks"
)

// Keeping is the database with another retention.
func (db *Bench) Keeping(t testing.TB, kept retention.Periods) *Bench {
	t.Helper()
	return db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: db.Patience, Retention: kept}))
}

// Fill writes n done notifications that are due to be deleted, and five that are not.
func (db *Bench) Fill(t *testing.T, n int) {
	t.Helper()
	past, future := database.Micros(time.Now().Add(-time.Minute)), database.Micros(time.Now().Add(time.Hour))
	for i := range n {
		db.WriteNotification(t, "dsp_1", func(r *pushes.NotificationRow) { r.State, r.DueAt = 1+i%3, past })
	}
	for state := range 4 {
		db.WriteNotification(t, "dsp_1", func(r *pushes.NotificationRow) { r.State, r.DueAt = state, future })
	}
	db.WriteNotification(t, "dsp_1", func(r *pushes.NotificationRow) { r.State, r.DueAt = pushes.StatePending, past })
}

// Aged writes into each table rows of a time, of which those are found that what names.
func (db *Bench) Aged(t *testing.T, n int, what string, age func(kept time.Duration) time.Time) {
	t.Helper()
	create := func(row any) {
		Must(t, db.Decide.With(t.Context()).Create(row).Error)
	}
	for i, v := range db.Fleet(t, n) {
		name := fmt.Sprint(what, " ", i)
		phone := db.MustPut(t, SomeDevice(v.ID, name, name))
		db.Exec(t, "UPDATE devices SET quarantined_at = ? WHERE id = ?", database.Micros(age(7*Day)), phone.ID)
		slot := age(7*Day).UnixMicro() + int64(i)
		for _, status := range []cronjob.Status{cronjob.Succeeded, cronjob.Failed, cronjob.Interrupted} {
			create(&runs.RunRow{Job: fmt.Sprint(status, " ", what), Slot: slot, Status: status})
		}
		db.Exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, ?, 1, 1)", database.Micros(age(30*Day)), name)
		settled := age(pushes.KeepDone)
		create(&journal.EventRow{ID: dispatch.NewEventID(settled), At: database.Micros(settled)}) // as resolve writes it
		create(&pushes.WalkRow{EventID: dispatch.NewEventID(age(pushes.KeepSent))})
		tapped := age(90 * Day)
		create(&offers.TapRow{DispatchID: dispatch.NewID(tapped), LastAt: database.Micros(tapped)})
		db.Exec(t, "INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, 1, ?)", dispatch.NewID(age(90*Day)), v.ID)
		create(&journal.IdempotencyRow{Caller: "key_1", Name: name, Seed: idempotency.Seed(name), ExpiresAt: database.Micros(age(0))})
	}
}

// MustPrune fails the test unless Prune deletes so many rows.
func (db *Bench) MustPrune(t *testing.T, want int) {
	t.Helper()
	if n, err := db.Prune(t.Context()); n != want || err != nil {
		t.Errorf("pruned %d rows, %v; want %d", n, err, want)
	}
}

// HistoryTables are the tables with rows about a dispatch.
var HistoryTables = []string{"claims", "dispatch_words", "events", "notifications", "offers", "taps", "webhook_deliveries"}

// Past adds a dispatch of that status whose last change is at that time, with its words, a claim, and n rows about it in each other table.
func (db *Bench) Past(t testing.TB, status dispatch.Status, at time.Time, v dispatch.DriverID, n int) dispatch.ID {
	t.Helper()
	now := db.Now(t)
	id := dispatch.NewID(now)
	row := dispatches.RowOf(dispatch.Dispatch{ID: id, Terms: SomeTerms(now), Round: 1, Version: 1, CreatedAt: at, UpdatedAt: at})
	row.Status = status
	Must(t, db.Decide.With(t.Context()).Create(&row).Error)
	Must(t, dispatches.WordIndex.Add(db.Decide.With(t.Context()), search.Entries(id, row.Words())))
	db.Exec(
		t,
		"INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) "+
			"SELECT ?, ?, 1, ?, COALESCE(MAX(driver_seq), 0) + 1, 'WON', 1"+
			" FROM claims WHERE driver_id = ?",
		dispatch.NewClaimID(now),
		id,
		v,
		v,
	)
	if n == 0 {
		return id
	}
	events, taps, deliveries := make([]journal.EventRow, n), make([]offers.TapRow, n), make([]webhooks.DeliveryRow, n)
	var seen []any
	for i := range n {
		events[i] = journal.EventRow{ID: dispatch.NewEventID(now), DispatchID: id}
		taps[i] = offers.TapRow{DispatchID: id, Round: i + 1, ID: dispatch.NewAttemptID(now)}
		deliveries[i] = webhooks.DeliveryRow{
			Key: webhooks.Key{DispatchID: id, WebhookID: "whk_1", EventID: dispatch.NewEventID(now)}, Body: []byte("{}"),
			CreatedAt: database.Micros(now),
			Status:    []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed}[i%2],
		}
		seen = append(seen, id, i+1, v, database.Micros(now))
	}
	Must(t, db.Decide.With(t.Context()).Create(&events).Error)
	Must(t, db.Decide.With(t.Context()).Create(&taps).Error)
	Must(t, db.Decide.With(t.Context()).Create(&deliveries).Error)
	db.Exec(
		t,
		"INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, ?, ?, ?)"+strings.Repeat(", (?, ?, ?, ?)", n-1),
		seen...)
	d := dispatch.Dispatch{ID: id, Round: 1, Window: dispatch.Window{ExpiresAt: now.Add(time.Hour)}}
	db.WriteNotifications(t, d, n, func(i int, r *pushes.NotificationRow) {
		r.DeviceID, r.DriverID = dispatch.NewDeviceID(now), dispatch.NewDriverID(now)
		r.State, r.DueAt = i%4, database.Micros(now.Add(time.Hour))
	})
	return id
}

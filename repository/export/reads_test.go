package export_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/dispatches"
	"firsttap/repository/export"
	"firsttap/repository/journal"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// read returns how many items a sequence has.
func read[T any](t *testing.T, items iter.Seq2[T, error]) (n int) {
	t.Helper()
	for _, err := range items {
		Must(t, err)
		n++
	}
	return n
}

// An export has every row about the driver, of all rounds and over any number of pages, and none about others.
func TestExportIsComplete(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		ctx, me, other := t.Context(), v[0].ID, v[1].ID
		sections := map[string]func() int{
			"claims":        func() int { return read(t, db.ClaimsOf(ctx, me)) },
			"events":        func() int { return read(t, db.Export.EventsOf(ctx, me)) },
			"offers":        func() int { return read(t, db.OfferMarksOf(ctx, me)) },
			"notifications": func() int { return read(t, db.NotificationsOf(ctx, me)) },
			"taps":          func() int { return read(t, db.TapsOf(ctx, me)) },
		}
		for name, count := range sections {
			if n := count(); n != 0 {
				t.Errorf("%d %s of a new driver", n, name)
			}
		}
		now, want := db.Now(t), 0
		for i := range 2*export.ExportedAtOnce + 50 {
			id := dispatch.NewID(now.Add(time.Duration(i) * time.Millisecond))
			row := dispatches.RowOf(dispatch.Dispatch{ID: id, Terms: SomeTerms(now), Status: dispatch.Completed, Round: 1 + i%3, Version: 1})
			Must(t, db.Decide.With(t.Context()).Create(&row).Error)
			if i%45 != 0 {
				continue
			}
			for round := 1; round <= row.Round; round++ {
				want++
				for _, who := range []dispatch.DriverID{me, other} {
					name := string(who)
					Must(t, db.Decide.With(t.Context()).Create(&journal.EventRow{ID: dispatch.NewEventID(now), DispatchID: id, Type: dispatch.EventDeclined, Round: round, Actor: name}).Error)
					db.WriteNotification(t, id, func(r *pushes.NotificationRow) { r.DriverID, r.Round = who, round })
					db.Exec(t, "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, ?, ?, 1)", id, round, who)
					Must(t, db.AddAttempts(ctx, []dispatch.Attempt{{ID: dispatch.NewAttemptID(now), Dispatch: id, Round: round, Driver: who, Result: "NOT_ELIGIBLE", At: now}}))
				}
				db.Exec(t, "INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) VALUES (?, ?, ?, ?, ?, 'WON', 1)",
					dispatch.NewClaimID(now), id, round, me, want)
			}
		}
		for i := range export.ExportedAtOnce { // more than a page of claims, too
			db.Exec(t, "INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) VALUES (?, 'dsp_x', ?, ?, ?, 'WON', 1)",
				dispatch.NewClaimID(now), i+1, me, want+i+1)
		}
		for name, count := range sections {
			expected := want
			if name == "claims" {
				expected += export.ExportedAtOnce
			}
			if n := count(); n != expected {
				t.Errorf("%d %s, want %d", n, name, expected)
			}
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := range db.TapsOf(canceled, me) {
			if err == nil {
				t.Error("a tap after the reader is gone")
			}
		}
	})
}

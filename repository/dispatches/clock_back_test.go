package dispatches_test

import (
	"testing"
	"time"

	"firsttap/dispatch"
	. "firsttap/repository/repositorytest"
)

// TestTheClockGoesBack: a server whose clock is an hour behind has become the primary. What was open stays open, and later events sort
// behind earlier ones.
func TestTheClockGoesBack(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const ahead = time.Hour
		drivers := db.Fleet(t, 2)
		for name, call := range map[string]bool{"by the procedure": true, "in a transaction": false} {
			if call && db.Procedure() == nil {
				continue
			}
			if db.Procedure() != nil {
				db.Procedure().SetUsable(call)
			}
			d, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
				now = now.Add(ahead)
				w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(9 * time.Minute)}
				d, events := dispatch.New(dispatch.NewID(now), "", SomeTerms(now), w, dispatch.System, now)
				return d, events, nil
			})
			Must(t, err)
			if got := db.MustRead(t, d.ID); got.Status != dispatch.Pending {
				t.Errorf("%s: a dispatch that was open is %s", name, got.Status)
			}
			for status, want := range map[dispatch.Status]int{dispatch.Pending: 1, dispatch.Scheduled: 0, dispatch.Expired: 0} {
				items, _, err := db.Dispatches.List(t.Context(), dispatch.Query{Status: status, Page: dispatch.Page{Limit: 10}})
				Must(t, err)
				if len(items) != want {
					t.Errorf("%s: %d of 1 dispatches are listed as %s, want %d", name, len(items), status, want)
				}
			}
			Must(t, db.Decline(t.Context(), d.ID, 1, drivers[1].ID, "FAR"))
			if d, err = db.Accept(t.Context(), d.ID, drivers[0].ID); err != nil {
				t.Fatalf("%s: a dispatch that was open is refused: %v", name, err)
			}
			db.MustStore(t, d)
			db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Unassign(d.Version, dispatch.System, "", now)
			})
			if d, err = db.Accept(t.Context(), d.ID, drivers[1].ID); err != nil { // with what was read just now
				t.Fatalf("%s: %v", name, err)
			}
			_, err = db.Withdraw(t.Context(), d.ID, drivers[1].ID, func(d *dispatch.Dispatch, _ dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
				return d.Withdraw(drivers[1].ID, "", now)
			})
			Must(t, err)
			db.MustUpdate(t, d.ID, Cancel)
			mustHaveEvents(db, t, d.ID, dispatch.EventCreated, dispatch.EventDeclined, dispatch.EventAccepted, dispatch.EventUnassigned,
				dispatch.EventReopened, dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventReopened, dispatch.EventCanceled)
			// A relay that takes over waits for a lease, and not for the hour.
			db.MustCount(t, 0, "events WHERE next_at > ? AND type <> 'dispatch.created'", time.Now().Add(ahead/2).UnixMicro())
		}
	})
}

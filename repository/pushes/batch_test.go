package pushes_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// TestAnOfferThatIsLeasedMeanwhile: another process leases an offer between the plan of the offer's end and its write. The phone will get
// the offer, so it gets the end too.
func TestAnOfferThatIsLeasedMeanwhile(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 2)
		d := db.Add(t, nil)
		offers := db.WriteNotifications(t, d, 2, ToDevices(devices))
		var once sync.Once
		a := db.By(OpenWith(t, db.URL, repository.Options{
			Observer: func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				if strings.Contains(s.Query, "'superseded'") {
					once.Do(func() { db.Exec(t, "UPDATE notifications SET claim = 'ins_b' WHERE id = ?", offers[1].ID) })
				}
				return ctx, func(error) {}
			},
		}))
		db.MustAccept(t, d.ID, db.Fleet(t, 1)[0].ID)
		told := a.As("ins_a").MustExpand(t, db, dispatch.EventAccepted, 0)
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, devices[1])
		db.MustCount(t, 1, "notifications WHERE id = ? AND state = ?", offers[0].ID, pushes.StateDropped)
		db.MustCount(t, 1, "notifications WHERE id = ? AND state = ?", offers[1].ID, pushes.StatePending)
	})
}

// TestALongEventEndsTheCall: the pushes of an event for which much is written do not wait for the events behind it.
func TestALongEventEndsTheCall(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		long := db.Add(t, nil)
		db.WriteNotifications(t, long, 65, nil)
		var events []dispatch.EventID
		for _, d := range []dispatch.Dispatch{long, db.Add(t, nil)} {
			db.MustAccept(t, d.ID, db.Equipped(t, 1)[0].Driver)
			events = append(events, db.Lend(t, "ins_a", dispatch.EventAccepted))
		}
		o := db.As("ins_a")
		for i, rest := range [][]dispatch.EventID{events[1:], nil} {
			x, err := o.Expand(t.Context(), events[i:], 100)
			Must(t, err)
			if len(x.Events) != 1 || x.Events[0].Event.ID != events[i] || !slices.Equal(x.Rest, rest) {
				t.Errorf("expanded %v of %v, and left %v", x.Events, events[i:], x.Rest)
			}
			testkit.Equal(t, "pushes that are ready", 1, len(x.Pushes))
		}
	})
}

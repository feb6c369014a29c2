package offers_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/dispatch"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// Concurrent declines of many drivers, and many by one driver, are written once for each driver; they neither change nor lock
// the dispatch.
func TestDeclineOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers, d := db.Fleet(t, 5), db.Add(t, nil)
		if !db.SQLite() { // somebody holds the row all the while
			db.Hold(t, d.ID)
		}
		var heard atomic.Int64
		db.ListenTo(func(_ dispatch.Dispatch, events []dispatch.Event) { heard.Add(int64(len(events))) })
		MustAll(t, 4*len(drivers), func(i int) error {
			return db.Decline(t.Context(), d.ID, i/len(drivers)%2, drivers[i%len(drivers)].ID, fmt.Sprint("R", i))
		})
		db.MustCount(t, len(drivers), "events WHERE type = 'dispatch.declined' AND round = 1 AND actor = driver_id AND next_at IS NOT NULL")
		db.MustCount(t, len(drivers), "offers o JOIN events e ON e.driver_id = o.driver_id AND e.reason_code = o.decline_reason WHERE declined_at > 0 AND seen_at IS NULL")
		if n := heard.Load(); n != int64(len(drivers)) {
			t.Errorf("%d of %d drivers were notified", n, len(drivers))
		}
		if got := db.MustRead(t, d.ID); got.Version != d.Version || !got.UpdatedAt.Equal(d.UpdatedAt) {
			t.Errorf("the dispatch has moved: %+v", got)
		}
	})
}

// A driver can see an offer before or after declining it, and both times are kept.
func TestSeenAndDeclined(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 2), db.Add(t, nil)
		Must(t, db.MarkSeen(t.Context(), d.ID, 1, v[0].ID))
		Must(t, db.Decline(t.Context(), d.ID, 0, v[0].ID, "FAR"))
		Must(t, db.Decline(t.Context(), d.ID, 0, v[1].ID, "FAR"))
		Must(t, db.MarkSeen(t.Context(), d.ID, 1, v[1].ID))
		for _, of := range v {
			o, err := db.OfferTo(t.Context(), d.ID, of.ID)
			if c := o.Contact; err != nil || c.SeenAt == nil || c.DeclinedAt == nil || c.DeclineReason != "FAR" || c.Driver != of.ID || c.Round != 1 {
				t.Errorf("%+v, %v", c, err)
			}
			listed, _, err := db.OpenDispatchesFor(t.Context(), of, dispatch.Page{Limit: 10})
			if err != nil || len(listed) != 1 || fmt.Sprint(listed[0].Contact.DeclinedAt) != fmt.Sprint(o.Contact.DeclinedAt) {
				t.Errorf("%+v, %v", listed, err)
			}
		}
		MustBeError(t, "an unknown dispatch", ErrorOf(db.OfferTo(t.Context(), dispatch.NewID(time.Now()), v[0].ID)), dispatch.ErrNotFound)
	})
}

// A driver's list of offers takes two statements at most.
func TestStatementsPerOfferList(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		for range 5 {
			db.Add(t, nil)
		}
		all := db.Statements(t, func() {
			if items, _, err := db.OpenDispatchesFor(t.Context(), v, dispatch.Page{Limit: 10}); err != nil || len(items) != 5 {
				t.Fatal(len(items), err)
			}
		})
		if len(all) > 2 {
			t.Errorf("%d statements:\n%s", len(all), strings.Join(all, "\n"))
		}
	})
}

func tap(d dispatch.ID, v dispatch.DriverID, result dispatch.AttemptResult, at time.Time) dispatch.Attempt {
	return dispatch.Attempt{
		ID: dispatch.NewAttemptID(at), Dispatch: d, Round: 1, Driver: v, Result: result, At: at, Instance: "a:1", AppVersion: "2.0",
	}
}

func TestStandings(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 6), db.Add(t, nil)
		at := func(ms int) time.Time { return d.CreatedAt.Add(time.Duration(ms) * time.Millisecond) }
		taps := []dispatch.Attempt{
			tap(d.ID, v[0].ID, dispatch.AttemptEarly, at(-50)),
			tap(d.ID, v[1].ID, dispatch.AttemptEarly, at(-40)),
			tap(d.ID, v[3].ID, "ALREADY_TAKEN", at(8)), // before the winner's, and turned away all the same
			tap(d.ID, v[0].ID, dispatch.AttemptWon, at(10)),
			tap(d.ID, v[2].ID, "ALREADY_TAKEN", at(30)),
			tap(d.ID, v[2].ID, "ALREADY_TAKEN", at(40)),
			tap(d.ID, v[4].ID, dispatch.AttemptStale, at(50)),
			tap(d.ID, v[0].ID, dispatch.AttemptWon, at(60)),
			tap(d.ID, v[1].ID, "DRIVER_BUSY", at(70)),
		}
		Must(t, db.AddAttempts(t.Context(), taps))
		db.MustAccept(t, d.ID, v[0].ID)
		type standing struct {
			Tapped        bool
			Mine, Winners int // 0: none
			Before        int
		}
		ms := func(at *time.Time) int {
			if at == nil {
				return 0
			}
			return int(at.Sub(d.CreatedAt) / time.Millisecond)
		}
		for i, want := range []standing{
			{true, 10, 10, 1}, {true, 70, 10, 2}, {true, 30, 10, 1}, {true, 8, 10, 0}, {false, 0, 10, 0}, {false, 0, 10, 0},
		} {
			s, err := db.RaceStanding(t.Context(), d.ID, 1, v[i].ID, v[0].ID)
			got := standing{s.Tapped, ms(s.FirstTap), ms(s.WinnerFirstTap), s.Ahead}
			if err != nil || got != want || s.Now.Before(d.CreatedAt) || !Near(s.Now, d.CreatedAt) {
				t.Errorf("%d: %+v, %v; want %+v", i, got, err, want)
			}
		}
		if s, err := db.RaceStanding(t.Context(), d.ID, 2, v[1].ID, ""); err != nil || s.Tapped || s.FirstTap != nil || s.WinnerFirstTap != nil {
			t.Errorf("in a round to come: %+v, %v", s, err)
		}
		records, next, err := db.Attempts(t.Context(), d.ID, 0, dispatch.Page{Limit: 100})
		taps = slices.Concat(taps[:5], taps[6:7], taps[8:]) // the others repeat one
		if err != nil || next != "" || len(records) != len(taps) {
			t.Fatalf("%d, %q, %v", len(records), next, err)
		}
		ranks := map[int]int{0: 1, 1: 4, 2: 3, 3: 2, 4: 0}
		for i, r := range records {
			if r.ID != taps[i].ID || r.Instance != "a:1" || r.AppVersion != "2.0" || r.After != taps[i].At.Sub(taps[0].At).Truncate(time.Microsecond) {
				t.Errorf("%d: %+v", i, r)
			}
			for k := range v {
				if r.Driver == v[k].ID && r.Rank != ranks[k] {
					t.Errorf("%d: rank %d, want %d", k, r.Rank, ranks[k])
				}
			}
		}
	})
}

// What follows a round shows how it ended.
func TestHowRoundsEnded(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 2), db.Add(t, nil)
		next := func(event dispatch.EventType) {
			db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				d.Round, d.Version = d.Round+1, d.Version+1
				return []dispatch.Event{{ID: dispatch.NewEventID(now), Type: event, Dispatch: d.ID, Round: d.Round, Actor: "key", At: now}}, nil
			})
		}
		see := func(round int) {
			Must(t, db.MarkSeen(t.Context(), d.ID, round, v[1].ID))
		}
		see(1)
		next(dispatch.EventUpdated) // the terms
		see(2)
		next(dispatch.EventReopened) // it had expired
		see(3)
		db.MustAccept(t, d.ID, v[0].ID)
		db.MustUpdate(t, d.ID, Withdraw)
		see(4)
		want := map[string]dispatch.OfferStatus{
			fmt.Sprint(1, v[1].ID): dispatch.OfferRevoked, fmt.Sprint(2, v[1].ID): dispatch.OfferExpired,
			fmt.Sprint(3, v[1].ID): dispatch.OfferTaken, fmt.Sprint(3, v[0].ID): dispatch.OfferWithdrawn, fmt.Sprint(4, v[1].ID): dispatch.OfferSeen,
		}
		items, _, err := db.Offers.Offers(t.Context(), d.ID, 0, dispatch.Page{Limit: 10})
		if err != nil || len(items) != len(want) {
			t.Fatalf("%+v, %v", items, err)
		}
		for _, o := range items {
			if got := o.OfferStatus(); got != want[fmt.Sprint(o.Contact.Round, o.Contact.Driver)] {
				t.Errorf("round %d, %s: %s", o.Contact.Round, o.Contact.Driver, got)
			}
		}
		for _, of := range v {
			o, err := db.OfferTo(t.Context(), d.ID, of.ID)
			if err != nil || o.Contact.Withdrew != (of.ID == v[0].ID) {
				t.Errorf("%+v, %v", o.Contact, err)
			}
		}
	})
}

// trails are all that drivers leave behind of an offer, each by what is done in the order of its letters: w withdraws from
// the round before, p is pushed, s sees, d declines, e taps too early, t taps in vain, o taps on an offer that is old.
var trails = []string{
	"p", "s", "ps", "d", "psd", "e", "pt", "psdt", "pstd", "o", "po", "psdo",
	"w", "wp", "wps", "wd", "wpt", "wo", "wpo", "we",
}

// leave leaves the driver's trail in the current round of the dispatch, which is the one after w.
func leave(db *Bench, t *testing.T, d dispatch.Dispatch, v dispatch.DriverID, trail string) {
	t.Helper()
	results := map[rune]dispatch.AttemptResult{'e': dispatch.AttemptEarly, 't': "DRIVER_BUSY", 'o': dispatch.AttemptStale}
	for _, step := range trail {
		var err error
		switch step {
		case 'p':
			db.WriteNotification(t, d.ID, func(n *pushes.NotificationRow) {
				n.DriverID, n.Round, n.State, n.SentAt = v, d.Round, pushes.StateDone, new(n.CreatedAt)
			})
		case 's':
			err = db.MarkSeen(t.Context(), d.ID, d.Round, v)
		case 'd':
			err = db.Decline(t.Context(), d.ID, d.Round, v, "FAR")
		case 'e', 't', 'o':
			a := tap(d.ID, v, results[step], db.Now(t))
			a.Round = d.Round
			err = db.AddAttempts(t.Context(), []dispatch.Attempt{a})
		}
		if err != nil {
			t.Fatalf("%s, %c: %v", trail, step, err)
		}
	}
}

// withdraw has the driver accept the dispatch and give it back.
func withdraw(db *Bench, t *testing.T, d dispatch.Dispatch, v dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	Must(t, ErrorOf(db.Claim(t.Context(), d.ID, v, Rule(d.Round))))
	return db.MustUpdate(t, d.ID, Withdraw)
}

// mustAgree fails the test unless admins and drivers read the same of the current round of the dispatch.
func mustAgree(db *Bench, t *testing.T, what string, d dispatch.Dispatch, left map[dispatch.DriverID]string) {
	t.Helper()
	all, next, err := db.Offers.Offers(t.Context(), d.ID, d.Round, dispatch.Page{Limit: 100})
	if err != nil || next != "" {
		t.Fatalf("%q, %v", next, err)
	}
	listed := map[dispatch.DriverID]bool{}
	for _, admins := range all {
		v := admins.Contact.Driver
		listed[v] = true
		drivers, err := db.OfferTo(t.Context(), d.ID, v)
		Must(t, err)
		if a, b := admins.OfferStatus(), drivers.OfferStatus(); a != b {
			t.Errorf("%s, %s: %s for admins, %s for the driver", what, left[v], a, b)
		}
		admins.Contact.NotifiedAt, admins.Contact.Claim = nil, "" // which the driver's view does without
		if diff := cmp.Diff(drivers.Contact, admins.Contact); diff != "" {
			t.Errorf("%s, %s: admins and the driver read\n%s", what, left[v], diff)
		}
	}
	for v, trail := range left {
		if traced := strings.ContainsAny(trail, "psdet"); listed[v] != traced {
			t.Errorf("%s, %s: listed is %v", what, trail, listed[v])
		}
	}
}

// What an admin reads of a driver's offer is what the driver reads, whatever has happened to it and whatever has become of
// the dispatch.
func TestBothViewsOfAnOffer(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers, d, left := db.Fleet(t, len(trails)+1), db.Add(t, nil), map[dispatch.DriverID]string{}
		for i, trail := range trails {
			if left[drivers[i].ID] = trail; trail[0] == 'w' {
				d = withdraw(db, t, d, drivers[i].ID)
			}
		}
		winner := drivers[len(trails)].ID
		left[winner] = "ps"
		for v, trail := range left {
			leave(db, t, d, v, trail)
		}
		mustAgree(db, t, "open", d, left)
		db.Exec(t, "UPDATE dispatches SET status = 'EXPIRED'")
		mustAgree(db, t, "expired", d, left)
		db.Exec(t, "UPDATE dispatches SET status = 'PENDING'")
		d = db.MustAccept(t, d.ID, winner)
		mustAgree(db, t, "taken", d, left)
		db.MustUpdate(t, d.ID, Cancel)
		mustAgree(db, t, "canceled", d, left)
	})
}

// A tap is stored under the round that it names. One that names none, or one that there is not yet, was on the current one;
// whatever an app makes up, the others of the batch are kept.
func TestTheRoundOfATap(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, first, second := db.Fleet(t, 1)[0], db.Add(t, nil), db.Add(t, nil)
		second = withdraw(db, t, second, v.ID)
		if second.Round != 2 {
			t.Fatalf("%+v", second)
		}
		var taps []dispatch.Attempt
		want := map[dispatch.AttemptID]int{}
		for _, c := range []struct {
			of            dispatch.ID
			named, booked int // 0: not at all
		}{
			{first.ID, 1, 1}, {first.ID, 0, 1}, {first.ID, 2, 1}, {first.ID, math.MaxInt32, 1}, {first.ID, math.MaxInt32 + 1, 1},
			{second.ID, 1, 1}, {second.ID, 2, 2}, {second.ID, 0, 2}, {second.ID, 3, 2}, {second.ID, math.MaxInt32, 2},
			{dispatch.NewID(time.Now()), 1, 0}, {first.ID, 1, 1},
		} {
			a := tap(c.of, dispatch.NewDriverID(first.CreatedAt), dispatch.AttemptStale, first.CreatedAt)
			a.Round = c.named
			if taps = append(taps, a); c.booked != 0 {
				want[a.ID] = c.booked
			}
		}
		Must(t, db.AddAttempts(t.Context(), taps))
		got := map[dispatch.AttemptID]int{}
		var rows []offers.TapRow
		Must(t, db.Serve.With(t.Context()).Find(&rows).Error)
		for _, r := range rows {
			got[r.ID] = r.Round
		}
		if !maps.Equal(got, want) {
			t.Errorf("booked on %v, want %v", got, want)
		}
	})
}

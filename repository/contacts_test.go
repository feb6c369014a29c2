package repository

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/dispatch"
)

// trails are all that drivers leave behind of an offer, each by what is done in the order of its letters: w withdraws from
// the round before, p is pushed, s sees, d declines, e taps too early, t taps in vain, o taps on an offer that is old.
var trails = []string{
	"p", "s", "ps", "d", "psd", "e", "pt", "psdt", "pstd", "o", "po", "psdo",
	"w", "wp", "wps", "wd", "wpt", "wo", "wpo", "we",
}

// leave leaves the driver's trail in the current round of the dispatch, which is the one after w.
func (db *database) leave(t *testing.T, d dispatch.Dispatch, v dispatch.DriverID, trail string) {
	t.Helper()
	results := map[rune]dispatch.AttemptResult{'e': dispatch.AttemptEarly, 't': "DRIVER_BUSY", 'o': dispatch.AttemptStale}
	for _, step := range trail {
		var err error
		switch step {
		case 'p':
			db.notification(t, d.ID, func(n *notificationRow) {
				n.DriverID, n.Round, n.State, n.SentAt = v, d.Round, stateDone, new(n.CreatedAt)
			})
		case 's':
			err = db.MarkSeen(t.Context(), d.ID, d.Round, v)
		case 'd':
			err = db.Decline(t.Context(), d.ID, d.Round, v, "FAR")
		case 'e', 't', 'o':
			a := tap(d.ID, v, results[step], db.now(t))
			a.Round = d.Round
			err = db.AddAttempts(t.Context(), []dispatch.Attempt{a})
		}
		if err != nil {
			t.Fatalf("%s, %c: %v", trail, step, err)
		}
	}
}

// withdraw has the driver accept the dispatch and give it back.
func (db *database) withdraw(t *testing.T, d dispatch.Dispatch, v dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	_, err := db.Claim(t.Context(), d.ID, v, rule(d.Round))
	must(t, err)
	return db.mustUpdate(t, d.ID, withdraw)
}

// mustAgree fails the test unless admins and drivers read the same of the current round of the dispatch.
func (db *database) mustAgree(t *testing.T, what string, d dispatch.Dispatch, left map[dispatch.DriverID]string) {
	t.Helper()
	all, next, err := db.Offers(t.Context(), d.ID, d.Round, dispatch.Page{Limit: 100})
	if err != nil || next != "" {
		t.Fatalf("%q, %v", next, err)
	}
	listed := map[dispatch.DriverID]bool{}
	for _, admins := range all {
		v := admins.Contact.Driver
		listed[v] = true
		drivers, err := db.OfferTo(t.Context(), d.ID, v)
		must(t, err)
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
	each(t, func(t *testing.T, db *database) {
		drivers, d, left := db.drivers(t, len(trails)+1), db.add(t, nil), map[dispatch.DriverID]string{}
		for i, trail := range trails {
			if left[drivers[i].ID] = trail; trail[0] == 'w' {
				d = db.withdraw(t, d, drivers[i].ID)
			}
		}
		winner := drivers[len(trails)].ID
		left[winner] = "ps"
		for v, trail := range left {
			db.leave(t, d, v, trail)
		}
		db.mustAgree(t, "open", d, left)
		db.exec(t, "UPDATE dispatches SET status = 'EXPIRED'")
		db.mustAgree(t, "expired", d, left)
		db.exec(t, "UPDATE dispatches SET status = 'PENDING'")
		d = db.mustAccept(t, d.ID, winner)
		db.mustAgree(t, "taken", d, left)
		db.mustUpdate(t, d.ID, cancel)
		db.mustAgree(t, "canceled", d, left)
	})
}

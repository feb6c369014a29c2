package repository

import (
	"errors"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

var expiry = clockworks[0]

// pass lets the dispatch's window pass.
func (db *database) pass(t testing.TB, id dispatch.ID) {
	t.Helper()
	db.exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2 WHERE id = ?", id)
}

func TestAnOfferEnds(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, stands := db.add(t, nil), db.add(t, nil)
		db.pass(t, d.ID)
		expiry.mustChange(t, db.Store, 10, 1)
		got := db.mustRead(t, d.ID)
		if got.Status != dispatch.Expired || got.Version != d.Version+1 || got.Round != d.Round || !got.UpdatedAt.After(d.UpdatedAt) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		db.mustCount(t, 1, "dispatches WHERE status = 'EXPIRED'")
		want := []string{"dispatch.created 1 - system ", "dispatch.expired 1 - system "}
		if trail := db.trail(t, d.ID); !slices.Equal(trail, want) {
			t.Errorf("the trail is %q", trail)
		}
		if got := db.mustRead(t, stands.ID); got.Version != stands.Version || got.Status != dispatch.Pending {
			t.Errorf("the one that stands is %+v", got)
		}
	})
}

// Each round has an end of its own.
func TestTheNextRoundEnds(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.mustAccept(t, d.ID, v.ID)
		db.mustUpdate(t, d.ID, withdraw)
		expiry.mustChange(t, db.Store, 10, 0)
		db.pass(t, d.ID)
		expiry.mustChange(t, db.Store, 10, 1)
		if trail := db.trail(t, d.ID); trail[len(trail)-1] != "dispatch.expired 2 - system " {
			t.Errorf("the trail is %q", trail)
		}
	})
}

func TestOffersThatDoNotExpire(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		for name, happens := range map[string]func(dispatch.ID){
			"accepted": func(id dispatch.ID) { db.mustAccept(t, id, v.ID); db.pass(t, id) },
			"canceled": func(id dispatch.ID) { db.mustUpdate(t, id, cancel); db.pass(t, id) },
			"about to pass": func(id dispatch.ID) {
				db.exec(t, "UPDATE dispatches SET expires_at = ? WHERE id = ?", micros(db.now(t).Add(time.Minute)), id)
			},
			"written already": func(id dispatch.ID) {
				db.pass(t, id)
				db.exec(t, "UPDATE dispatches SET status = 'EXPIRED' WHERE id = ?", id)
			},
		} {
			d := db.add(t, nil)
			happens(d.ID)
			before, events := db.mustRead(t, d.ID), db.count(t, "events")
			if n, err := db.ExpireOffers(t.Context(), 10); n != 0 || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if got := db.mustRead(t, d.ID); got.Version != before.Version || db.count(t, "events") != events {
				t.Errorf("%s: %+v", name, got)
			}
		}
		expiry.ready(t, db, 1)
		expiry.mustChange(t, db.Store, 1, 1) // none of the others takes its place in the batch
	})
}

func TestChangedBeforeItExpires(t *testing.T) {
	expiry.mustLeave(t,
		moves{name: "extended", set: "expires_at = 4000000000000000"},
		moves{name: "taken", set: "status = 'ACCEPTED', claim_id = 'clm_x', accepted_by = 'drv_x', accepted_at = 1"},
		moves{name: "canceled", set: "status = 'CANCELED'"},
		moves{name: "opened again", set: "round = round + 1, expires_at = 4000000000000000"},
		moves{
			name: "ended by another", set: "status = 'EXPIRED'",
			also: "INSERT INTO events SELECT 'evt_x', id, 'dispatch.expired', 1, NULL, 'system', '', 1, '' FROM dispatches WHERE id = ?",
		},
	)
}

// The driver's claim and the end of the offer want the same row at the same time.
func TestTheLastTapAndTheEnd(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i := range 10 {
			v, d := db.drivers(t, 1)[0], db.add(t, nil)
			passed := i%2 == 0
			if passed {
				db.pass(t, d.ID)
			}
			var n int
			var ended, claimed error
			testkit.Together(2, func(k int) {
				if k == 0 {
					n, ended = db.ExpireOffers(t.Context(), 10)
				} else {
					_, claimed = db.accept(t.Context(), d.ID, v.ID)
				}
			})
			got := db.mustRead(t, d.ID)
			switch {
			case ended != nil:
				t.Errorf("the end: %v", ended)
			case passed && (n != 1 || got.Status != dispatch.Expired || !errors.Is(claimed, dispatch.ErrExpired)):
				t.Errorf("%s, %d, %v", got.Status, n, claimed)
			case !passed && (n != 0 || got.Status != dispatch.Accepted || claimed != nil):
				t.Errorf("%s, %d, %v", got.Status, n, claimed)
			}
		}
	})
}

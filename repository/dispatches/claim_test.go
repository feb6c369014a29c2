package dispatches_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"
)

func TestClaimWritesEverythingTogether(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		got := db.MustAccept(t, d.ID, v.ID)
		db.MustStore(t, got)
		if got.Status != dispatch.Accepted || got.Version != 2 || !got.HeldBy(v.ID) {
			t.Errorf("got %+v", got)
		}
		db.MustOutcome(t, got, v.ID, dispatch.OutcomeWon)
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
		if n := db.Count(t, "events WHERE type = 'dispatch.accepted' AND dispatch_id = ? AND round = 1 AND driver_id = ? "+
			"AND actor = ? AND at = ?", d.ID, v.ID, v.ID, got.Claim.AcceptedAt.UnixMicro()); n != 1 {
			t.Error("the event does not describe the claim")
		}
		db.MustCount(t, 1, "events WHERE type = 'dispatch.accepted' AND next_at = ?", got.Claim.AcceptedAt.UnixMicro())
	})
}

// Each of the rows that a claim writes is made impossible in turn.
func TestClaimWritesNothingIfOneRowCannotBeWritten(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		refused := func(what string, d dispatch.Dispatch, err error) {
			t.Helper()
			MustBeError(t, what, err, dispatch.ErrUnavailable)
			db.MustStore(t, d)
			db.MustHold(t, 0, dispatch.EventAccepted, 0)
		}
		d := db.Add(t, nil)
		var err error
		db.Without(t, "events", func() { _, err = db.Accept(t.Context(), d.ID, v.ID) })
		refused("a claim without the table of events", d, err)
		db.WithoutColumn(t, "events", "claim", func() { _, err = db.Accept(t.Context(), d.ID, v.ID) })
		refused("a claim without a column of events", d, err)
		db.MustCount(t, 0, "events WHERE dispatch_id = ''") // none had to be resolved
		db.Exec(t, "INSERT INTO claims SELECT id, id, 1, 'drv_x', 1, 'WON', 1, NULL FROM dispatches")
		_, err = db.Accept(t.Context(), d.ID, v.ID)
		db.Exec(t, "DELETE FROM claims")
		refused("a claim that there is", d, err)
	})
}

func TestClaimWithAnEventInTheWay(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, err := db.Claim(t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			events, err := d.Accept(c, 0, dispatch.NewClaimID(now), now)
			db.Bar(t, events[0].ID)
			return events, err
		})
		MustBeError(t, "an event is in the way", err, dispatch.ErrUnavailable)
		db.MustStore(t, d)
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

// Nothing but the database stands between the thirty: no gate, no lock.
func TestThirtyConcurrentClaims(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 30)
		for round := range testkit.Scale(3, 5) {
			d := db.Add(t, Later(round))
			db.MustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				got, err := db.Accept(t.Context(), d.ID, drivers[i].ID)
				if taken, ok := errors.AsType[*dispatch.TakenError](err); err != nil && (!ok || !taken.Final) {
					t.Errorf("%v is not final", err)
				}
				return got, err
			}, func(int) error { return dispatch.ErrAlreadyTaken })
			db.MustHold(t, round+1, dispatch.EventAccepted, round+1)
		}
	})
}

// All taps of a driver on a dispatch get the same claim, and the same answer.
func TestClaimAgainIsAReplay(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		var got [10]dispatch.Dispatch
		MustAll(t, len(got), func(i int) (err error) {
			got[i], err = db.Accept(t.Context(), d.ID, v.ID)
			return err
		})
		for _, d := range append(got[:], db.MustAccept(t, d.ID, v.ID)) {
			db.MustStore(t, d)
		}
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestClaimRefusals(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		open := db.Add(t, nil)
		soon, late := db.Add(t, Soon), db.Add(t, Over)
		taken := db.MustAccept(t, db.Add(t, nil).ID, other)
		canceled := db.Add(t, nil)
		db.MustUpdate(t, canceled.ID, Cancel)
		elsewhere := db.Add(t, func(d *dispatch.Dispatch) { d.Region = "jeju" })
		tests := []struct {
			name   string
			id     dispatch.ID
			driver dispatch.DriverID
			round  int
			want   error
		}{
			{"not open yet", soon.ID, v, 0, &dispatch.NotOpenYetError{OpensAt: soon.OpensAt}},
			{"expired", late.ID, v, 0, dispatch.ErrExpired},
			{"another round", open.ID, v, 2, dispatch.ErrOfferStale},
			{"taken", taken.ID, v, 1, &dispatch.TakenError{Final: true}},
			{"canceled", canceled.ID, v, 1, dispatch.ErrCanceled},
			{"not eligible", elsewhere.ID, v, 1, &dispatch.NotEligibleError{Reasons: []dispatch.IneligibleReason{dispatch.WrongRegion}}},
			{"busy", open.ID, other, 1, dispatch.ErrDriverBusy},
			{"no such dispatch", dispatch.NewID(time.Now()), v, 0, dispatch.ErrNotFound},
			{"no such driver", open.ID, dispatch.NewDriverID(time.Now()), 0, dispatch.ErrDriverNotFound},
		}
		for _, tt := range tests {
			_, err := db.Claim(t.Context(), tt.id, tt.driver, Rule(tt.round))
			if !reflect.DeepEqual(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// A driver's own overlapping jobs are decided by different rows at the same time.
func TestOverlappingClaimsOfOneDriver(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, testkit.Scale(5, 15))
		for i, v := range drivers {
			jobs := []dispatch.Dispatch{db.Add(t, nil), db.Add(t, nil), db.Add(t, nil)}
			MustWinOnce(t, len(jobs), dispatch.ErrDriverBusy, func(j int) error { return ErrorOf(db.Accept(t.Context(), jobs[j].ID, v.ID)) })
			db.MustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

func TestJobsOneAfterTheOther(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		for i := range 3 {
			d := db.Add(t, func(d *dispatch.Dispatch) {
				d.WorkStartsAt = d.WorkStartsAt.Truncate(24 * time.Hour).Add(time.Duration(i) * time.Hour)
				d.WorkEndsAt = d.WorkStartsAt.Add(time.Hour) // back to back
			})
			db.MustAccept(t, d.ID, v.ID)
		}
		db.MustCount(t, 3, "claims WHERE driver_id = ? AND driver_seq IN (1, 2, 3)", v.ID)
	})
}

func TestClaimAfterAWithdrawalNeedsTheRound(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		db.MustAccept(t, d.ID, v.ID)
		db.MustUpdate(t, d.ID, Withdraw)
		MustBeError(t, "without a round", ErrorOf(db.Accept(t.Context(), d.ID, v.ID)), dispatch.ErrOfferStale)
		if got, err := db.Claim(t.Context(), d.ID, v.ID, Rule(2)); err != nil || got.Claim.Round != 2 {
			t.Errorf("in the second round: got %+v, %v", got.Claim, err)
		}
		db.MustHold(t, 2, dispatch.EventAccepted, 2)
	})
}

func TestClaimAfterItsContextEnded(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		ctx, cancel := context.WithCancel(t.Context())
		claim := Rule(0)
		_, err := db.Claim(ctx, d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			defer cancel()
			return claim(d, c, now)
		})
		if !errors.Is(err, dispatch.ErrUnavailable) || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("got %v", err)
		}
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

// A tap while the dispatch opens wins or is too early, at whichever microsecond the time is read.
func TestClaimAtTheOpening(t *testing.T) {
	var clock atomic.Pointer[func() time.Time]
	real := time.Now
	clock.Store(&real)
	db := Pooled(t, servertest.SQLite).With(t, func(o *repository.Options) { o.Now = func() time.Time { return (*clock.Load())() } })
	drivers := db.Fleet(t, 8)
	for i := range drivers {
		began := time.Now().Truncate(time.Microsecond)
		d := db.Add(t, func(d *dispatch.Dispatch) {
			Later(i)(d)
			d.OpensAt, d.ExpiresAt, d.UpdatedAt = began.Add(time.Duration(i)*time.Microsecond), began.Add(time.Hour), began.Add(-time.Hour)
		})
		ticking := func() time.Time { // each reading is a microsecond later
			at := began
			began = began.Add(time.Microsecond)
			return at
		}
		clock.Store(&ticking)
		_, err := db.Accept(t.Context(), d.ID, drivers[i].ID)
		clock.Store(&real)
		if err != nil && !errors.Is(err, dispatch.ErrNotOpenYet) {
			t.Errorf("it opens at the %d. reading: %v", i+1, err)
		}
	}
	if n := db.Count(t, "claims"); n == 0 || n == len(drivers) {
		t.Errorf("%d of %d have won: not all times were around the opening", n, len(drivers))
	}
}

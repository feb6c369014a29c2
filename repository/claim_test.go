package repository

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestClaimWritesEverythingTogether(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		got := db.mustAccept(t, d.ID, v.ID)
		db.mustStore(t, got)
		if got.Status != dispatch.Accepted || got.Version != 2 || !got.HeldBy(v.ID) {
			t.Errorf("got %+v", got)
		}
		db.mustOutcome(t, got, v.ID, dispatch.OutcomeWon)
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
		if n := db.count(t, "events WHERE type = 'dispatch.accepted' AND dispatch_id = ? AND round = 1 AND driver_id = ? "+
			"AND actor = ? AND at = ?", d.ID, v.ID, v.ID, got.Claim.AcceptedAt.UnixMicro()); n != 1 {
			t.Error("the event does not describe the claim")
		}
		db.mustCount(t, 1, "outbox WHERE state = 0 AND next_at = ?", got.Claim.AcceptedAt.UnixMicro())
	})
}

// Each of the rows that a claim writes is made impossible in turn.
func TestClaimWritesNothingIfOneRowCannotBeWritten(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		refused := func(what string, d dispatch.Dispatch, err error) {
			t.Helper()
			mustBeError(t, what, err, dispatch.ErrUnavailable)
			db.mustStore(t, d)
			db.mustHold(t, 0, dispatch.EventAccepted, 0)
		}
		d := db.add(t, nil)
		for _, table := range []string{"outbox", "events"} {
			var err error
			db.without(t, table, func() { _, err = db.accept(t.Context(), d.ID, v.ID) })
			refused("a claim without the table "+table, d, err)
		}
		db.exec(t, "INSERT INTO claims SELECT id, id, 1, 'drv_x', 1, 'WON', 1, NULL FROM dispatches")
		_, err := db.accept(t.Context(), d.ID, v.ID)
		db.exec(t, "DELETE FROM claims")
		refused("a claim that there is", d, err)
	})
}

func TestClaimWithAnOutboxRowInTheWay(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, err := db.Claim(t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			events, err := d.Accept(c, 0, dispatch.NewClaimID(now), now)
			db.exec(t, "INSERT INTO outbox (event_id, state, next_at) VALUES (?, 0, 0)", events[0].ID)
			return events, err
		})
		mustBeError(t, "an outbox row is in the way", err, dispatch.ErrUnavailable)
		db.mustStore(t, d)
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

// Nothing but the database stands between the thirty: no gate, no lock.
func TestThirtyConcurrentClaims(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 30)
		for round := range testkit.Scale(3, 5) {
			d := db.add(t, later(round))
			db.mustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				got, err := db.accept(t.Context(), d.ID, drivers[i].ID)
				if taken, ok := errors.AsType[*dispatch.TakenError](err); err != nil && (!ok || !taken.Final) {
					t.Errorf("%v is not final", err)
				}
				return got, err
			}, func(int) error { return dispatch.ErrAlreadyTaken })
			db.mustHold(t, round+1, dispatch.EventAccepted, round+1)
		}
	})
}

// All taps of a driver on a dispatch get the same claim, and the same answer.
func TestClaimAgainIsAReplay(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		var got [10]dispatch.Dispatch
		mustAll(t, len(got), func(i int) (err error) {
			got[i], err = db.accept(t.Context(), d.ID, v.ID)
			return err
		})
		for _, d := range append(got[:], db.mustAccept(t, d.ID, v.ID)) {
			db.mustStore(t, d)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestClaimRefusals(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		open := db.add(t, nil)
		soon, late := db.add(t, soon), db.add(t, over)
		taken := db.mustAccept(t, db.add(t, nil).ID, other)
		canceled := db.add(t, nil)
		db.mustUpdate(t, canceled.ID, cancel)
		elsewhere := db.add(t, func(d *dispatch.Dispatch) { d.Region = "jeju" })
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
			_, err := db.Claim(t.Context(), tt.id, tt.driver, rule(tt.round))
			if !reflect.DeepEqual(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// A driver's own overlapping jobs are decided by different rows at the same time.
func TestOverlappingClaimsOfOneDriver(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, testkit.Scale(5, 15))
		for i, v := range drivers {
			jobs := []dispatch.Dispatch{db.add(t, nil), db.add(t, nil), db.add(t, nil)}
			mustWinOnce(t, len(jobs), dispatch.ErrDriverBusy, func(j int) error { return errorOf(db.accept(t.Context(), jobs[j].ID, v.ID)) })
			db.mustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

func TestJobsOneAfterTheOther(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		for i := range 3 {
			d := db.add(t, func(d *dispatch.Dispatch) {
				d.WorkStartsAt = d.WorkStartsAt.Truncate(24 * time.Hour).Add(time.Duration(i) * time.Hour)
				d.WorkEndsAt = d.WorkStartsAt.Add(time.Hour) // back to back
			})
			db.mustAccept(t, d.ID, v.ID)
		}
		db.mustCount(t, 3, "claims WHERE driver_id = ? AND driver_seq IN (1, 2, 3)", v.ID)
	})
}

func TestClaimAfterAWithdrawalNeedsTheRound(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db.mustAccept(t, d.ID, v.ID)
		db.mustUpdate(t, d.ID, withdraw)
		mustBeError(t, "without a round", errorOf(db.accept(t.Context(), d.ID, v.ID)), dispatch.ErrOfferStale)
		if got, err := db.Claim(t.Context(), d.ID, v.ID, rule(2)); err != nil || got.Claim.Round != 2 {
			t.Errorf("in the second round: got %+v, %v", got.Claim, err)
		}
		db.mustHold(t, 2, dispatch.EventAccepted, 2)
	})
}

func TestClaimAfterItsContextEnded(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		ctx, cancel := context.WithCancel(t.Context())
		claim := rule(0)
		_, err := db.Claim(ctx, d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			defer cancel()
			return claim(d, c, now)
		})
		if !errors.Is(err, dispatch.ErrUnavailable) || !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("got %v", err)
		}
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

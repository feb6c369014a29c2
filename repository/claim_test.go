package repository

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
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
		db.mustCount(t, 1, "events WHERE type = 'dispatch.accepted' AND next_at = ?", got.Claim.AcceptedAt.UnixMicro())
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
		var err error
		db.without(t, "events", func() { _, err = db.accept(t.Context(), d.ID, v.ID) })
		refused("a claim without the table of events", d, err)
		db.withoutColumn(t, "events", "claim", func() { _, err = db.accept(t.Context(), d.ID, v.ID) })
		refused("a claim without a column of events", d, err)
		db.mustCount(t, 0, "events WHERE dispatch_id = ''") // none had to be resolved
		db.exec(t, "INSERT INTO claims SELECT id, id, 1, 'drv_x', 1, 'WON', 1, NULL FROM dispatches")
		_, err = db.accept(t.Context(), d.ID, v.ID)
		db.exec(t, "DELETE FROM claims")
		refused("a claim that there is", d, err)
	})
}

func TestClaimWithAnEventInTheWay(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, err := db.Claim(t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			events, err := d.Accept(c, 0, dispatch.NewClaimID(now), now)
			db.bar(t, events[0].ID)
			return events, err
		})
		mustBeError(t, "an event is in the way", err, dispatch.ErrUnavailable)
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

// lie claims whatever it is shown, so that nothing but the UPDATE's own conditions stand in the way. between happens
// after the rule has seen the dispatch.
func lie(between func(try int)) (rule claimRule, tries *int) {
	tries = new(int)
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		*tries++
		between(*tries)
		d.Status = dispatch.Accepted
		d.Claim = &dispatch.Claim{ID: dispatch.NewClaimID(now), Driver: c.ID, Round: d.Round, AcceptedAt: now}
		d.Version++
		d.UpdatedAt = now
		return []dispatch.Event{{
			ID: dispatch.NewEventID(now), Type: dispatch.EventAccepted, Dispatch: d.ID, Round: d.Round, Driver: c.ID,
			Actor: string(c.ID), At: now,
		}}, nil
	}, tries
}

func TestTheUpdateItselfRefuses(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		tests := []struct {
			name    string
			edit    func(*dispatch.Dispatch)
			taken   bool
			between string // a statement that moves something after each sight of the dispatch
		}{
			{name: "status", edit: func(d *dispatch.Dispatch) { d.Status = dispatch.Canceled }},
			{name: "taken", taken: true},
			{name: "opens_at", edit: func(d *dispatch.Dispatch) { d.OpensAt = d.CreatedAt.Add(time.Minute) }},
			{name: "expires_at", edit: over},
			{name: "round", between: "UPDATE dispatches SET round = round + 1"},
			{name: "driver", between: "UPDATE drivers SET version = version + 1"},
			{name: "expires between", between: "UPDATE dispatches SET expires_at = opens_at + 1"},
			{name: "closes between", between: "UPDATE dispatches SET opens_at = expires_at - 1"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				d := db.add(t, tt.edit)
				if tt.taken {
					db.mustAccept(t, d.ID, other)
				}
				claims, events := db.count(t, "claims"), db.count(t, "events WHERE type = 'dispatch.accepted'")
				rule, tries := lie(func(int) {
					if tt.between != "" {
						db.exec(t, tt.between)
					}
				})
				mustBeError(t, "the claim", errorOf(db.Claim(t.Context(), d.ID, v, rule)), dispatch.ErrUnavailable)
				if *tries < maxTries || *tries > maxTries+1 { // once more about what the process knew
					t.Errorf("the rule was asked %d times, want %d", *tries, maxTries)
				}
				db.mustCount(t, 0, "dispatches WHERE id = ? AND accepted_by = ?", d.ID, v)
				db.mustHold(t, claims, dispatch.EventAccepted, events)
			})
		}
	})
}

// If the dispatch or the driver changes after the rule has decided and before the write, the rule decides again, on what is stored now.
func TestClaimIsDecidedAnew(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		t.Run("the next round", func(t *testing.T) {
			d := db.add(t, nil)
			rule, tries := lie(func(try int) {
				if try == 1 {
					db.exec(t, "UPDATE dispatches SET round = 2, version = 7 WHERE id = ?", d.ID)
				}
			})
			got, err := db.Claim(t.Context(), d.ID, v, rule)
			if err != nil || *tries != 2 || got.Round != 2 || got.Claim.Round != 2 || got.Version != 8 {
				t.Errorf("got %+v, %v after %d tries", got, err, *tries)
			}
			db.mustStore(t, got)
		})
		t.Run("gone off duty", func(t *testing.T) {
			d := db.add(t, later(1))
			rule, asked := meanwhile(rule(0), func() {
				if _, _, err := db.SetDuty(t.Context(), v, false); err != nil {
					t.Error(err)
				}
			})
			_, err := db.Claim(t.Context(), d.ID, v, rule)
			var refused *dispatch.NotEligibleError
			if !errors.As(err, &refused) || !reflect.DeepEqual(refused.Reasons, []dispatch.IneligibleReason{dispatch.OffDuty}) {
				t.Errorf("got %v after the rule was asked %d times", err, *asked)
			}
		})
	})
}

// A tap while the dispatch opens wins or is too early, at whichever microsecond the time is read.
func TestClaimAtTheOpening(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	drivers := db.drivers(t, 8)
	for i := range drivers {
		began := time.Now().Truncate(time.Microsecond)
		d := db.add(t, func(d *dispatch.Dispatch) {
			later(i)(d)
			d.OpensAt, d.ExpiresAt, d.UpdatedAt = began.Add(time.Duration(i)*time.Microsecond), began.Add(time.Hour), began.Add(-time.Hour)
		})
		now := db.dialect.text.now
		db.dialect.text.now = func() string { // each reading is a microsecond later
			text := strconv.FormatInt(micros(began), 10)
			began = began.Add(time.Microsecond)
			return text
		}
		_, err := db.accept(t.Context(), d.ID, drivers[i].ID)
		db.dialect.text.now = now
		if err != nil && !errors.Is(err, dispatch.ErrNotOpenYet) {
			t.Errorf("it opens at the %d. reading: %v", i+1, err)
		}
	}
	if n := db.count(t, "claims"); n == 0 || n == len(drivers) {
		t.Errorf("%d of %d have won: not all times were around the opening", n, len(drivers))
	}
}

// The driver's other claim is committed between sight and write, in a row that this claim never touches.
func TestADriversOtherClaimInBetween(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		one, other := db.add(t, nil), db.add(t, nil)
		rule, asked := meanwhile(rule(0), func() { db.mustAccept(t, other.ID, v) })
		_, err := db.Claim(t.Context(), one.ID, v, rule)
		if mustBeError(t, "a claim of the same hours", err, dispatch.ErrDriverBusy); *asked != 2 {
			t.Errorf("the rule was asked %d times, want 2", *asked)
		}
		db.mustStore(t, one)
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// A change within the round, such as a later end, moves the version; so does the claim after it.
func TestClaimAfterAChangeWithinTheRoundMovesTheVersion(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0].ID
		rule, _ := meanwhile(rule(0), func() { db.mustUpdate(t, d.ID, extended(1)) })
		got, err := db.Claim(t.Context(), d.ID, v, rule)
		must(t, err)
		if db.mustStore(t, got); got.Version != 3 {
			t.Errorf("version %d after two changes of version 1: a reader of version 2 can't detect the change", got.Version)
		}
	})
}

// moved are changes of what a claim and an assignment rest on.
var moved = map[string]string{
	"status":     "UPDATE dispatches SET status = 'CANCELED'",
	"round":      "UPDATE dispatches SET round = 2",
	"version":    "UPDATE dispatches SET version = 2",
	"updated_at": "UPDATE dispatches SET updated_at = updated_at + 1",
	"driver":     "UPDATE drivers SET version = version + 1",
}

func TestEachConditionOfTheClaimHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["opens_at"] = "UPDATE dispatches SET opens_at = opens_at + 3600000000, expires_at = expires_at + 3600000000"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = opens_at + 1"
	mustRefuseEach(t, moves, nil, func() claimRule { return rule(1) }, (*Store).Claim)
}

func TestEachConditionOfTheAssignmentHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["another claim"] = "INSERT INTO claims SELECT 'clm_other', 'dsp_other', 1, id, 1, 'WON', 1, NULL FROM drivers"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = 1"
	mustRefuseEach(t, moves, soon, func() claimRule { return assigning(1) }, (*Store).Assign)
}

// mustRefuseEach fails the test unless write writes nothing if a statement moves something between the rule's look and the write.
// The row's own condition must refuse the write; the rule is then asked again, and here gives up.
func mustRefuseEach(t *testing.T, moves map[string]string, edit func(*dispatch.Dispatch), rule func() claimRule,
	write func(*Store, context.Context, dispatch.ID, dispatch.DriverID, claimRule) (dispatch.Dispatch, error),
) {
	gaveUp := errors.New("asked again")
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, db *database) {
				d, v := db.add(t, edit), db.drivers(t, 1)[0]
				decide, asked := rule(), 0
				_, err := write(db.Store, t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
					if asked++; asked > 1 {
						return nil, gaveUp
					}
					events, err := decide(d, c, now)
					db.exec(t, move)
					return events, err
				})
				if !errors.Is(err, gaveUp) {
					t.Fatalf("it was not refused: %v", err)
				}
				db.mustCount(t, 0, "claims WHERE dispatch_id = ?", d.ID)
				db.mustCount(t, 0, "dispatches WHERE accepted_by IS NOT NULL")
				db.mustCount(t, 0, "events WHERE type = 'dispatch.accepted'")
			})
		})
	}
}

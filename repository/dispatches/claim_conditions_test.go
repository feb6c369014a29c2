package dispatches_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	. "firsttap/repository/repositorytest"
)

// What a claim rests on may change between the rule's look and the write: the write's own conditions refuse it then.

// lie claims whatever it is shown, so that nothing but the UPDATE's own conditions stand in the way. between happens
// after the rule has seen the dispatch.
func lie(between func(try int)) (rule dispatches.Rule, tries *int) {
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
	Every(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
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
			{name: "expires_at", edit: Over},
			{name: "round", between: "UPDATE dispatches SET round = round + 1"},
			{name: "driver", between: "UPDATE drivers SET version = version + 1"},
			{name: "expires between", between: "UPDATE dispatches SET expires_at = opens_at + 1"},
			{name: "closes between", between: "UPDATE dispatches SET opens_at = expires_at - 1"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				d := db.Add(t, tt.edit)
				if tt.taken {
					db.MustAccept(t, d.ID, other)
				}
				claims, events := db.Count(t, "claims"), db.Count(t, "events WHERE type = 'dispatch.accepted'")
				rule, tries := lie(func(int) {
					if tt.between != "" {
						db.Exec(t, tt.between)
					}
				})
				MustBeError(t, "the claim", ErrorOf(db.Claim(t.Context(), d.ID, v, rule)), dispatch.ErrUnavailable)
				if *tries < database.MaxTries || *tries > database.MaxTries+1 { // once more about what the process knew
					t.Errorf("the rule was asked %d times, want %d", *tries, database.MaxTries)
				}
				db.MustCount(t, 0, "dispatches WHERE id = ? AND accepted_by = ?", d.ID, v)
				db.MustHold(t, claims, dispatch.EventAccepted, events)
			})
		}
	})
}

// If the dispatch or the driver changes after the rule has decided and before the write, the rule decides again, on what is stored now.
func TestClaimIsDecidedAnew(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		t.Run("the next round", func(t *testing.T) {
			d := db.Add(t, nil)
			rule, tries := lie(func(try int) {
				if try == 1 {
					db.Exec(t, "UPDATE dispatches SET round = 2, version = 7 WHERE id = ?", d.ID)
				}
			})
			got, err := db.Claim(t.Context(), d.ID, v, rule)
			if err != nil || *tries != 2 || got.Round != 2 || got.Claim.Round != 2 || got.Version != 8 {
				t.Errorf("got %+v, %v after %d tries", got, err, *tries)
			}
			db.MustStore(t, got)
		})
		t.Run("gone off duty", func(t *testing.T) {
			d := db.Add(t, Later(1))
			rule, asked := Meanwhile(Rule(0), func() {
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

// The driver's other claim is committed between sight and write, in a row that this claim never touches.
func TestADriversOtherClaimInBetween(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		one, other := db.Add(t, nil), db.Add(t, nil)
		rule, asked := Meanwhile(Rule(0), func() { db.MustAccept(t, other.ID, v) })
		_, err := db.Claim(t.Context(), one.ID, v, rule)
		if MustBeError(t, "a claim of the same hours", err, dispatch.ErrDriverBusy); *asked != 2 {
			t.Errorf("the rule was asked %d times, want 2", *asked)
		}
		db.MustStore(t, one)
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// A change within the round, such as a later end, moves the version; so does the claim after it.
func TestClaimAfterAChangeWithinTheRoundMovesTheVersion(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0].ID
		rule, _ := Meanwhile(Rule(0), func() { db.MustUpdate(t, d.ID, Extended(1)) })
		got, err := db.Claim(t.Context(), d.ID, v, rule)
		Must(t, err)
		if db.MustStore(t, got); got.Version != 3 {
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

// TestEachConditionOfTheClaimHolds: each condition of the claim's UPDATE and of an assignment refuses by itself.
func TestEachConditionOfTheClaimHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["opens_at"] = "UPDATE dispatches SET opens_at = opens_at + 3600000000, expires_at = expires_at + 3600000000"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = opens_at + 1"
	mustRefuseEach(t, moves, nil, func() dispatches.Rule { return Rule(1) }, (*dispatches.Dispatches).Claim)
}

func TestEachConditionOfTheAssignmentHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["another claim"] = "INSERT INTO claims SELECT 'clm_other', 'dsp_other', 1, id, 1, 'WON', 1, NULL FROM drivers"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = 1"
	mustRefuseEach(t, moves, Soon, func() dispatches.Rule { return Assigning(1) }, (*dispatches.Dispatches).Assign)
}

// mustRefuseEach fails the test unless write writes nothing if a statement moves something between the rule's look and the write.
// The row's own condition must refuse the write; the rule is then asked again, and here gives up.
func mustRefuseEach(t *testing.T, moves map[string]string, edit func(*dispatch.Dispatch), rule func() dispatches.Rule,
	write func(*dispatches.Dispatches, context.Context, dispatch.ID, dispatch.DriverID, dispatches.Rule) (dispatch.Dispatch, error),
) {
	gaveUp := errors.New("asked again")
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			Every(t, func(t *testing.T, db *Bench) {
				d, v := db.Add(t, edit), db.Fleet(t, 1)[0]
				decide, asked := rule(), 0
				_, err := write(db.Dispatches, t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
					if asked++; asked > 1 {
						return nil, gaveUp
					}
					events, err := decide(d, c, now)
					db.Exec(t, move)
					return events, err
				})
				if !errors.Is(err, gaveUp) {
					t.Fatalf("it was not refused: %v", err)
				}
				db.MustCount(t, 0, "claims WHERE dispatch_id = ?", d.ID)
				db.MustCount(t, 0, "dispatches WHERE accepted_by IS NOT NULL")
				db.MustCount(t, 0, "events WHERE type = 'dispatch.accepted'")
			})
		})
	}
}

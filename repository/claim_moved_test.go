package repository

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
)

// lie claims whatever it is shown, so that nothing but the UPDATE's own conditions stand in the way. between happens
// after the rule has seen the dispatch.
func lie(between func(try int)) (rule claimRule, tries *int) {
	tries = new(int)
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		*tries++
		if between != nil {
			between(*tries)
		}
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
			name  string
			setup func() dispatch.Dispatch
			// between changes the dispatch after each sight of it.
			between func(t *testing.T, d dispatch.Dispatch)
		}{
			{name: "status", setup: func() dispatch.Dispatch {
				return db.add(t, func(d *dispatch.Dispatch) { d.Status = dispatch.Canceled })
			}},
			{name: "taken", setup: func() dispatch.Dispatch {
				return db.mustAccept(t, db.add(t, nil).ID, other)
			}},
			{name: "opens_at", setup: func() dispatch.Dispatch {
				return db.add(t, func(d *dispatch.Dispatch) { d.OpensAt = d.CreatedAt.Add(time.Minute) })
			}},
			{name: "expires_at", setup: func() dispatch.Dispatch {
				return db.add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt })
			}},
			{name: "round", setup: func() dispatch.Dispatch { return db.add(t, nil) },
				between: func(t *testing.T, d dispatch.Dispatch) {
					db.exec(t, "UPDATE dispatches SET round = round + 1 WHERE id = ?", d.ID)
				}},
			{name: "driver", setup: func() dispatch.Dispatch { return db.add(t, nil) },
				between: func(t *testing.T, _ dispatch.Dispatch) {
					db.exec(t, "UPDATE drivers SET version = version + 1 WHERE id = ?", v)
				}},
			{name: "expires between", setup: func() dispatch.Dispatch { return db.add(t, nil) },
				between: func(t *testing.T, d dispatch.Dispatch) {
					db.exec(t, "UPDATE dispatches SET expires_at = opens_at + 1 WHERE id = ?", d.ID)
				}},
			{name: "closes between", setup: func() dispatch.Dispatch { return db.add(t, nil) },
				between: func(t *testing.T, d dispatch.Dispatch) {
					db.exec(t, "UPDATE dispatches SET opens_at = expires_at - 1 WHERE id = ?", d.ID)
				}},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				claims, events := db.count(t, "claims"), db.count(t, "events WHERE type = 'dispatch.accepted'")
				d := tt.setup()
				if tt.name == "taken" {
					claims, events = claims+1, events+1
				}
				rule, tries := lie(func(int) {
					if tt.between != nil {
						tt.between(t, d)
					}
				})
				_, err := db.Claim(t.Context(), d.ID, v, rule)
				if !errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("got %v, want %v", err, dispatch.ErrUnavailable)
				}
				if *tries != maxTries {
					t.Errorf("the rule was asked %d times, want %d", *tries, maxTries)
				}
				if n := db.count(t, "dispatches WHERE id = ? AND accepted_by = ?", d.ID, v); n != 0 {
					t.Error("the claim was written")
				}
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
			if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, got) {
				t.Errorf("stored %+v, returned %+v", stored, got)
			}
		})
		t.Run("gone off duty", func(t *testing.T) {
			d := db.add(t, func(d *dispatch.Dispatch) {
				d.WorkStartsAt, d.WorkEndsAt = d.WorkStartsAt.AddDate(0, 0, 1), d.WorkEndsAt.AddDate(0, 0, 1)
			})
			accept, tries := rule(0), 0
			_, err := db.Claim(t.Context(), d.ID, v, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
				if tries++; tries == 1 {
					if _, err := db.SetDuty(t.Context(), v, false); err != nil {
						t.Error(err)
					}
				}
				return accept(d, c, now)
			})
			var refused *dispatch.NotEligibleError
			if !errors.As(err, &refused) || !reflect.DeepEqual(refused.Reasons, []dispatch.IneligibleReason{dispatch.OffDuty}) {
				t.Errorf("got %v after %d tries", err, tries)
			}
		})
	})
}

// The driver's other claim is committed between sight and write, in a row that this claim never touches.
func TestADriversOtherClaimInBetween(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		one, other := db.add(t, nil), db.add(t, nil)
		accept, tries := rule(0), 0
		_, err := db.Claim(t.Context(), one.ID, v, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			if tries++; tries == 1 {
				db.mustAccept(t, other.ID, v)
			}
			return accept(d, c, now)
		})
		if !errors.Is(err, dispatch.ErrDriverBusy) || tries != 2 {
			t.Errorf("got %v after %d tries, want %v after 2", err, tries, dispatch.ErrDriverBusy)
		}
		if got := db.mustRead(t, one.ID); !reflect.DeepEqual(got, one) {
			t.Errorf("the dispatch is %+v, was %+v", got, one)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// A change within the round, such as a later end, moves the version; so does the claim after it.
func TestClaimAfterAChangeWithinTheRoundMovesTheVersion(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0].ID
		accept, tries := rule(0), 0
		got, err := db.Claim(t.Context(), d.ID, v, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			if tries++; tries == 1 {
				db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
					return d.Extend(d.Version, d.ExpiresAt.Add(time.Hour), "key_1", now)
				})
			}
			return accept(d, c, now)
		})
		if err != nil {
			t.Fatal(err)
		}
		stored := db.mustRead(t, d.ID)
		if stored.Version != 3 {
			t.Errorf("version %d after two changes of version 1: a reader of version 2 can't detect the change", stored.Version)
		}
		if !reflect.DeepEqual(stored, got) {
			t.Errorf("stored %+v, the winner got %+v", stored, got)
		}
	})
}

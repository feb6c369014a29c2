package repository

import (
	"context"
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
)

// assigning is the domain's own rule of an assignment at that version, for a claim with an id of its own.
func assigning(version int) claimRule {
	id := dispatch.NewClaimID(time.Now())
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Assign(version, c, id, "key_1", now)
	}
}

func (db *database) assign(ctx context.Context, id dispatch.ID, version int, driver dispatch.DriverID) (dispatch.Dispatch, error) {
	return db.Assign(ctx, id, driver, assigning(version))
}

func TestAssignWritesEverythingTogether(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i, edit := range []func(*dispatch.Dispatch){nil, soon} {
			d, v := db.add(t, edit), db.drivers(t, 1)[0]
			_, err := db.SetDuty(t.Context(), v.ID, false)
			must(t, err)
			got, err := db.assign(t.Context(), d.ID, 1, v.ID)
			must(t, err)
			if db.mustStore(t, got); got.Status != dispatch.Accepted || !got.HeldBy(v.ID) {
				t.Errorf("the driver was assigned %+v", got)
			}
			past, err := db.NewestClaim(t.Context(), d.ID, v.ID)
			if want := (&dispatch.PastClaim{Claim: *got.Claim, Outcome: dispatch.OutcomeWon}); err != nil || !reflect.DeepEqual(past, want) {
				t.Errorf("the claim is %+v, %v; want %+v", past, err, want)
			}
			db.mustCount(t, 1, "events WHERE type = 'dispatch.accepted' AND dispatch_id = ? AND driver_id = ? AND actor = 'key_1'", d.ID, v.ID)
			again, err := db.assign(t.Context(), d.ID, 2, v.ID)
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("again: %+v, %v", again, err)
			}
			db.mustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

// An assignment, several others of other drivers, and taps, all at once, and nothing but the database between them.
func TestAssignAmongTaps(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 12)
		for round := range 6 {
			d := db.add(t, later(round))
			assigned := func(i int) bool { return i%3 == round%3 }
			db.mustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				if assigned(i) {
					return db.assign(t.Context(), d.ID, 1, drivers[i].ID)
				}
				return db.accept(t.Context(), d.ID, drivers[i].ID)
			}, func(i int) error {
				if assigned(i) {
					return dispatch.ErrVersionConflict
				}
				return dispatch.ErrAlreadyTaken
			})
			db.mustHold(t, round+1, dispatch.EventAccepted, round+1)
		}
	})
}

// The driver taps elsewhere and is assigned twice, at the same time and for the same hours.
func TestAssignDuringAnOverlappingClaim(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i, v := range db.drivers(t, 8) {
			jobs := []dispatch.Dispatch{db.add(t, nil), db.add(t, nil), db.add(t, soon)}
			mustWinOnce(t, len(jobs), dispatch.ErrDriverBusy, func(j int) (err error) {
				if j == 0 {
					_, err = db.accept(t.Context(), jobs[j].ID, v.ID)
				} else {
					_, err = db.assign(t.Context(), jobs[j].ID, 1, v.ID)
				}
				return err
			})
			db.mustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

func TestAssignRefusals(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		taken := db.mustAccept(t, db.add(t, nil).ID, other)
		far := db.addDriver(t, func(v *dispatch.Driver) { v.Regions, v.OnDuty = []string{"jeju"}, false })
		open, late := db.add(t, nil), db.add(t, over)
		for _, tt := range []struct {
			name    string
			id      dispatch.ID
			version int
			driver  dispatch.DriverID
			want    error
		}{
			{"moved", open.ID, 2, v, dispatch.ErrVersionConflict},
			{"taken", taken.ID, 2, v, &dispatch.TakenError{Final: true}},
			{"expired", late.ID, 1, v, dispatch.ErrExpired},
			{"busy", open.ID, 1, other, dispatch.ErrDriverBusy},
			{"not eligible", open.ID, 1, far.ID, &dispatch.NotEligibleError{Reasons: []dispatch.IneligibleReason{dispatch.WrongRegion}}},
			{"no such dispatch", dispatch.NewID(time.Now()), 1, v, dispatch.ErrNotFound},
			{"no such driver", open.ID, 1, dispatch.NewDriverID(time.Now()), dispatch.ErrDriverNotFound},
		} {
			if _, err := db.assign(t.Context(), tt.id, tt.version, tt.driver); !reflect.DeepEqual(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

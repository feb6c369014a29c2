package repository

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
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
			must(t, errorOfPage(db.SetDuty(t.Context(), v.ID, false)))
			got, err := db.assign(t.Context(), d.ID, 1, v.ID)
			must(t, err)
			if db.mustStore(t, got); got.Status != dispatch.Accepted || !got.HeldBy(v.ID) {
				t.Errorf("the driver was assigned %+v", got)
			}
			db.mustOutcome(t, got, v.ID, dispatch.OutcomeWon)
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

func noted(version int, note string) change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		terms := d.Terms
		terms.Note = note
		return d.Update(version, terms, d.Window, "key_1", now)
	}
}

func extended(version int) change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Extend(version, d.ExpiresAt.Add(time.Minute), "key_1", now)
	}
}

func unassigned(version int) change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Unassign(version, "key_1", "ILL", now)
	}
}

// Of changes to one version one is made, and taps on the round that a change has ended lose.
func TestChangesAmongTaps(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 8)
		for n := range 6 {
			d := db.add(t, later(n))
			var changed, won, stale atomic.Int32
			testkit.Together(len(drivers), func(i int) {
				if i%2 == 0 {
					_, err := db.Update(t.Context(), d.ID, noted(1, fmt.Sprint("note ", i)))
					if err == nil {
						changed.Add(1)
					} else {
						mustBeError(t, "a change", err, dispatch.ErrVersionConflict)
					}
					return
				}
				_, err := db.Claim(t.Context(), d.ID, drivers[i].ID, rule(1))
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, dispatch.ErrOfferStale):
					stale.Add(1)
				default:
					mustBeError(t, "a tap", err, dispatch.ErrAlreadyTaken)
				}
			})
			if changed.Load()+won.Load() != 1 || changed.Load() == 0 && stale.Load() > 0 {
				t.Errorf("%d changes of one version, %d claims, %d stale taps", changed.Load(), won.Load(), stale.Load())
			}
			if got := db.mustRead(t, d.ID); got.Version != 2 || got.Round != 1+int(changed.Load()) || (got.Claim != nil) != (won.Load() == 1) {
				t.Errorf("%d changes, and it is %+v", changed.Load(), got)
			}
		}
	})
}

// An extended offer is the same offer: one driver gets it, and it is extended unless a driver was first.
func TestExtensionsAmongTaps(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 6)
		for n := range 6 {
			d := db.add(t, later(n))
			var longer, won atomic.Int32
			testkit.Together(len(drivers), func(i int) {
				if i < 2 {
					_, err := db.Update(t.Context(), d.ID, extended(1))
					if err == nil {
						longer.Add(1)
					} else {
						mustBeError(t, "an extension", err, dispatch.ErrVersionConflict)
					}
					return
				}
				_, err := db.Claim(t.Context(), d.ID, drivers[i].ID, rule(1))
				if err == nil {
					won.Add(1)
				} else {
					mustBeError(t, "a tap", err, dispatch.ErrAlreadyTaken)
				}
			})
			got := db.mustRead(t, d.ID)
			want := d.ExpiresAt.Add(time.Duration(longer.Load()) * time.Minute)
			if won.Load() != 1 || longer.Load() > 1 || !got.ExpiresAt.Equal(want) || got.Version != 2+int(longer.Load()) || got.Round != 1 {
				t.Errorf("%d claims, %d extensions, and it is %+v", won.Load(), longer.Load(), got)
			}
		}
	})
}

func TestUnassignEndsTheClaim(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		d := db.mustAccept(t, db.add(t, nil).ID, v)
		got := db.mustUpdate(t, d.ID, unassigned(2))
		if db.mustStore(t, got); got.Status != dispatch.Pending || got.Round != 2 {
			t.Errorf("the dispatch is %+v", got)
		}
		db.mustOutcome(t, got, v, dispatch.OutcomeUnassigned)
		want := []string{
			"dispatch.created 1 - system ", fmt.Sprintf("dispatch.accepted 1 %s %s ", v, v),
			fmt.Sprintf("dispatch.unassigned 1 %s key_1 ILL", v), "dispatch.reopened 2 - system ",
		}
		testkit.Equal(t, "the trail", want, db.trail(t, d.ID))
		db.mustAccept(t, db.add(t, nil).ID, v) // the hours are the driver's again
	})
}

// What waits to be sent of the round's offer ends when the offer does; what is over, another round's or no offer does not.
func TestWaitingOffersEndWithTheirDispatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, func(d *dispatch.Dispatch) { d.Round = 2 })
		devices := db.equipped(t, 7)
		rows := db.notifications(t, d, 7, func(i int, n *notificationRow) {
			toDevices(devices)(i, n)
			switch i {
			case 1:
				n.State = stateDone
			case 2:
				n.Round = 1
			case 3:
				n.Type, n.Silent = dispatch.EventTaken, true
			case 4:
				n.Claim = "somebody"
			case 5:
				n.Type = dispatch.EventReopened
			case 6:
				n.State = stateDead
			}
		})
		other := db.notifications(t, db.add(t, nil), 1, toDevices(devices))[0]
		got := db.mustUpdate(t, d.ID, extended(1))
		for i, moves := range []bool{true, false, false, false, true, true, false} {
			if end := db.stored(t, rows[i].ID).ExpiresAt; (end == micros(got.ExpiresAt)) != moves {
				t.Errorf("%d ends at %v, the offer at %v", i, fromMicros(end), got.ExpiresAt)
			}
		}
		if end := db.stored(t, other.ID).ExpiresAt; end != other.ExpiresAt {
			t.Error("the notifications of another dispatch changed too")
		}
	})
}

// An expansion that runs during an extension may have read the old end.
func TestAPushWrittenBeforeTheExtensionStandsAsLong(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, devices := db.add(t, nil), db.equipped(t, 1)
		got := db.mustUpdate(t, d.ID, extended(1))
		db.notifications(t, d, 1, func(i int, n *notificationRow) { // d: as it was
			toDevices(devices)(i, n)
			n.ExpiresAt = micros(time.Now().Add(-time.Second))
		})
		pushes, dropped, err := db.as("me").LeaseNotifications(t.Context(), 10)
		if err != nil || len(pushes) != 1 || !pushes[0].UsefulUntil.Equal(got.ExpiresAt) {
			t.Errorf("leased %+v, dropped %v, %v; the offer ends at %v", pushes, dropped, err, got.ExpiresAt)
		}
	})
}

// No push announces a changed window; changed terms are pushed to every driver that could accept them now.
func TestChangedTermsArePushed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, devices := db.add(t, nil), db.equipped(t, 2)
		me := db.as("me")
		me.mustExpand(t, db, dispatch.EventCreated, 10)
		db.mustUpdate(t, d.ID, extended(1))
		if told := me.mustExpand(t, db, dispatch.EventUpdated, 10); len(told.Pushes)+told.Unleased != 0 {
			t.Errorf("of the extension: %+v", told.Pushes)
		}
		db.mustUpdate(t, d.ID, noted(2, "gate 2"))
		if told := me.mustExpand(t, db, dispatch.EventUpdated, 10); len(told.Pushes) != 2 || told.Pushes[0].Round != 2 {
			t.Errorf("of other terms: %+v", told.Pushes)
		}
		must(t, errorOf(db.assign(t.Context(), d.ID, 3, devices[0].Driver)))
		told := me.mustExpand(t, db, dispatch.EventAccepted, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventAccepted, false, devices[0])
		db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, devices[1])
		db.mustUpdate(t, d.ID, unassigned(4))
		told = me.mustExpand(t, db, dispatch.EventUnassigned, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventUnassigned, false, devices[0])
		told = me.mustExpand(t, db, dispatch.EventReopened, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventReopened, false, devices[1])
	})
}

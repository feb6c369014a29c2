package repository_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func TestAssignWritesEverythingTogether(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for i, edit := range []func(*dispatch.Dispatch){nil, Soon} {
			d, v := db.Add(t, edit), db.Fleet(t, 1)[0]
			Must(t, ErrorOfPage(db.SetDuty(t.Context(), v.ID, false)))
			got, err := db.AssignAt(t.Context(), d.ID, 1, v.ID)
			Must(t, err)
			if db.MustStore(t, got); got.Status != dispatch.Accepted || !got.HeldBy(v.ID) {
				t.Errorf("the driver was assigned %+v", got)
			}
			db.MustOutcome(t, got, v.ID, dispatch.OutcomeWon)
			db.MustCount(t, 1, "events WHERE type = 'dispatch.accepted' AND dispatch_id = ? AND driver_id = ? AND actor = 'key_1'", d.ID, v.ID)
			again, err := db.AssignAt(t.Context(), d.ID, 2, v.ID)
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("again: %+v, %v", again, err)
			}
			db.MustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

// An assignment, several others of other drivers, and taps, all at once, and nothing but the database between them.
func TestAssignAmongTaps(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 12)
		for round := range 6 {
			d := db.Add(t, Later(round))
			assigned := func(i int) bool { return i%3 == round%3 }
			db.MustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				if assigned(i) {
					return db.AssignAt(t.Context(), d.ID, 1, drivers[i].ID)
				}
				return db.Accept(t.Context(), d.ID, drivers[i].ID)
			}, func(i int) error {
				if assigned(i) {
					return dispatch.ErrVersionConflict
				}
				return dispatch.ErrAlreadyTaken
			})
			db.MustHold(t, round+1, dispatch.EventAccepted, round+1)
		}
	})
}

// The driver taps elsewhere and is assigned twice, at the same time and for the same hours.
func TestAssignDuringAnOverlappingClaim(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for i, v := range db.Fleet(t, 8) {
			jobs := []dispatch.Dispatch{db.Add(t, nil), db.Add(t, nil), db.Add(t, Soon)}
			MustWinOnce(t, len(jobs), dispatch.ErrDriverBusy, func(j int) (err error) {
				if j == 0 {
					_, err = db.Accept(t.Context(), jobs[j].ID, v.ID)
				} else {
					_, err = db.AssignAt(t.Context(), jobs[j].ID, 1, v.ID)
				}
				return err
			})
			db.MustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

func TestAssignRefusals(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		taken := db.MustAccept(t, db.Add(t, nil).ID, other)
		far := db.AddDriver(t, func(v *dispatch.Driver) { v.Regions, v.OnDuty = []string{"jeju"}, false })
		open, late := db.Add(t, nil), db.Add(t, Over)
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
			if _, err := db.AssignAt(t.Context(), tt.id, tt.version, tt.driver); !reflect.DeepEqual(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func noted(version int, note string) Change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		terms := d.Terms
		terms.Note = note
		return d.Update(version, terms, d.Window, "key_1", now)
	}
}

func unassigned(version int) Change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Unassign(version, "key_1", "ILL", now)
	}
}

// Of changes to one version one is made, and taps on the round that a change has ended lose.
func TestChangesAmongTaps(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 8)
		for n := range 6 {
			d := db.Add(t, Later(n))
			var changed, won, stale atomic.Int32
			testkit.Together(len(drivers), func(i int) {
				if i%2 == 0 {
					_, err := db.Update(t.Context(), d.ID, noted(1, fmt.Sprint("note ", i)))
					if err == nil {
						changed.Add(1)
					} else {
						MustBeError(t, "a change", err, dispatch.ErrVersionConflict)
					}
					return
				}
				_, err := db.Claim(t.Context(), d.ID, drivers[i].ID, Rule(1))
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, dispatch.ErrOfferStale):
					stale.Add(1)
				default:
					MustBeError(t, "a tap", err, dispatch.ErrAlreadyTaken)
				}
			})
			if changed.Load()+won.Load() != 1 || changed.Load() == 0 && stale.Load() > 0 {
				t.Errorf("%d changes of one version, %d claims, %d stale taps", changed.Load(), won.Load(), stale.Load())
			}
			if got := db.MustRead(t, d.ID); got.Version != 2 || got.Round != 1+int(changed.Load()) || (got.Claim != nil) != (won.Load() == 1) {
				t.Errorf("%d changes, and it is %+v", changed.Load(), got)
			}
		}
	})
}

// An extended offer is the same offer: one driver gets it, and it is extended unless a driver was first.
func TestExtensionsAmongTaps(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 6)
		for n := range 6 {
			d := db.Add(t, Later(n))
			var longer, won atomic.Int32
			testkit.Together(len(drivers), func(i int) {
				if i < 2 {
					_, err := db.Update(t.Context(), d.ID, Extended(1))
					if err == nil {
						longer.Add(1)
					} else {
						MustBeError(t, "an extension", err, dispatch.ErrVersionConflict)
					}
					return
				}
				_, err := db.Claim(t.Context(), d.ID, drivers[i].ID, Rule(1))
				if err == nil {
					won.Add(1)
				} else {
					MustBeError(t, "a tap", err, dispatch.ErrAlreadyTaken)
				}
			})
			got := db.MustRead(t, d.ID)
			want := d.ExpiresAt.Add(time.Duration(longer.Load()) * time.Minute)
			if won.Load() != 1 || longer.Load() > 1 || !got.ExpiresAt.Equal(want) || got.Version != 2+int(longer.Load()) || got.Round != 1 {
				t.Errorf("%d claims, %d extensions, and it is %+v", won.Load(), longer.Load(), got)
			}
		}
	})
}

func TestUnassignEndsTheClaim(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		d := db.MustAccept(t, db.Add(t, nil).ID, v)
		got := db.MustUpdate(t, d.ID, unassigned(2))
		if db.MustStore(t, got); got.Status != dispatch.Pending || got.Round != 2 {
			t.Errorf("the dispatch is %+v", got)
		}
		db.MustOutcome(t, got, v, dispatch.OutcomeUnassigned)
		want := []string{
			"dispatch.created 1 - system ", fmt.Sprintf("dispatch.accepted 1 %s %s ", v, v),
			fmt.Sprintf("dispatch.unassigned 1 %s key_1 ILL", v), "dispatch.reopened 2 - system ",
		}
		testkit.Equal(t, "the trail", want, db.Trail(t, d.ID))
		db.MustAccept(t, db.Add(t, nil).ID, v) // the hours are the driver's again
	})
}

// An expansion that runs during an extension may have read the old end.
func TestAPushWrittenBeforeTheExtensionStandsAsLong(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, devices := db.Add(t, nil), db.Equipped(t, 1)
		got := db.MustUpdate(t, d.ID, Extended(1))
		db.WriteNotifications(t, d, 1, func(i int, n *pushes.NotificationRow) { // d: as it was
			ToDevices(devices)(i, n)
			n.ExpiresAt = database.Micros(time.Now().Add(-time.Second))
		})
		pushes, dropped, err := db.As("me").LeaseNotifications(t.Context(), 10)
		if err != nil || len(pushes) != 1 || !pushes[0].UsefulUntil.Equal(got.ExpiresAt) {
			t.Errorf("leased %+v, dropped %v, %v; the offer ends at %v", pushes, dropped, err, got.ExpiresAt)
		}
	})
}

// No push announces a changed window; changed terms are pushed to every driver that could accept them now.
func TestChangedTermsArePushed(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, devices := db.Add(t, nil), db.Equipped(t, 2)
		me := db.As("me")
		me.MustExpand(t, db, dispatch.EventCreated, 10)
		db.MustUpdate(t, d.ID, Extended(1))
		if told := me.MustExpand(t, db, dispatch.EventUpdated, 10); len(told.Pushes)+told.Unleased != 0 {
			t.Errorf("of the extension: %+v", told.Pushes)
		}
		db.MustUpdate(t, d.ID, noted(2, "gate 2"))
		if told := me.MustExpand(t, db, dispatch.EventUpdated, 10); len(told.Pushes) != 2 || told.Pushes[0].Round != 2 {
			t.Errorf("of other terms: %+v", told.Pushes)
		}
		Must(t, ErrorOf(db.AssignAt(t.Context(), d.ID, 3, devices[0].Driver)))
		told := me.MustExpand(t, db, dispatch.EventAccepted, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventAccepted, false, devices[0])
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, devices[1])
		db.MustUpdate(t, d.ID, unassigned(4))
		told = me.MustExpand(t, db, dispatch.EventUnassigned, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventUnassigned, false, devices[0])
		told = me.MustExpand(t, db, dispatch.EventReopened, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventReopened, false, devices[1])
	})
}

package repository

import (
	"context"
	"errors"
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

// soon is a dispatch that is not open yet.
func soon(d *dispatch.Dispatch) {
	d.OpensAt = d.CreatedAt.Add(time.Hour)
	d.ExpiresAt = d.OpensAt.Add(time.Hour)
}

func TestAssignWritesEverythingTogether(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i, edit := range []func(*dispatch.Dispatch){nil, soon} {
			d, v := db.add(t, edit), db.drivers(t, 1)[0]
			if _, err := db.SetDuty(t.Context(), v.ID, false); err != nil {
				t.Fatal(err)
			}
			got, err := db.assign(t.Context(), d.ID, 1, v.ID)
			if err != nil {
				t.Fatal(err)
			}
			if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, got) || got.Status != dispatch.Accepted || !got.HeldBy(v.ID) {
				t.Errorf("stored\n%+v, Assign returned\n%+v", stored, got)
			}
			past, err := db.NewestClaim(t.Context(), d.ID, v.ID)
			if want := (&dispatch.PastClaim{Claim: *got.Claim, Outcome: dispatch.OutcomeWon}); err != nil || !reflect.DeepEqual(past, want) {
				t.Errorf("the claim is %+v, %v; want %+v", past, err, want)
			}
			if n := db.count(t, "events WHERE type = 'dispatch.accepted' AND dispatch_id = ? AND driver_id = ? AND actor = 'key_1'", d.ID, v.ID); n != 1 {
				t.Error("the event does not describe the assignment")
			}
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
			d := db.add(t, func(d *dispatch.Dispatch) {
				d.WorkStartsAt, d.WorkEndsAt = d.WorkStartsAt.AddDate(0, 0, round), d.WorkEndsAt.AddDate(0, 0, round)
			})
			var won atomic.Pointer[dispatch.Dispatch]
			testkit.Together(len(drivers), func(i int) {
				var got dispatch.Dispatch
				var err error
				assigned := i%3 == round%3
				if assigned {
					got, err = db.assign(t.Context(), d.ID, 1, drivers[i].ID)
				} else {
					got, err = db.accept(t.Context(), d.ID, drivers[i].ID)
				}
				switch {
				case err == nil && !won.CompareAndSwap(nil, &got):
					t.Error("a second winner")
				case err != nil && assigned && !errors.Is(err, dispatch.ErrVersionConflict):
					t.Errorf("an assignment: %v, want %v", err, dispatch.ErrVersionConflict)
				case err != nil && !assigned && !errors.Is(err, dispatch.ErrAlreadyTaken):
					t.Errorf("a tap: %v, want %v", err, dispatch.ErrAlreadyTaken)
				}
			})
			if won.Load() == nil {
				t.Fatal("no driver won")
			}
			if got := db.mustRead(t, d.ID); !reflect.DeepEqual(got, *won.Load()) {
				t.Errorf("stored %+v, the winner got %+v", got, *won.Load())
			}
			db.mustHold(t, round+1, dispatch.EventAccepted, round+1)
		}
	})
}

// The driver taps elsewhere and is assigned twice, at the same time and for the same hours.
func TestAssignDuringAnOverlappingClaim(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i, v := range db.drivers(t, 8) {
			jobs := []dispatch.Dispatch{db.add(t, nil), db.add(t, nil), db.add(t, soon)}
			var won atomic.Int32
			testkit.Together(len(jobs), func(j int) {
				var err error
				if j == 0 {
					_, err = db.accept(t.Context(), jobs[j].ID, v.ID)
				} else {
					_, err = db.assign(t.Context(), jobs[j].ID, 1, v.ID)
				}
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, dispatch.ErrDriverBusy):
					t.Errorf("got %v, want %v", err, dispatch.ErrDriverBusy)
				}
			})
			if won.Load() != 1 {
				t.Errorf("the driver has %d jobs at the same time", won.Load())
			}
			db.mustHold(t, i+1, dispatch.EventAccepted, i+1)
		}
	})
}

// Between the rule's look and the write, something moves. The row's own conditions refuse the write.
func TestEachConditionOfTheAssignmentHolds(t *testing.T) {
	gaveUp := errors.New("asked again")
	for name, move := range map[string]string{
		"status":          "UPDATE dispatches SET status = 'CANCELED'",
		"round":           "UPDATE dispatches SET round = 2",
		"version":         "UPDATE dispatches SET version = 2",
		"expires_at":      "UPDATE dispatches SET expires_at = 1",
		"driver":          "UPDATE drivers SET version = version + 1",
		"another's hours": "INSERT INTO claims SELECT 'clm_other', 'dsp_other', 1, id, 1, 'WON', 1, NULL FROM drivers",
	} {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, db *database) {
				d, v := db.add(t, soon), db.drivers(t, 1)[0]
				asked := 0
				assign := assigning(1)
				_, err := db.Assign(t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
					if asked++; asked > 1 {
						return nil, gaveUp
					}
					events, err := assign(d, c, now)
					db.exec(t, move)
					return events, err
				})
				if !errors.Is(err, gaveUp) {
					t.Fatalf("the assignment was not refused: %v", err)
				}
				if n := db.count(t, "claims WHERE dispatch_id = ?", d.ID) + db.count(t, "dispatches WHERE accepted_by IS NOT NULL") +
					db.count(t, "events WHERE type = 'dispatch.accepted'"); n != 0 {
					t.Error("something of the refused assignment was written")
				}
			})
		})
	}
}

func TestAssignRefusals(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v, other := drivers[0].ID, drivers[1].ID
		taken := db.mustAccept(t, db.add(t, nil).ID, other)
		far := someDriver(3)
		far.Regions, far.OnDuty = []string{"jeju"}, false
		if err := db.AddDrivers(t.Context(), []dispatch.Driver{far}); err != nil {
			t.Fatal(err)
		}
		open, late := db.add(t, nil), db.add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt })
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

func TestTheReplyOfAnAssignmentsCommitIsLost(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, soon), db.drivers(t, 1)[0]
		cut := proxy.CutReply("COMMIT")
		got, err := s.Assign(t.Context(), d.ID, v.ID, assigning(1))
		testkit.Await(t, "the cut", cut.Done())
		if err != nil {
			t.Fatalf("the assignment was committed, and Assign says %v", err)
		}
		if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, got) {
			t.Errorf("stored %+v, returned %+v", stored, got)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitOfAnAssignmentNeverArrives(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold := proxy.Hold("COMMIT")
		ended := make(chan error, 1)
		go func() {
			_, err := s.Assign(t.Context(), d.ID, v.ID, assigning(1))
			ended <- err
		}()
		testkit.Await(t, "the COMMIT", hold.Reached())
		proxy.CutAll()
		if err := <-ended; !errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("got %v, want %v: the database says that there is no claim", err, dispatch.ErrUnavailable)
		}
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		if _, err := db.assign(t.Context(), d.ID, 1, v.ID); err != nil {
			t.Error(err)
		}
	})
}

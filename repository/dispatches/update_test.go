package dispatches_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	. "firsttap/repository/repositorytest"
)

// fill gives every optional field of a dispatch a value, with whatever may get lost on the way.
func fill(d *dispatch.Dispatch) {
	d.ExternalID = "ERP/4711 한국"
	d.MinWorkingHeightM = new(16.05)
	d.Site = dispatch.Site{Address: "서울 중구 세종대로 110 \\ 'a' \"b\" 🏗", Lat: new(37.56655555555555), Lng: new(-126.97796666666667)}
	d.Fee = dispatch.Money{Amount: 1<<62 + 1, Currency: "JPY"}
	d.Note = "line\nline\ttab %_!? \x00"
	d.WorkStartsAt = time.Date(2100, 2, 28, 23, 59, 59, 999_999_000, time.UTC)
	d.WorkEndsAt = time.Date(2101, 2, 28, 0, 0, 0, 1_000, time.UTC)
}

func TestCreateRoundTrip(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		zero := func(d *dispatch.Dispatch) {
			d.MinWorkingHeightM, d.Site.Lat, d.Site.Lng = new(0.0), new(0.0), new(0.0)
			d.Fee, d.Note, d.ExternalID = dispatch.Money{Currency: "KRW"}, "", ""
			d.WorkStartsAt, d.WorkEndsAt = time.UnixMicro(0).UTC(), time.UnixMicro(-1).UTC()
		}
		for _, edit := range []func(*dispatch.Dispatch){fill, nil, zero} {
			d := db.Add(t, edit)
			db.MustStore(t, d)
			db.MustCount(t, 1, "events WHERE dispatch_id = ? AND next_at IS NOT NULL", d.ID)
		}
	})
}

func TestCreateIsByTheDatabasesClock(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		before := time.Now()
		d := db.Add(t, nil)
		// The server runs on this machine: its clock is ours.
		if d.CreatedAt.Before(before.Truncate(time.Microsecond)) || d.CreatedAt.After(time.Now()) {
			t.Errorf("created at %v, asked at %v", d.CreatedAt, before)
		}
		if d.CreatedAt.Location() != time.UTC {
			t.Errorf("in %v", d.CreatedAt.Location())
		}
	})
}

func TestDuplicateExternalID(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		create := func(externalID string) error {
			return ErrorOf(db.Create(t.Context(), Offering(externalID)))
		}
		MustWinOnce(t, 8, dispatch.ErrDuplicateExternalID, func(int) error { return create("ERP-1") })
		for _, other := range []string{"erp-1", "ERP-10", "", ""} {
			if err := create(other); err != nil {
				t.Errorf("%q: %v", other, err)
			}
		}
		db.MustHold(t, 0, dispatch.EventCreated, 5)
	})
}

// A client repeats a creation, and a dispatch has its external_id. That may be the dispatch of the client's first request. If the database
// can't say so, the answer is "not known", and not that another dispatch has the external_id.
func TestDuplicateExternalIDOfARepeatedCreation(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		Must(t, ErrorOf(db.Create(t.Context(), Offering("ERP-1"))))
		ctx, cancel := context.WithCancel(idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now())))
		defer cancel()
		cut := db.With(t, func(o *repository.Options) {
			o.Observer = func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				return ctx, func(err error) {
					if s.Operation == "insert" && err != nil {
						cancel()
					}
				}
			}
		})
		_, err := cut.Create(ctx, Offering("ERP-1"))
		MustBeError(t, "a creation that can't be looked up", err, dispatch.ErrUnknown)
		if errors.Is(err, dispatch.ErrDuplicateExternalID) {
			t.Errorf("%v says who has the external_id", err)
		}
	})
}

func TestCreateThatFails(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		no := errors.New("no")
		_, err := db.Create(t.Context(), func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			return dispatch.Dispatch{}, nil, no
		})
		MustBeError(t, "the rule's error", err, no)
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			d, events, err := Offering("")(now)
			return d, append(events, events...), err
		})
		MustBeError(t, "the same event twice", err, dispatch.ErrUnavailable)
		db.MustCount(t, 0, "dispatches")
		db.MustHold(t, 0, dispatch.EventCreated, 0)
		MustBeError(t, "an unknown dispatch", ErrorOf(db.Dispatch(t.Context(), dispatch.NewID(time.Now()))), dispatch.ErrNotFound)
	})
}

func TestUpdatesAreNotLost(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		const n = 20
		MustAll(t, n, func(int) error {
			return ErrorOf(db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				d.Fee.Amount++
				return Touch(d, now)
			}))
		})
		got := db.MustRead(t, d.ID)
		if got.Version != d.Version+n || got.Fee.Amount != d.Fee.Amount+n {
			t.Errorf("version %d and fee %d after %d updates of %d and %d", got.Version, got.Fee.Amount, n, d.Version, d.Fee.Amount)
		}
		db.MustHold(t, 0, dispatch.EventUpdated, n)
	})
}

// save's own conditions: they hold where the row lock doesn't.
func TestSaveRefusesAStaleDispatch(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		now := d.CreatedAt
		for _, column := range []string{"round", "version"} {
			stale := d
			db.Exec(t, "UPDATE dispatches SET "+column+" = "+column+" + 1")
			after := stale
			after.Note = "overwritten"
			err := db.WriteChange(db.Decide.With(t.Context()), stale, after, []dispatch.Event{{ID: dispatch.NewEventID(now)}}, 0)
			MustBeError(t, "save after another "+column, err, dispatch.ErrUnavailable)
			if d = db.MustRead(t, d.ID); d.Note != "" {
				t.Errorf("%s moved, and the row is overwritten", column)
			}
		}
		db.MustHold(t, 0, "", 0)
	})
}

func TestUpdateThatFails(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		no := errors.New("no")
		_, err := db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			d.Note, d.Version = "changed", 2
			return []dispatch.Event{{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID}}, no
		})
		MustBeError(t, "a change that is refused", err, no)
		_, err = db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			d.Note, d.Version = "changed", 2
			e := dispatch.Event{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID}
			return []dispatch.Event{e, e}, nil // the second can't be written
		})
		MustBeError(t, "an event that can't be written", err, dispatch.ErrUnavailable)
		_, err = db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, _ time.Time) ([]dispatch.Event, error) {
			d.Note = "changed"
			return nil, nil // nothing happened
		})
		Must(t, err)
		if got := db.MustRead(t, d.ID); !reflect.DeepEqual(got, d) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		db.MustHold(t, 0, dispatch.EventUpdated, 0)
		_, err = db.Update(t.Context(), dispatch.NewID(time.Now()), func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
			t.Error("a dispatch that does not exist was changed")
			return nil, nil
		})
		MustBeError(t, "an unknown dispatch", err, dispatch.ErrNotFound)
	})
}

func TestUpdateThatPanicsReleasesItsLocks(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { panic("broken") })
		}()
		ended := Begin(func() error { return ErrorOf(db.Update(t.Context(), d.ID, Cancel)) })
		if err := testkit.Await(t, "the next change", ended); err != nil {
			t.Errorf("the next change: %v", err)
		}
	})
}

func TestALife(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		a, b := drivers[0].ID, drivers[1].ID
		d := db.Add(t, func(d *dispatch.Dispatch) { d.Note = "ring twice" })
		db.MustAccept(t, d.ID, a)
		given := db.MustUpdate(t, d.ID, Withdraw)
		if given.Status != dispatch.Pending || given.Round != 2 || given.Version != 3 || given.Claim != nil {
			t.Errorf("after the withdrawal: %+v", given)
		}
		db.MustCount(t, 1, "dispatches WHERE claim_id IS NULL AND accepted_by IS NULL AND accepted_at IS NULL AND status = 'PENDING'")
		db.MustOutcome(t, given, a, dispatch.OutcomeWithdrawn)
		second := db.MustAccept(t, d.ID, b)
		if db.MustOutcome(t, second, b, dispatch.OutcomeWon); second.Claim.Round != 2 {
			t.Errorf("the second claim is %+v", second.Claim)
		}
		for i, step := range []Change{Start, Start, Complete} {
			got := db.MustUpdate(t, d.ID, step)
			if stored := db.MustRead(t, d.ID); !reflect.DeepEqual(stored, got) {
				t.Errorf("step %d stored\n%+v, returned\n%+v", i, stored, got)
			}
		}
		if got := db.MustRead(t, d.ID); got.Status != dispatch.Completed || !got.HeldBy(b) || got.Version != 6 || got.Note != "ring twice" {
			t.Errorf("in the end: %+v", got)
		}
		want := []string{
			"dispatch.created 1 - system ",
			fmt.Sprintf("dispatch.accepted 1 %s %s ", a, a),
			fmt.Sprintf("dispatch.withdrawn 1 %s %s SICK", a, a),
			"dispatch.reopened 2 - system ",
			fmt.Sprintf("dispatch.accepted 2 %s %s ", b, b),
			fmt.Sprintf("dispatch.started 2 %s %s ", b, b),
			fmt.Sprintf("dispatch.completed 2 %s %s ", b, b),
		}
		testkit.Equal(t, "the trail", want, db.Trail(t, d.ID))
	})
}

func TestCancelEndsTheClaim(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		v := drivers[0].ID
		d, other := db.Add(t, nil), db.Add(t, nil)
		db.MustAccept(t, d.ID, v)
		db.MustAccept(t, other.ID, drivers[1].ID)
		got := db.MustUpdate(t, d.ID, Cancel)
		if got.Status != dispatch.Canceled || !got.HeldBy(v) {
			t.Errorf("got %+v", got)
		}
		db.MustOutcome(t, got, v, dispatch.OutcomeCanceled)
		db.MustCount(t, 1, "claims WHERE outcome = 'WON' AND ended_at IS NULL")
		// The hours are the driver's again.
		db.MustAccept(t, db.Add(t, nil).ID, v)
		_, err := db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Cancel(2, "key_1", "", now)
		})
		MustBeError(t, "a change of an earlier version", err, dispatch.ErrVersionConflict)
	})
}

func TestUpdateWritesZeroValues(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		full := db.Add(t, fill)
		got := db.MustUpdate(t, full.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			terms := dispatch.Terms{WorkStartsAt: d.WorkStartsAt, WorkEndsAt: d.WorkEndsAt}
			d.ExternalID, d.Terms, d.Version = "", terms, d.Version+1
			return []dispatch.Event{{ID: dispatch.NewEventID(now), Dispatch: d.ID, At: now}}, nil
		})
		if stored := db.MustRead(t, full.ID); !reflect.DeepEqual(stored, got) || stored.Note != "" || stored.MinWorkingHeightM != nil {
			t.Errorf("stored\n%+v, want\n%+v", stored, got)
		}
		db.MustCount(t, 1, "dispatches WHERE external_id IS NULL AND site_lat IS NULL AND fee_amount = 0")
	})
}

func TestReannounce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0].ID
		say := func(round int, quiet time.Duration, want bool) {
			t.Helper()
			if told, err := db.Reannounce(t.Context(), d.ID, round, quiet); err != nil || told != want {
				t.Errorf("got %v, %v; want %v", told, err, want)
			}
		}
		// wait fails the test unless the next announcement has to wait for times as long as quiet, less what has passed.
		wait := func(quiet, times time.Duration) {
			t.Helper()
			var soon *dispatch.AnnouncedRecentlyError
			told, err := db.Reannounce(t.Context(), d.ID, 0, quiet)
			if !errors.As(err, &soon) || told || soon.Wait > quiet*times || soon.Wait < quiet*(times-1) {
				t.Errorf("got %v, %v; want to wait for %d times %s", told, err, times, quiet)
			}
		}
		say(2, time.Hour, false) // not that round
		var told atomic.Int32
		testkit.Together(10, func(int) {
			switch ok, err := db.Reannounce(t.Context(), d.ID, 1, time.Hour); {
			case errors.As(err, new(*dispatch.AnnouncedRecentlyError)):
			case err != nil:
				t.Error(err)
			case ok:
				told.Add(1)
			}
		})
		if told.Load() != 1 {
			t.Errorf("announced %d times", told.Load())
		}
		db.MustHold(t, 0, dispatch.EventOpened, 1)
		wait(time.Hour, 1)
		say(0, 0, true) // the quiet is over
		wait(time.Hour, 2)
		if got := db.MustRead(t, d.ID); got.Version != d.Version {
			t.Errorf("version %d, was %d: an admin's change would be refused, and nothing has changed", got.Version, d.Version)
		}
		db.MustHold(t, 0, dispatch.EventOpened, 2)
		if got := db.Trail(t, d.ID); got[len(got)-1] != "dispatch.opened 1 - system CLAIM_FAILED" {
			t.Errorf("the trail is %q", got)
		}
		db.MustAccept(t, d.ID, v)
		say(0, 0, false) // taken
		say(1, 0, false)
		db.MustUpdate(t, d.ID, Withdraw)
		say(1, 0, false)   // of a round that is over
		wait(time.Hour, 2) // a new round does not end the quiet
		db.Exec(t, "UPDATE events SET at = at - ?", dispatches.ReannouncedFor.Microseconds())
		say(2, time.Hour, true)
		early := db.Add(t, func(d *dispatch.Dispatch) { d.OpensAt = d.OpensAt.Add(2 * time.Minute) })
		MustBeError(t, "before the opening", ErrorOf(db.Reannounce(t.Context(), early.ID, 1, 0)), dispatch.ErrNotOpenYet)
		MustBeError(t, "an unknown dispatch", ErrorOf(db.Reannounce(t.Context(), dispatch.NewID(time.Now()), 0, 0)), dispatch.ErrNotFound)
	})
}

// A change that had to wait for the row is made at a time after what it waited for.
func TestUpdateReadsTheTimeUnderTheLock(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		_, release := db.Hold(t, d.ID)
		var at time.Time
		ended := Begin(func() error {
			return ErrorOf(db.Update(t.Context(), d.ID, func(_ *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				at = now
				return nil, nil
			}))
		})
		db.Waiting(t)
		free := db.Now(t)
		release()
		if err := <-ended; err != nil || at.Before(free) {
			t.Errorf("%v; the change is of %s, and the row was held until after %s", err, at, free)
		}
	})
}

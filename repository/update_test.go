package repository

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/testkit"
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
	each(t, func(t *testing.T, db *database) {
		zero := func(d *dispatch.Dispatch) {
			d.MinWorkingHeightM, d.Site.Lat, d.Site.Lng = new(0.0), new(0.0), new(0.0)
			d.Fee, d.Note, d.ExternalID = dispatch.Money{Currency: "KRW"}, "", ""
			d.WorkStartsAt, d.WorkEndsAt = time.UnixMicro(0).UTC(), time.UnixMicro(-1).UTC()
		}
		for _, edit := range []func(*dispatch.Dispatch){fill, nil, zero} {
			d := db.add(t, edit)
			db.mustStore(t, d)
			db.mustCount(t, 1, "events WHERE dispatch_id = ? AND next_at IS NOT NULL", d.ID)
		}
	})
}

func TestCreateIsByTheDatabasesClock(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		before := time.Now()
		d := db.add(t, nil)
		// The server runs on this machine: its clock is ours.
		if d.CreatedAt.Before(before.Truncate(time.Microsecond)) || d.CreatedAt.After(time.Now()) {
			t.Errorf("created at %v, asked at %v", d.CreatedAt, before)
		}
		if d.CreatedAt.Location() != time.UTC {
			t.Errorf("in %v", d.CreatedAt.Location())
		}
	})
}

// offering is a dispatch that is open for an hour from now.
func offering(externalID string) func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
	return func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
		d, events := dispatch.New(dispatch.NewID(now), externalID, someTerms(now), w, dispatch.System, now)
		return d, events, nil
	}
}

func TestDuplicateExternalID(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		create := func(externalID string) error { return errorOf(db.Create(t.Context(), offering(externalID))) }
		mustWinOnce(t, 8, dispatch.ErrDuplicateExternalID, func(int) error { return create("ERP-1") })
		for _, other := range []string{"erp-1", "ERP-10", "", ""} {
			if err := create(other); err != nil {
				t.Errorf("%q: %v", other, err)
			}
		}
		db.mustHold(t, 0, dispatch.EventCreated, 5)
	})
}

// A client repeats a creation, and a dispatch has its external_id. That may be the dispatch of the client's first request. If the database
// can't say so, the answer is "not known", and not that another dispatch has the external_id.
func TestDuplicateExternalIDOfARepeatedCreation(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		must(t, errorOf(db.Create(t.Context(), offering("ERP-1"))))
		general, err := db.serve.DB()
		must(t, err)
		repeated := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
		build := offering("ERP-1")
		_, err = db.Create(repeated, func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			must(t, general.Close())
			return build(now)
		})
		mustBeError(t, "a creation that can't be looked up", err, dispatch.ErrUnknown)
		if errors.Is(err, dispatch.ErrDuplicateExternalID) {
			t.Errorf("%v says who has the external_id", err)
		}
	})
}

func TestCreateThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		no := errors.New("no")
		_, err := db.Create(t.Context(), func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			return dispatch.Dispatch{}, nil, no
		})
		mustBeError(t, "the rule's error", err, no)
		_, err = db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
			d, events, err := offering("")(now)
			return d, append(events, events...), err
		})
		mustBeError(t, "the same event twice", err, dispatch.ErrUnavailable)
		db.mustCount(t, 0, "dispatches")
		db.mustHold(t, 0, dispatch.EventCreated, 0)
		mustBeError(t, "an unknown dispatch", errorOf(db.Dispatch(t.Context(), dispatch.NewID(time.Now()))), dispatch.ErrNotFound)
	})
}

func TestUpdatesAreNotLost(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		const n = 20
		mustAll(t, n, func(int) error {
			return errorOf(db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				d.Fee.Amount++
				return touch(d, now)
			}))
		})
		got := db.mustRead(t, d.ID)
		if got.Version != d.Version+n || got.Fee.Amount != d.Fee.Amount+n {
			t.Errorf("version %d and fee %d after %d updates of %d and %d", got.Version, got.Fee.Amount, n, d.Version, d.Fee.Amount)
		}
		db.mustHold(t, 0, dispatch.EventUpdated, n)
	})
}

// save's own conditions: they hold where the row lock doesn't.
func TestSaveRefusesAStaleDispatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		now := d.CreatedAt
		for _, column := range []string{"round", "version"} {
			stale := d
			db.exec(t, "UPDATE dispatches SET "+column+" = "+column+" + 1")
			after := stale
			after.Note = "overwritten"
			row := toDispatchRow(stale)
			err := db.save(db.decide.WithContext(t.Context()), &row, stale, after, []dispatch.Event{{ID: dispatch.NewEventID(now)}}, 0)
			mustBeError(t, "save after another "+column, err, dispatch.ErrUnavailable)
			if d = db.mustRead(t, d.ID); d.Note != "" {
				t.Errorf("%s moved, and the row is overwritten", column)
			}
		}
		db.mustHold(t, 0, "", 0)
	})
}

func TestUpdateThatFails(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		no := errors.New("no")
		_, err := db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			d.Note, d.Version = "changed", 2
			return []dispatch.Event{{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID}}, no
		})
		mustBeError(t, "a change that is refused", err, no)
		_, err = db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			d.Note, d.Version = "changed", 2
			e := dispatch.Event{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID}
			return []dispatch.Event{e, e}, nil // the second can't be written
		})
		mustBeError(t, "an event that can't be written", err, dispatch.ErrUnavailable)
		_, err = db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, _ time.Time) ([]dispatch.Event, error) {
			d.Note = "changed"
			return nil, nil // nothing happened
		})
		must(t, err)
		if got := db.mustRead(t, d.ID); !reflect.DeepEqual(got, d) {
			t.Errorf("the dispatch is %+v, was %+v", got, d)
		}
		db.mustHold(t, 0, dispatch.EventUpdated, 0)
		_, err = db.Update(t.Context(), dispatch.NewID(time.Now()), func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
			t.Error("a dispatch that does not exist was changed")
			return nil, nil
		})
		mustBeError(t, "an unknown dispatch", err, dispatch.ErrNotFound)
	})
}

func TestUpdateThatPanicsReleasesItsLocks(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { panic("broken") })
		}()
		ended := begin(func() error { return errorOf(db.Update(t.Context(), d.ID, cancel)) })
		if err := testkit.Await(t, "the next change", ended); err != nil {
			t.Errorf("the next change: %v", err)
		}
	})
}

// trail returns a dispatch's events that are to be expanded, in order.
func (db *database) trail(t *testing.T, id dispatch.ID) []string {
	t.Helper()
	var rows []struct {
		Type, Driver, Actor, Reason string
		Round                       int
	}
	must(t, db.serve.Raw(`SELECT e.type, e.round, COALESCE(e.driver_id, '-') driver, e.actor, e.reason_code reason
		FROM events e WHERE e.dispatch_id = ? AND e.next_at IS NOT NULL ORDER BY e.id`, id).Scan(&rows).Error)
	trail := make([]string, len(rows))
	for i, e := range rows {
		trail[i] = fmt.Sprintf("%s %d %s %s %s", e.Type, e.Round, e.Driver, e.Actor, e.Reason)
	}
	return trail
}

func TestALife(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		a, b := drivers[0].ID, drivers[1].ID
		d := db.add(t, func(d *dispatch.Dispatch) { d.Note = "ring twice" })
		db.mustAccept(t, d.ID, a)
		given := db.mustUpdate(t, d.ID, withdraw)
		if given.Status != dispatch.Pending || given.Round != 2 || given.Version != 3 || given.Claim != nil {
			t.Errorf("after the withdrawal: %+v", given)
		}
		db.mustCount(t, 1, "dispatches WHERE claim_id IS NULL AND accepted_by IS NULL AND accepted_at IS NULL AND status = 'PENDING'")
		db.mustOutcome(t, given, a, dispatch.OutcomeWithdrawn)
		second := db.mustAccept(t, d.ID, b)
		if db.mustOutcome(t, second, b, dispatch.OutcomeWon); second.Claim.Round != 2 {
			t.Errorf("the second claim is %+v", second.Claim)
		}
		for i, step := range []change{start, start, complete} {
			got := db.mustUpdate(t, d.ID, step)
			if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, got) {
				t.Errorf("step %d stored\n%+v, returned\n%+v", i, stored, got)
			}
		}
		if got := db.mustRead(t, d.ID); got.Status != dispatch.Completed || !got.HeldBy(b) || got.Version != 6 || got.Note != "ring twice" {
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
		testkit.Equal(t, "the trail", want, db.trail(t, d.ID))
	})
}

func TestCancelEndsTheClaim(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v := drivers[0].ID
		d, other := db.add(t, nil), db.add(t, nil)
		db.mustAccept(t, d.ID, v)
		db.mustAccept(t, other.ID, drivers[1].ID)
		got := db.mustUpdate(t, d.ID, cancel)
		if got.Status != dispatch.Canceled || !got.HeldBy(v) {
			t.Errorf("got %+v", got)
		}
		db.mustOutcome(t, got, v, dispatch.OutcomeCanceled)
		db.mustCount(t, 1, "claims WHERE outcome = 'WON' AND ended_at IS NULL")
		// The hours are the driver's again.
		db.mustAccept(t, db.add(t, nil).ID, v)
		_, err := db.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Cancel(2, "key_1", "", now)
		})
		mustBeError(t, "a change of an earlier version", err, dispatch.ErrVersionConflict)
	})
}

func TestUpdateWritesZeroValues(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		full := db.add(t, fill)
		got := db.mustUpdate(t, full.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			terms := dispatch.Terms{WorkStartsAt: d.WorkStartsAt, WorkEndsAt: d.WorkEndsAt}
			d.ExternalID, d.Terms, d.Version = "", terms, d.Version+1
			return []dispatch.Event{{ID: dispatch.NewEventID(now), Dispatch: d.ID, At: now}}, nil
		})
		if stored := db.mustRead(t, full.ID); !reflect.DeepEqual(stored, got) || stored.Note != "" || stored.MinWorkingHeightM != nil {
			t.Errorf("stored\n%+v, want\n%+v", stored, got)
		}
		db.mustCount(t, 1, "dispatches WHERE external_id IS NULL AND site_lat IS NULL AND fee_amount = 0")
	})
}

func TestReannounce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0].ID
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
		db.mustHold(t, 0, dispatch.EventOpened, 1)
		wait(time.Hour, 1)
		say(0, 0, true) // the quiet is over
		wait(time.Hour, 2)
		if got := db.mustRead(t, d.ID); got.Version != d.Version {
			t.Errorf("version %d, was %d: an admin's change would be refused, and nothing has changed", got.Version, d.Version)
		}
		db.mustHold(t, 0, dispatch.EventOpened, 2)
		if got := db.trail(t, d.ID); got[len(got)-1] != "dispatch.opened 1 - system CLAIM_FAILED" {
			t.Errorf("the trail is %q", got)
		}
		db.mustAccept(t, d.ID, v)
		say(0, 0, false) // taken
		say(1, 0, false)
		db.mustUpdate(t, d.ID, withdraw)
		say(1, 0, false)   // of a round that is over
		wait(time.Hour, 2) // a new round does not end the quiet
		db.exec(t, "UPDATE events SET at = at - ?", reannouncedFor.Microseconds())
		say(2, time.Hour, true)
		early := db.add(t, func(d *dispatch.Dispatch) { d.OpensAt = d.OpensAt.Add(2 * time.Minute) })
		mustBeError(t, "before the opening", errorOf(db.Reannounce(t.Context(), early.ID, 1, 0)), dispatch.ErrNotOpenYet)
		mustBeError(t, "an unknown dispatch", errorOf(db.Reannounce(t.Context(), dispatch.NewID(time.Now()), 0, 0)), dispatch.ErrNotFound)
	})
}

// A change that had to wait for the row is made at a time after what it waited for.
func TestUpdateReadsTheTimeUnderTheLock(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		_, release := db.hold(t, d.ID)
		var at time.Time
		ended := begin(func() error {
			return errorOf(db.Update(t.Context(), d.ID, func(_ *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				at = now
				return nil, nil
			}))
		})
		db.waiting(t)
		free := db.now(t)
		release()
		if err := <-ended; err != nil || at.Before(free) {
			t.Errorf("%v; the change is of %s, and the row was held until after %s", err, at, free)
		}
	})
}

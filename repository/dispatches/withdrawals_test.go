package dispatches_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// TestWithdrawalsAreCounted: those of a driver and those of a dispatch count for an hour, and no others.
func TestWithdrawalsAreCounted(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		cyd, dan := v[0].ID, v[1].ID
		d := db.Add(t, nil)
		var often *dispatch.TooManyWithdrawalsError
		for range dispatch.MaxWithdrawalsPerDispatch {
			db.TakeAndGiveBack(t, d.ID, cyd)
		}
		held := db.Take(t, d.ID, cyd)
		if _, err := db.GiveBack(t, d.ID, cyd); !errors.As(err, &often) || often.Wait <= 0 || often.Wait > dispatch.WithdrawalPeriod {
			t.Fatalf("the third withdrawal from one dispatch: %v", err)
		}
		if got := db.MustRead(t, d.ID); got.Version != held.Version || !got.HeldBy(cyd) {
			t.Errorf("refused, and it changed: %+v", got)
		}
		db.Exec(t, "UPDATE claims SET ended_at = ended_at - ? WHERE driver_id = ? AND round = 1", dispatch.WithdrawalPeriod.Microseconds(), cyd)
		if _, err := db.GiveBack(t, d.ID, cyd); err != nil {
			t.Errorf("the first is an hour old: %v", err)
		}
		db.TakeAndGiveBack(t, d.ID, dan)
		for range dispatch.MaxWithdrawalsPerDriver - 1 {
			db.TakeAndGiveBack(t, db.Add(t, nil).ID, dan)
		}
		last := db.Add(t, nil)
		db.Take(t, last.ID, dan)
		if _, err := db.GiveBack(t, last.ID, dan); !errors.As(err, &often) {
			t.Errorf("the sixth withdrawal of one driver: %v", err)
		}
		MustBeError(t, "by another driver", ErrorOf(db.GiveBack(t, last.ID, cyd)), dispatch.ErrNotHolder)
	})
}

// TestWithdrawalsAtOnceAreCounted: of many at the same time, no more get through than one after the other.
func TestWithdrawalsAtOnceAreCounted(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		ids := make([]dispatch.ID, dispatch.MaxWithdrawalsPerDriver+3)
		for i := range ids {
			ids[i] = db.Add(t, nil).ID
			db.Take(t, ids[i], v)
		}
		var done atomic.Int32
		testkit.Together(len(ids), func(i int) {
			switch _, err := db.GiveBack(t, ids[i], v); {
			case err == nil:
				done.Add(1)
			case !errors.Is(err, dispatch.ErrTooManyWithdrawals):
				t.Error(err)
			}
		})
		if n := done.Load(); n != dispatch.MaxWithdrawalsPerDriver {
			t.Errorf("%d withdrawals got through, want %d", n, dispatch.MaxWithdrawalsPerDriver)
		}
	})
}

// TestReopenedIsPushedLater: the event of a round that a second withdrawal opened is leased to no relay before its time. The event of
// the first such round is leased at once.
func TestReopenedIsPushedLater(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		teller := db.With(t, func(o *repository.Options) { o.OutboxOwner, o.OutboxLease = "ins_a", Term })
		var h Heard
		h.Listen(t, teller)
		reopened := func() dispatch.Event { return h.Events[len(h.Events)-1] }
		v := db.Fleet(t, 2)
		d := teller.Add(t, nil)

		teller.TakeAndGiveBack(t, d.ID, v[0].ID)
		first := reopened()
		testkit.Equal(t, "the lease of the first withdrawal", EventLease{Claim: "ins_a", NextAt: database.Micros(first.At.Add(Term))}, db.LeaseOf(t, first.ID))

		teller.TakeAndGiveBack(t, d.ID, v[1].ID)
		second := reopened()
		if wait := second.PushAt.Sub(first.At); second.Type != dispatch.EventReopened || wait < 19*time.Second || wait > 20*time.Second {
			t.Errorf("%+v is pushed %s after the first withdrawal, want 20 s", second, wait)
		}
		testkit.Equal(t, "the lease of the second", EventLease{Claim: "", NextAt: database.Micros(second.PushAt)}, db.LeaseOf(t, second.ID))
		MustBeError(t, "announced at once", ErrorOf(teller.As("ins_a").ExpandFully(t.Context(), second.ID, 10)), dispatch.ErrNotLeased)
		db.Exec(t, "UPDATE events SET next_at = next_at - ? WHERE id = ?", (20 * time.Second).Microseconds(), second.ID)
		other := db.As("ins_b")
		if leased := other.MustLeaseEvents(t, 10, 1); leased[0] != second.ID {
			t.Fatalf("when the time has come, %s was leased", leased[0])
		}
		if told, err := other.ExpandFully(t.Context(), second.ID, 10); err != nil || told.Dropped != 0 {
			t.Errorf("%+v, %v", told, err)
		}
	})
}

// TestPushedLaterIsOvertaken: a delayed push is not sent if the dispatch has been taken meanwhile.
func TestPushedLaterIsOvertaken(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		for _, driver := range v {
			db.Device(t, driver.ID, nil)
		}
		d := db.Add(t, nil)
		for _, driver := range v {
			db.TakeAndGiveBack(t, d.ID, driver.ID)
		}
		db.Take(t, d.ID, v[0].ID)
		db.Exec(t, "UPDATE events SET next_at = 0")
		o := db.As("ins_a")
		leased, err := o.LeaseEvents(t.Context(), 100)
		Must(t, err)
		for _, id := range leased {
			Must(t, ErrorOf(o.ExpandFully(t.Context(), id, 0)))
		}
		db.MustCount(t, 0, "notifications WHERE type = 'dispatch.reopened'")
	})
}

// TestChangesOfTermsAreDamped: of changes of terms in a row the first is pushed at once. The others wait, each in the place of the one
// before, and a change of the window alone delays nothing.
func TestChangesOfTermsAreDamped(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		for i := range 30 {
			d = db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				if i%10 == 5 {
					return d.Extend(d.Version, d.ExpiresAt.Add(time.Second), "key_1", now)
				}
				terms := d.Terms
				terms.Fee.Amount++
				return d.Update(d.Version, terms, d.Window, "key_1", now)
			})
		}
		late := fmt.Sprintf("events WHERE dispatch_id = '%s' AND type = 'dispatch.updated' AND next_at > at + %d", d.ID, (10 * time.Second).Microseconds())
		db.MustCount(t, 26, late) // of 27 changes of terms
		db.MustCount(t, 1, "(SELECT DISTINCT next_at FROM "+late+") times")
	})
}

package repository

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// giveBack withdraws within the limits.
func (db *database) giveBack(t testing.TB, id dispatch.ID, v dispatch.DriverID) (dispatch.Dispatch, error) {
	t.Helper()
	return db.Withdraw(t.Context(), id, v, func(d *dispatch.Dispatch, past dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
		if err := past.Check(now); err != nil {
			return nil, err
		}
		return d.Withdraw(v, "SICK", now)
	})
}

// whateverElse accepts the dispatch in its current round, whatever else the driver has or has given back.
func whateverElse(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
	c.Busy, c.Withdrew = false, false
	return d.Accept(c, 0, dispatch.NewClaimID(now), now)
}

func (db *database) take(t testing.TB, id dispatch.ID, v dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	d, err := db.Claim(t.Context(), id, v, whateverElse)
	must(t, err)
	return d
}

// takeAndGiveBack fails the test unless the driver gets the dispatch and may withdraw.
func (db *database) takeAndGiveBack(t testing.TB, id dispatch.ID, v dispatch.DriverID) {
	t.Helper()
	db.take(t, id, v)
	must(t, errorOf(db.giveBack(t, id, v)))
}

// TestWithdrawalsAreCounted: those of a driver and those of a dispatch count for an hour, and no others.
func TestWithdrawalsAreCounted(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 2)
		cyd, dan := v[0].ID, v[1].ID
		d := db.add(t, nil)
		var often *dispatch.TooManyWithdrawalsError
		for range dispatch.MaxWithdrawalsPerDispatch {
			db.takeAndGiveBack(t, d.ID, cyd)
		}
		held := db.take(t, d.ID, cyd)
		if _, err := db.giveBack(t, d.ID, cyd); !errors.As(err, &often) || often.Wait <= 0 || often.Wait > dispatch.WithdrawalPeriod {
			t.Fatalf("the third withdrawal from one dispatch: %v", err)
		}
		if got := db.mustRead(t, d.ID); got.Version != held.Version || !got.HeldBy(cyd) {
			t.Errorf("refused, and it changed: %+v", got)
		}
		db.exec(t, "UPDATE claims SET ended_at = ended_at - ? WHERE driver_id = ? AND round = 1", dispatch.WithdrawalPeriod.Microseconds(), cyd)
		if _, err := db.giveBack(t, d.ID, cyd); err != nil {
			t.Errorf("the first is an hour old: %v", err)
		}
		db.takeAndGiveBack(t, d.ID, dan)
		for range dispatch.MaxWithdrawalsPerDriver - 1 {
			db.takeAndGiveBack(t, db.add(t, nil).ID, dan)
		}
		last := db.add(t, nil)
		db.take(t, last.ID, dan)
		if _, err := db.giveBack(t, last.ID, dan); !errors.As(err, &often) {
			t.Errorf("the sixth withdrawal of one driver: %v", err)
		}
		mustBeError(t, "by another driver", errorOf(db.giveBack(t, last.ID, cyd)), dispatch.ErrNotHolder)
	})
}

// TestWithdrawalsAtOnceAreCounted: of many at the same time, no more get through than one after the other.
func TestWithdrawalsAtOnceAreCounted(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		ids := make([]dispatch.ID, dispatch.MaxWithdrawalsPerDriver+3)
		for i := range ids {
			ids[i] = db.add(t, nil).ID
			db.take(t, ids[i], v)
		}
		var done atomic.Int32
		testkit.Together(len(ids), func(i int) {
			switch _, err := db.giveBack(t, ids[i], v); {
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
	each(t, func(t *testing.T, db *database) {
		teller := db.by(open(t, db.url))
		teller.options.OutboxOwner, teller.options.OutboxLease = "ins_a", term
		var h heard
		h.listen(t, teller)
		reopened := func() dispatch.Event { return h.events[len(h.events)-1] }
		v := db.drivers(t, 2)
		d := teller.add(t, nil)

		teller.takeAndGiveBack(t, d.ID, v[0].ID)
		first := reopened()
		testkit.Equal(t, "the lease of the first withdrawal", eventLease{"ins_a", micros(first.At.Add(term))}, db.leaseOf(t, first.ID))

		teller.takeAndGiveBack(t, d.ID, v[1].ID)
		second := reopened()
		if wait := second.PushAt.Sub(first.At); second.Type != dispatch.EventReopened || wait < 19*time.Second || wait > 20*time.Second {
			t.Errorf("%+v is pushed %s after the first withdrawal, want 20 s", second, wait)
		}
		testkit.Equal(t, "the lease of the second", eventLease{"", micros(second.PushAt)}, db.leaseOf(t, second.ID))
		mustBeError(t, "announced at once", errorOf(teller.as("ins_a").expandFully(t.Context(), second.ID, 10)), dispatch.ErrNotLeased)
		db.exec(t, "UPDATE events SET next_at = next_at - ? WHERE id = ?", (20 * time.Second).Microseconds(), second.ID)
		other := db.as("ins_b")
		if leased := other.mustLeaseEvents(t, 10, 1); leased[0] != second.ID {
			t.Fatalf("when the time has come, %s was leased", leased[0])
		}
		if told, err := other.expandFully(t.Context(), second.ID, 10); err != nil || told.Dropped != 0 {
			t.Errorf("%+v, %v", told, err)
		}
	})
}

// TestPushedLaterIsOvertaken: a delayed push is not sent if the dispatch has been taken meanwhile.
func TestPushedLaterIsOvertaken(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 2)
		for _, driver := range v {
			db.device(t, driver.ID, nil)
		}
		d := db.add(t, nil)
		for _, driver := range v {
			db.takeAndGiveBack(t, d.ID, driver.ID)
		}
		db.take(t, d.ID, v[0].ID)
		db.exec(t, "UPDATE events SET next_at = 0")
		o := db.as("ins_a")
		leased, err := o.LeaseEvents(t.Context(), 100)
		must(t, err)
		for _, id := range leased {
			must(t, errorOf(o.expandFully(t.Context(), id, 0)))
		}
		db.mustCount(t, 0, "notifications WHERE type = 'dispatch.reopened'")
	})
}

// TestChangesOfTermsAreDamped: of changes of terms in a row the first is pushed at once. The others wait, each in the place of the one
// before, and a change of the window alone delays nothing.
func TestChangesOfTermsAreDamped(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		for i := range 30 {
			d = db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				if i%10 == 5 {
					return d.Extend(d.Version, d.ExpiresAt.Add(time.Second), "key_1", now)
				}
				terms := d.Terms
				terms.Fee.Amount++
				return d.Update(d.Version, terms, d.Window, "key_1", now)
			})
		}
		late := fmt.Sprintf("events WHERE dispatch_id = '%s' AND type = 'dispatch.updated' AND next_at > at + %d", d.ID, (10 * time.Second).Microseconds())
		db.mustCount(t, 26, late) // of 27 changes of terms
		db.mustCount(t, 1, "(SELECT DISTINCT next_at FROM "+late+") times")
	})
}

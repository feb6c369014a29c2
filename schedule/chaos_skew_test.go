package schedule_test

import (
	"runtime"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/testkit"
)

// The clock of one instance of two is 3 s ahead of the other's, or behind, which is more than a job's period. Each slot runs once,
// and not before its time by the database's clock. When the other has ended, the instance runs one slot after the other, which
// it may only begin on time.
func TestSkewedClock(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: sets the clock of a process on amd64 only")
	}
	t.Parallel()
	for _, skew := range []time.Duration{3 * time.Second, -3 * time.Second}[:testkit.Scale(1, 2)] {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			skewed(t, skew)
		})
	}
}

const (
	// skewPeriod does not divide the skew: an instance that wakes by its own clock wakes a second from each slot, when the slot is
	// not due yet or is too old.
	skewPeriod = 2 * time.Second
	skewDelay  = 700 * time.Millisecond
	// skewLook is so long that reading the ledger wakes the instance for one of several slots at most.
	skewLook = 10 * time.Second
	tooEarly = 100 * time.Millisecond
)

func skewed(t *testing.T, skew time.Duration) {
	f := ways[0].assemble(t, role{Cron: "*/2 * * * * *", MaxDelay: skewDelay, Look: skewLook, Seed: 1})
	began := time.Now()
	wrong, right := f.launch(0, skew), f.launch(1, 0)
	up := f.awaitUp(wrong)
	if ahead := up.At.Sub(began); skew > 0 && ahead < skew {
		t.Fatalf("the clock of %s is ahead by %s at most, want %s: this shows nothing", wrong.Name, ahead, skew)
	}
	if behind := time.Since(up.At); skew < 0 && behind < -skew {
		t.Fatalf("the clock of %s is behind by %s at most, want %s: this shows nothing", wrong.Name, behind, -skew)
	}
	f.awaitUp(right)
	from := f.count()
	for range 2 {
		f.await(t, from, "the slots are run", func(r report) bool {
			from++
			return r.What == committed
		})
	}
	right.quit()
	f.awaitInARow(wrong, 2)
	f.disband()
	t.Logf("slots by instance: %v, %s's clock is wrong", f.shares(), wrong.Name)
}

// awaitInARow waits until the instance has run n slots, one after the other.
func (f *fleet) awaitInARow(one *process, n int) {
	f.t.Helper()
	var last time.Time
	row, from := 0, f.count()
	f.await(f.t, from, one.Name+" runs slots in a row", func(r report) bool {
		if r.What != hasBegun {
			return false
		}
		if row++; r.Who != one.Name || r.Slot.Sub(last) != skewPeriod {
			row = 1
		}
		last = r.Slot
		return row == n
	})
}

// shares checks that each slot was run once and not before its time, and returns how many each instance ran.
func (f *fleet) shares() map[string]int {
	f.t.Helper()
	effects, shares := f.effects(), map[string]int{}
	for _, run := range f.runs(chaosJob) {
		// A run that was under way when an instance ended is taken over by the next.
		if owners := effects[run.Slot.UnixMicro()]; len(owners) != 1 && run.Status != cronjob.Interrupted {
			f.t.Errorf("slot %s is %s and was committed by %v", clockTime(run.Slot), run.Status, owners)
		}
		if ahead := run.Slot.Sub(*run.BeganAt); ahead > tooEarly {
			f.t.Errorf("slot %s was run %s before its time, by %s", clockTime(run.Slot), ahead, run.Owner)
		}
		shares[by(run.Owner)]++
	}
	return shares
}

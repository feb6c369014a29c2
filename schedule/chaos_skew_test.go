package schedule_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/cronjob"
)

// The clock of one instance of three is 3 s ahead of the others', or behind, which is more than a job's period. Each slot
// runs once and not before its time by the database's clock. The instance runs its share of the slots, and on time: when the
// others have ended, its slots begin no later than on an instance whose clock is right.
func TestSkewedClock(t *testing.T) {
	if hasRole(t) {
		return
	}
	needsSkew(t)
	var all sync.WaitGroup
	for _, skew := range []time.Duration{3 * time.Second, -3 * time.Second} {
		all.Go(func() {
			t.Run(skew.String(), func(t *testing.T) { skewed(t, skew) })
		})
	}
	all.Wait()
}

const (
	// skewPeriod does not divide the skew, so that an instance that wakes at the wrong time is late.
	skewPeriod = 2 * time.Second
	skewSlots  = 4 // with three instances
	skewAlone  = 3 // and with the one whose clock is wrong
	// skewLook is so long that a slot for which the clock does not wake the instance is late.
	skewLook = 10 * time.Second
	tooEarly = 100 * time.Millisecond
	tooLate  = 500 * time.Millisecond
)

func skewed(t *testing.T, skew time.Duration) {
	f := ways[0].assemble(t, role{TTL: chaosTTL, Cron: "*/2 * * * * *", Look: skewLook, Seed: 1})
	wrong := f.launch(0, skew)
	f.launch(1, 0)
	f.launch(2, 0)
	for _, s := range f.seats {
		f.awaitUp(s.process)
	}
	from := f.count()
	for range skewSlots {
		f.await(t, from, "the slots are run", func(r report) bool {
			from++
			return r.What == committed
		})
	}
	for _, s := range f.seats[1:] {
		s.quit()
	}
	runs := f.runsAlone(wrong)
	f.disband()
	var delays, offs []time.Duration
	for _, r := range runs {
		delays, offs = append(delays, r.Began.Sub(r.Slot)), append(offs, r.At.Sub(r.Began))
	}
	slices.Sort(delays)
	if delays[len(delays)/2] > tooLate {
		t.Errorf("alone, the instance begins %v after the slots: its clock is not set right", delays)
	}
	// A slow machine reads the ledger more often.
	if off := slices.Min(offs); off < skew-tooEarly || off > skew+tooLate {
		t.Errorf("the clock of %s is off by %s, want %s: this has shown nothing", wrong.Name, off, skew)
	}
	t.Logf("slots by instance: %v, %s's clock is wrong; alone it began %v after the slots", f.shares(), wrong.Name, delays)
}

// runsAlone waits for runs of slots while only one instance runs.
func (f *fleet) runsAlone(one *process) []report {
	f.t.Helper()
	now, from := time.Now(), f.count()
	runs := make([]report, skewAlone)
	for n := range runs {
		runs[n] = f.await(f.t, from, one.Name+" runs a slot", func(r report) bool {
			from++
			return r.What == hasBegun && r.Slot.After(now)
		})
		if runs[n].Who != one.Name {
			f.t.Fatalf("this is not %s: %s", one.Name, runs[n])
		}
	}
	return runs
}

// shares checks that each slot was run once and on time, and returns how many each instance ran.
func (f *fleet) shares() map[string]int {
	f.t.Helper()
	effects, shares := f.effects(), map[string]int{}
	runs := f.runs()
	for i, run := range runs {
		// A run that was under way when the last instance ended is taken over by the next.
		if owners := effects[run.Slot.UnixMicro()]; len(owners) != 1 && run.Status != cronjob.Interrupted {
			f.t.Errorf("slot %s is %s and was committed by %v", clockTime(run.Slot), run.Status, owners)
		}
		if ahead := run.Slot.Sub(*run.BeganAt); ahead > tooEarly {
			f.t.Errorf("slot %s was run %s before its time, by %s", clockTime(run.Slot), ahead, run.Owner)
		}
		if i > 0 && run.Slot.Sub(runs[i-1].Slot) != skewPeriod {
			f.t.Errorf("after slot %s came %s", clockTime(runs[i-1].Slot), clockTime(run.Slot))
		}
		shares[by(run.Owner)]++
	}
	return shares
}

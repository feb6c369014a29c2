package schedule_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	resignations = 5
	murders      = 3
	// leadEnds bounds the time until the lead of a dead leader has expired and another instance has noticed.
	leadEnds = 3*time.Second + 500*time.Millisecond
	// leadPasses bounds the time without a leader after it resigned, with a strategy that announces it: 100 ms, and what a
	// busy machine adds.
	leadPasses = 150 * time.Millisecond
	// leadFound is the same with a strategy that has to be polled.
	leadFound = 500 * time.Millisecond
)

// succession is the time from the end of a leader until another led and ran the due slot.
type succession struct{ led, ran time.Duration }

// A leader that is stopped hands the lead over at once. After one that is killed, another leads when its lease has expired.
// Noise can only add to the time, so the best of several counts. Redis announces a resignation to those that wait, which is
// what the 100 ms are for; the other strategies are polled.
func TestLeaderHandsOver(t *testing.T) {
	if hasRole(t) {
		return
	}
	rows := make([]string, len(ways))
	var all sync.WaitGroup
	for i, way := range ways {
		if way.lock == "memory" {
			continue // each instance has its own, so that each leads
		}
		all.Go(func() {
			t.Run(way.name, func(t *testing.T) {
				f := way.assemble(t, role{TTL: 3 * time.Second})
				f.man()
				resigned, killed := f.succeed(resignations, (*process).quit), f.succeed(murders, (*process).kill)
				f.disband()
				most := leadFound
				if way.lock == "redis" {
					most = leadPasses
				}
				if best := resigned[0].led; best > most {
					t.Errorf("no instance led for %s after a leader had resigned, want %s at most", best, most)
				}
				if best := killed[0].led; best > leadEnds {
					t.Errorf("no instance led for %s after a leader was killed, want %s at most", best, leadEnds)
				}
				rows[i] = way.name + "\t"
				for _, all := range [][]succession{resigned, killed} {
					middle := all[len(all)/2]
					rows[i] += fmt.Sprintf("%d ms\t%d ms\t%d ms\t", middle.led.Milliseconds(), all[0].led.Milliseconds(), middle.ran.Milliseconds())
				}
			})
		})
	}
	all.Wait()
	t.Logf("medians and the best of %d resignations and %d kills%s", resignations, murders,
		table("strategy\tresigned: another led after\tbest\tand ran\tkilled: another led after\tbest\tand ran\t", rows))
}

// succeed ends the leader several times, starts another instance in its place each time, and returns how long it took until
// another led, the shortest first.
func (f *fleet) succeed(times int, end func(*process)) []succession {
	f.t.Helper()
	all := make([]succession, times)
	for n := range all {
		k, from := f.leader(), f.count()
		leader := f.seats[k]
		f.await(f.t, from, leader.Name+" runs the job", func(r report) bool { return r.What == hasBegun && r.Who == leader.Name })
		from = f.count()
		began := time.Now()
		end(leader.process)
		led := f.await(f.t, from, "another leads", func(r report) bool { return r.What == leads && r.Who != leader.Name })
		ran := f.await(f.t, from, "another runs the job", func(r report) bool { return r.What == hasBegun && r.Who != leader.Name })
		all[n] = succession{led.At.Sub(began), ran.At.Sub(began)}
		f.awaitUp(f.launch(k, 0))
	}
	slices.SortFunc(all, func(a, b succession) int { return int(a.led - b.led) })
	return all
}

// leader waits until an instance has led, and returns the seat of the last that did.
func (f *fleet) leader() int {
	f.t.Helper()
	f.await(f.t, 0, "an instance leads", func(r report) bool { return r.What == leads })
	reports, _ := f.journal.all()
	last := ""
	for _, r := range reports {
		if r.What == leads {
			last = r.Who
		}
	}
	return slices.IndexFunc(f.seats[:], func(s *seat) bool { return s.Name == last })
}

package schedule_test

import (
	"slices"
	"testing"
	"time"

	"firsttap/testkit"
)

// A leader in a process of its own is stopped, and one is killed: another leads, and runs the leader's job. `make test` has
// one strategy, and `make test-all` all.
func TestLeaderHandsOver(t *testing.T) {
	t.Parallel()
	onEach(t, electing()[:testkit.Scale(1, len(electing()))], role{}, func(_ *testing.T, f *fleet) {
		f.succeed(1, (*process).quit)
		f.succeed(1, (*process).kill)
		f.disband()
	})
}

// electing are the ways that elect one leader; with memories of their own, each instance leads.
func electing() []way {
	return slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.lock == "memory" })
}

// succession is the time from the end of a leader until another led and ran the due slot.
type succession struct{ led, ran time.Duration }

// succeed ends the leader several times, starts another instance in its place each time, and returns how long it took until
// another led.
func (f *fleet) succeed(times int, end func(*process)) []succession {
	f.t.Helper()
	all := make([]succession, times)
	for n := range all {
		k, from := f.leader()
		leader := f.seats[k]
		began := time.Now()
		end(leader.process)
		led := f.await(f.t, from, "another leads", func(r report) bool { return r.What == leads && r.Who != leader.Name })
		ran := f.await(f.t, from, "another runs the job", func(r report) bool { return r.What == hasBegun && r.Who != leader.Name })
		all[n] = succession{led.At.Sub(began), ran.At.Sub(began)}
		f.awaitUp(f.launch(k, 0))
	}
	return all
}

// leader waits until the leader runs the job, from now on, and returns its seat and the number of reports by then. On a busy machine the
// lead may change meanwhile.
func (f *fleet) leader() (k, n int) {
	f.t.Helper()
	from, last := f.count(), ""
	f.await(f.t, 0, "the leader runs the job", func(r report) bool {
		n++
		if r.What == leads {
			last = r.Who
		}
		return n > from && r.What == hasBegun && r.Who == last
	})
	return slices.IndexFunc(f.seats[:], func(s *seat) bool { return s.Name == last }), n
}

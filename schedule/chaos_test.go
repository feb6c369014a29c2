package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/redisclient"
	"firsttap/testkit"
)

// Three instances run a job each second. They are killed and stopped at random, some for longer than the lock and the run
// last, while at least one goes on; Redis is flushed during runs. Each slot has its effect once, no two attempts at a run
// overlap, no instance that is awake is overtaken, and an attempt that was overtaken while it stood still commits nothing.
// `make test` has 5 slots on one strategy, and `make test-all` 15 on each.
func TestEachSlotOnce(t *testing.T) {
	t.Parallel()
	slotsOnce(t, ways[:testkit.Scale(1, len(ways))], testkit.Scale(5, 15), rand.Uint64N(1e6))
}

// slotsOnce plays so many slots on each of the ways. The seed repeats its plan, as far as the machine lets it.
func slotsOnce(t *testing.T, ways []way, slots int, seed uint64) {
	t.Logf("%d slots, the seed is %d", slots, seed)
	onEach(t, ways, role{Cron: "* * * * * *", Seed: seed}, func(t *testing.T, f *fleet) {
		s := &storm{fleet: f, rand: rand.New(rand.NewPCG(f.Seed, 1)), kinds: []int{hitBusy, hitKill | hitBusy}, pace: 1500 * time.Millisecond}
		if testkit.All() {
			s.kinds, s.pace = []int{0, hitKill, hitBusy, hitKill | hitBusy}, 3500*time.Millisecond
		}
		first := f.state(chaosJob).RegisteredAt.Truncate(time.Second).Add(time.Second)
		s.rage(time.Now().Add(time.Duration(slots) * time.Second))
		last := time.Now().Truncate(time.Second)
		s.calm()
		f.awaitSlots(last)
		f.disband()
		a := s.account(first, last)
		t.Logf("%+v", *a)
		if a.takenOver == 0 {
			t.Error("no run was taken over: this has shown nothing")
		}
	})
}

// storm kills and stops the instances of a fleet.
type storm struct {
	*fleet
	rand                  *rand.Rand
	next                  time.Time     // when the next instance is hit
	wipe                  time.Time     // when Redis is flushed next, once a run is under way
	kinds                 []int         // of hits, which take turns
	pace                  time.Duration // the longest time from one hit to the next
	hits                  []int         // the next hits, the next last
	kills, stops, flushes int
}

// A kind of hit is made of these.
const (
	hitKill = 1 << iota // a kill, and not a stop
	hitBusy             // the instance that runs the job, and not any
)

// rage hits instances until that time, and until there were enough hits.
func (s *storm) rage(until time.Time) {
	s.t.Helper()
	s.wipe = time.Now().Add(time.Until(until) / 4)
	s.plan()
	for now := time.Now(); now.Before(until) || !s.enough() && now.Before(until.Add(unheard)); now = time.Now() {
		s.restore()
		if now.After(s.next) && s.hit() {
			s.plan()
		}
		if len(s.redis) > 0 && now.After(s.wipe) && len(s.state(chaosJob).Unfinished) > 0 {
			s.flush()
		}
		if err := pause(s.t.Context(), 50*time.Millisecond); err != nil {
			s.t.Fatal(err)
		}
	}
}

// enough reports whether there were enough hits, one of which led to a takeover: two have reported that they have begun the same run.
func (s *storm) enough() bool {
	reports, _ := s.journal.all()
	begun, takenOver := map[int64]bool{}, false
	for _, r := range reports {
		if slot := r.Slot.UnixMicro(); r.What == hasBegun {
			takenOver = takenOver || begun[slot]
			begun[slot] = true
		}
	}
	return s.kills >= len(s.kinds)/2 && s.stops >= len(s.kinds)/2 && takenOver
}

// plan says when the next hit is.
func (s *storm) plan() {
	s.next = time.Now().Add(s.between(500*time.Millisecond, s.pace))
	if len(s.hits) == 0 {
		s.hits = slices.Clone(s.kinds)
		s.rand.Shuffle(len(s.hits), func(i, j int) { s.hits[i], s.hits[j] = s.hits[j], s.hits[i] })
	}
}

func (s *storm) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)))
}

// hit is false if no instance may be hit now: one has to go on, and a run at its second attempt is spared, as the schedule
// gives a run up after three.
func (s *storm) hit() bool {
	s.t.Helper()
	up, open := s.up(), s.state(chaosJob).Unfinished
	if len(up) < 2 || slices.ContainsFunc(open, func(run cronjob.Run) bool { return run.Attempt >= 2 }) {
		return false
	}
	kind := s.hits[len(s.hits)-1]
	if kind&hitBusy != 0 {
		up = slices.DeleteFunc(up, func(one *seat) bool {
			return !slices.ContainsFunc(open, func(run cronjob.Run) bool { return by(run.Owner) == one.Name })
		})
	}
	if len(up) == 0 {
		return false
	}
	victim := up[s.rand.IntN(len(up))]
	s.hits = s.hits[:len(s.hits)-1]
	if kind&hitKill != 0 {
		victim.kill()
		victim.back = time.Now().Add(s.between(0, 2*time.Second))
		s.kills++
		return true
	}
	victim.stop()
	longest := 2*s.TTL + time.Second
	victim.back = time.Now().Add(s.between(500*time.Millisecond, longest))
	if kind&hitBusy != 0 && s.rand.IntN(2) == 0 {
		victim.sleeper, victim.back = true, time.Now().Add(longest)
	}
	s.stops++
	return true
}

// restore continues the stopped instances whose time has come, and replaces the killed ones.
func (s *storm) restore() {
	s.t.Helper()
	open := s.state(chaosJob).Unfinished
	overtaken := slices.ContainsFunc(open, func(run cronjob.Run) bool { return run.Attempt > 1 }) // by another instance
	for k, one := range s.seats {
		if one.sleeper && overtaken {
			one.back = time.Now()
		}
		switch {
		case one.back.IsZero() || time.Now().Before(one.back):
		case one.killed.IsZero():
			one.goOn()
			one.back, one.sleeper = time.Time{}, false
		default:
			s.launch(k, 0)
		}
	}
}

// calm ends the storm: all instances run again.
func (s *storm) calm() {
	s.t.Helper()
	for _, one := range s.seats {
		if !one.back.IsZero() {
			one.back = time.Now()
		}
	}
	s.restore()
	for _, one := range s.seats {
		s.awaitUp(one.process)
	}
}

// flush flushes every Redis.
func (s *storm) flush() {
	s.t.Helper()
	for _, server := range s.redis {
		client, err := redisclient.Dial(server.URL(), testkit.Patience)
		if err != nil {
			s.t.Fatal(err)
		}
		err = client.FlushAll(s.t.Context()).Err()
		client.Close()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.flushes++
	s.wipe = time.Now().Add(s.between(time.Second, 5*time.Second))
}

package notify

import (
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// line is a throttle with a clock of its own.
type line struct {
	*throttle
	t   *testing.T
	now time.Time
}

func newLine(t *testing.T) *line {
	w, p := limits{min: 1, start: 4, max: 64}, pauses{quota: time.Minute, auth: time.Minute, first: time.Second, most: 8 * time.Second}
	return &line{newThrottle(w, p), t, time.Unix(1e9, 0)}
}

// fill starts as many requests as it may, and returns how many are in flight.
func (l *line) fill() int {
	l.t.Helper()
	for {
		l.reserve(1, ahead, l.now)
		if ok, _ := l.start(l.now); !ok {
			break
		}
	}
	l.release(l.reserved)
	return l.inflight
}

// done ends a request and records its result at once.
func (l *line) done(o Outcome, now time.Time) {
	l.throttle.done(o, now)
	l.recorded(1)
}

// end ends all requests in flight with the same outcome.
func (l *line) end(o Outcome) {
	for l.inflight > 0 {
		l.done(o, l.now)
	}
}

func (l *line) mustHave(what string, want int) {
	l.t.Helper()
	if n := l.fill(); n != want {
		l.t.Errorf("%s: %d under way, want %d", what, n, want)
	}
}

func TestThrottleWidens(t *testing.T) {
	l := newLine(t)
	for _, want := range []int{4, 8, 16, 32, 64, 64} {
		n := l.fill()
		testkit.Equal(t, "requests in flight, twice as many each round trip", want, n)
		for range n { // each that ends is replaced at once
			l.done(Outcome{Class: Sent}, l.now)
			l.fill()
		}
	}
	idle := newLine(t)
	for range 100 {
		idle.reserve(1, ahead, idle.now)
		idle.start(idle.now)
		idle.done(Outcome{Class: Sent}, idle.now)
	}
	idle.mustHave("an unused limit does not grow", 4)
}

func TestThrottleNarrows(t *testing.T) {
	l := newLine(t)
	l.fill()
	l.done(Outcome{Class: Unsure}, l.now)
	l.done(Outcome{Class: Unsure}, l.now)
	l.mustHave("failures at once count once", 2)
	l.now = l.now.Add(shrinkInterval)
	l.done(Outcome{Class: Unsure}, l.now)
	l.mustHave("and later ones again", 1)
}

func TestThrottlePauses(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Outcome
		want time.Duration
	}{
		{"for as long as it is asked", Outcome{Class: Unavailable, RetryAfter: 3 * time.Second}, 3 * time.Second},
		{"for as long as it is asked", Outcome{Class: Quota, RetryAfter: 7 * time.Second}, 7 * time.Second},
		{"a minute of its own accord", Outcome{Class: Quota}, time.Minute},
		{"a minute when refused", Outcome{Class: Auth}, time.Minute},
	} {
		l := newLine(t)
		l.fill()
		l.done(c.o, l.now)
		if _, wait := l.start(l.now); wait != c.want {
			t.Errorf("%s: %v, want %v", c.name, wait, c.want)
		}
		testkit.Equal(t, c.name+": room while it is paused", 0, l.reserve(1, ahead, l.now.Add(c.want-1)))
		l.end(Outcome{Class: Unsure}) // those that began before it
		l.now = l.now.Add(c.want)
		l.mustHave("afterwards a single one finds out", 1)
		if refused := c.o.Class == Auth; l.state(l.now).refused != refused || l.state(l.now.Add(circuitKnown)).refused {
			t.Errorf("%s: an operator sees %t, and %t after %v without a request", c.name, l.state(l.now).refused, l.state(l.now.Add(circuitKnown)).refused, circuitKnown)
		}
		l.end(Outcome{Class: Sent})
		testkit.Equal(t, "refused after a success", false, l.state(l.now).refused)
		if n := l.fill(); n < 1 || n > 2 {
			t.Errorf("%d at once after the first success", n)
		}
	}
}

// Failures in a row pause it, each probe that fails for longer, up to the longest; a success ends it.
func TestThrottleBacksOff(t *testing.T) {
	l := newLine(t)
	l.fill()
	l.end(Outcome{Class: Unavailable})
	if s := l.state(l.now); s.paused != 0 {
		t.Fatalf("paused after %d failures", 4)
	}
	l.fill()
	l.done(Outcome{Class: Unavailable}, l.now)
	for _, most := range []time.Duration{1, 2, 4, 8, 8} {
		most *= time.Second
		s := l.state(l.now)
		if s.paused < most/2 || s.paused > most {
			t.Fatalf("paused for %v, want %v to %v", s.paused, most/2, most)
		}
		l.end(Outcome{Class: Unavailable}) // stragglers do not make it longer
		if again := l.state(l.now); again.paused != s.paused {
			t.Fatalf("a straggler made %v of %v", again.paused, s.paused)
		}
		l.now = l.now.Add(s.paused)
		l.mustHave("a probe", 1)
		l.done(Outcome{Class: Unavailable}, l.now)
	}
	l.now = l.now.Add(8 * time.Second)
	l.fill()
	l.end(Outcome{Class: Sent})
	if s := l.state(l.now); s.paused != 0 {
		t.Errorf("still paused for %v", s.paused)
	}
}

// No place is lost, however many are reserved, started, released and ended.
func TestThrottleKeepsCount(t *testing.T) {
	l := newLine(t)
	before := l.reserve(1000, ahead, l.now)
	if before != 4*ahead {
		t.Fatalf("room for %d", before)
	}
	for range 3 {
		l.start(l.now)
	}
	l.release(before - 3)
	l.end(Outcome{Class: Poison})
	if l.reserved != 0 || l.inflight != 0 {
		t.Errorf("%d reserved, %d under way", l.reserved, l.inflight)
	}
}

// Results are recorded before many more pushes are sent: after a crash the unrecorded ones are sent again.
func TestThrottleWaitsForTheBooks(t *testing.T) {
	l := newLine(t)
	for n := range resultBatch {
		l.reserve(1, ahead, l.now)
		if ok, _ := l.start(l.now); !ok {
			t.Fatalf("nothing starts with %d to be written", n)
		}
		l.throttle.done(Outcome{Class: Sent}, l.now)
	}
	l.reserve(1, ahead, l.now)
	if ok, wait := l.start(l.now); ok || wait != 0 {
		t.Errorf("%v, %v with %d to be written", ok, wait, resultBatch)
	}
	l.recorded(resultBatch)
	l.reserve(1, ahead, l.now)
	if ok, _ := l.start(l.now); !ok {
		t.Error("nothing starts when all is written")
	}
}

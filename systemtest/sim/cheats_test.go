package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// cheat is a driver who taps as often as they can, in a way that cannot win, while their fault goes on. Nobody pushes offers to them.
type cheat struct {
	*driver
	fault fault
}

// cheats are their names and faults: the first three can take no job, the others could.
var cheats = []struct {
	name  string
	fault fault
}{{"c1", hopelessTaps}, {"c2", hopelessTaps}, {"c3", hopelessTaps}, {"c4", madeUpRounds}, {"c5", madeUpRounds}}

func (c *cheat) run() {
	if slices.Contains(c.world.idle, c.name) {
		return
	}
	for c.world.rest(c.between(10*time.Millisecond, 80*time.Millisecond)) {
		m, ok := c.choose()
		if !ok || !c.world.weather.strikes(c.fault, 0, c.dice, 1) {
			continue
		}
		if c.fault == madeUpRounds {
			m.round += 1 + c.IntN(2)
		}
		d := c.world.dice(fmt.Sprint("tap of ", c.name))
		c.world.later(d.between(time.Microsecond, time.Millisecond), func() { c.tap(d, m, m.round) })
	}
}

// choose returns one of the newest offers, and whether it is open.
func (c *cheat) choose() (message, bool) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.board)
	if n == 0 {
		return message{}, false
	}
	j := w.board[n-1-c.IntN(min(n, 12))]
	return message{j.id, j.name, j.round}, j.open
}

// place is an actor at an instance.
type place struct{ actor, instance string }

// sidelinedFor is how long a driver stays sidelined.
const sidelinedFor = 10 * time.Minute

// wasSidelined reports whether the tap kept no other driver from the dispatch, because its driver was sidelined: the instance had found
// out that they cannot win, and they have won nothing since.
func (f *facts) wasSidelined(tap op) bool {
	if tap.kind != "accept" || tap.twice { // a proxy may have sent it to another instance too
		return false
	}
	earlier := f.hopeless[place{tap.actor, tap.instance}]
	n, _ := slices.BinarySearchFunc(earlier, tap.from, func(o op, at time.Duration) int { return cmp.Compare(o.to, at) })
	if n == 0 || tap.to-earlier[n-1].from > sidelinedFor {
		return false
	}
	since := earlier[n-1].from
	return !slices.ContainsFunc(f.ends[tap.instance], func(at time.Duration) bool { return at >= since && at <= tap.to }) &&
		!slices.ContainsFunc(f.held[tap.actor], func(h hold) bool { return h.from >= since-f.slack() && h.from <= tap.to+f.slack() })
}

// sidelines reports whether the tap's answer says that its driver cannot win, as its instance found out.
func (f *facts) sidelines(o op) bool {
	if o.kind != "accept" || o.twice {
		return false
	}
	exists := func(c change) bool { return c.round >= o.round && c.done <= o.to }
	return o.result == "NOT_ELIGIBLE" || o.result == "DRIVER_BUSY" ||
		o.result == "OFFER_STALE" && o.round > 0 && !slices.ContainsFunc(f.changed[o.dispatch], exists)
}

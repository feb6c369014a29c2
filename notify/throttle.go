package notify

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"
)

// limits is how many requests may be under way at a time.
type limits struct{ min, start, max float64 }

// defaultLimits at most takes a push service that answers in 50 ms to 10,000 a second.
var defaultLimits = limits{min: 1, start: 64, max: 512}

// failuresToPause is how many attempts in a row have to fail before nothing is sent for a while.
const failuresToPause = 5

// throttle decides how much may be sent at a time, and when nothing may.
//
// Its width grows by one with every success for as long as it is used up, which doubles it each round trip, and is
// halved by a failure, at most once in the time that takes to be felt (additive increase would take minutes to reach
// what a push service takes; compare TCP's slow start, RFC 5681). A push service that asks for a pause, or fails
// several times in a row, is left alone; afterwards a single request finds out whether it is back.
type throttle struct {
	mu         sync.Mutex
	bounds     limits
	pauses     pauses
	limit      float64
	inflight   int
	reserved   int // leased, and not under way yet
	unrecorded int // answered, and not written down yet
	failures   int // in a row
	probes     int // of them, those that were to find out whether it is back
	halved     time.Time
	until      time.Time // of the pause
	probing    bool      // after a pause, until one request succeeds
	circuit    Class     // why it is open; "" when it is closed
	// freed tells who sends that a request has ended, roomy who leases that there is room for more.
	freed, room chan struct{}
}

// pauses are how long nothing is sent.
type pauses struct {
	quota time.Duration // where the push service does not say
	auth  time.Duration
	first time.Duration // after several failures; doubles up to the longest
	most  time.Duration
}

var defaultPauses = pauses{quota: time.Minute, auth: time.Minute, first: time.Second, most: 30 * time.Second}

func newThrottle(w limits, p pauses) *throttle {
	return &throttle{bounds: w, pauses: p, limit: w.start, freed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

const (
	// ahead is how many pushes are leased for each that may be under way.
	ahead = 4
	// aheadCommitted is the same where a lease has just been written with its event: the last of them find room however
	// much waits of another event.
	aheadCommitted = 5
)

// worthLease reports whether there is room for as many pushes as make a lease worth its transaction.
func (c *throttle) worthLease(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.free(ahead, now)
	return c.probing && free > 0 || free >= max(1, min(pushBatch, int(c.limit))/2)
}

// free is how many more pushes may be leased now, for so many times as may be under way: none while paused. c.mu is held.
func (c *throttle) free(ahead int, now time.Time) int {
	if now.Before(c.until) {
		return 0
	}
	if c.probing {
		return max(0, 1-c.inflight-c.reserved)
	}
	return max(0, int(c.limit)*ahead-c.inflight-c.reserved-c.unrecorded)
}

// reserve takes up to n places for pushes that are about to be leased, of so many times as may be under way, and returns
// how many.
func (c *throttle) reserve(n, ahead int, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.free(ahead, now))
	c.reserved += n
	return n
}

// release gives back n places that were reserved.
func (c *throttle) release(n int) {
	c.mu.Lock()
	c.reserved -= n
	c.mu.Unlock()
	c.wake()
}

// start turns a reserved place into a request under way. When it may not start, it says how long nothing may; 0 means
// until another ends. What was answered and not written down would be sent again by whoever comes after a crash: while
// there is as much of it as may be under way, nothing starts.
func (c *throttle) start(now time.Time) (ok bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now.Before(c.until):
		return false, c.until.Sub(now)
	case c.inflight >= int(c.limit) || c.probing && c.inflight > 0 || c.unrecorded >= max(int(c.limit), resultBatch):
		return false, 0
	}
	c.reserved--
	c.inflight++
	return true, 0
}

// cancelStart takes back a start: there is no request, and the place is reserved as before.
func (c *throttle) cancelStart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved++
	c.inflight--
}

// done ends a request with what came of it, which is still to be written down.
func (c *throttle) done(o Outcome, now time.Time) {
	c.mu.Lock()
	full := c.inflight >= int(c.limit)
	c.inflight--
	c.unrecorded++
	c.adapt(o, full, now)
	c.mu.Unlock()
	c.wake()
}

// observe is what came of a request that took none of the channel's places.
func (c *throttle) observe(o Outcome, now time.Time) {
	c.mu.Lock()
	c.adapt(o, false, now)
	c.mu.Unlock()
	c.wake()
}

func (c *throttle) adapt(o Outcome, full bool, now time.Time) {
	switch o.Class {
	case Quota:
		c.shrink(now)
		c.pause(cmp.Or(o.RetryAfter, c.pauses.quota), now)
	case Auth:
		c.circuit = Auth
		c.pause(c.pauses.auth, now)
	case Unavailable, Unreached, Unsure:
		c.fail(o, now)
	default:
		if c.circuit != DeadToken || o.Class == Sent {
			c.succeed(full)
		}
	}
}

// recorded says that what came of n requests was written down, or given up.
func (c *throttle) recorded(n int) {
	c.mu.Lock()
	c.unrecorded -= n
	c.mu.Unlock()
	c.wake()
}

func (c *throttle) fail(o Outcome, now time.Time) {
	c.failures++
	c.shrink(now)
	switch {
	case o.RetryAfter > 0:
		c.pause(o.RetryAfter, now)
	case now.Before(c.until): // it began before the pause
	case c.probing:
		c.probes++
		c.pause(c.backoff(), now)
	case c.failures >= failuresToPause:
		c.pause(c.backoff(), now)
	}
}

func (c *throttle) succeed(full bool) {
	c.failures, c.probes, c.circuit = 0, 0, ""
	if c.probing {
		c.probing = false
		return
	}
	if full {
		c.limit = min(c.bounds.max, c.limit+1)
	}
}

// shrinkEvery keeps one burst of failures from counting many times.
const shrinkEvery = 200 * time.Millisecond

func (c *throttle) shrink(now time.Time) {
	if now.Sub(c.halved) < shrinkEvery {
		return
	}
	c.halved = now
	c.limit = max(c.bounds.min, c.limit/2)
}

func (c *throttle) pause(d time.Duration, now time.Time) {
	if until := now.Add(d); until.After(c.until) {
		c.until = until
	}
	c.probing = true
}

// backoff doubles with every probe that fails, with up to half of it at random.
func (c *throttle) backoff() time.Duration {
	d := min(c.pauses.most, c.pauses.first<<min(c.probes, 16))
	return d/2 + rand.N(d/2+1)
}

// probeTokens has single requests find out whether any token is still taken, after pauses that double: where it is to begin,
// or has begun.
func (c *throttle) probeTokens(begin bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.circuit == DeadToken || begin {
		c.circuit = DeadToken
		if !now.Before(c.until) {
			c.pause(c.backoff(), now)
			c.probes++
		}
	}
}

// state is what operators see of a channel.
type throttleState struct {
	limit   int
	paused  time.Duration
	circuit Class
}

func (c *throttle) state(now time.Time) throttleState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return throttleState{limit: int(c.limit), paused: max(0, c.until.Sub(now)), circuit: c.circuit}
}

func (c *throttle) wake() {
	wakeUp(c.freed)
	wakeUp(c.room)
}

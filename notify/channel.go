package notify

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"
)

// width is how many requests may be under way at a time.
type width struct{ min, start, max float64 }

// defaultWidth at most takes a push service that answers in 50 ms to 10,000 a second.
var defaultWidth = width{min: 1, start: 64, max: 512}

// failuresToPause is how many attempts in a row have to fail before nothing is sent for a while.
const failuresToPause = 5

// channel decides how much may be sent at a time, and when nothing may.
//
// Its width grows by one with every success for as long as it is used up, which doubles it each round trip, and is
// halved by a failure, at most once in the time that takes to be felt (additive increase would take minutes to reach
// what a push service takes; compare TCP's slow start, RFC 5681). A push service that asks for a pause, or fails
// several times in a row, is left alone; afterwards a single request finds out whether it is back.
type channel struct {
	mu       sync.Mutex
	bounds   width
	pauses   pauses
	limit    float64
	inflight int
	queued   int // leased, and not under way yet
	settling int // answered, and not written down yet
	failures int // in a row
	probes   int // of them, those that were to find out whether it is back
	halved   time.Time
	until    time.Time // of the pause
	probing  bool      // after a pause, until one request succeeds
	circuit  Class     // why it is open; "" when it is closed
	// freed tells who sends that a request has ended, roomy who leases that there is room for more.
	freed, roomy chan struct{}
}

// pauses are how long nothing is sent.
type pauses struct {
	quota time.Duration // where the push service does not say
	auth  time.Duration
	first time.Duration // after several failures; doubles up to the longest
	most  time.Duration
}

var defaultPauses = pauses{quota: time.Minute, auth: time.Minute, first: time.Second, most: 30 * time.Second}

func newChannel(w width, p pauses) *channel {
	return &channel{bounds: w, pauses: p, limit: w.start, freed: make(chan struct{}, 1), roomy: make(chan struct{}, 1)}
}

const (
	// ahead is how many pushes are leased for each that may be under way.
	ahead = 4
	// aheadFresh is the same where a lease has just been written with its event: the last of them find room however
	// much waits of another event.
	aheadFresh = 5
)

// worthwhile reports whether there is room for as many pushes as make a lease worth its transaction.
func (c *channel) worthwhile(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.free(ahead, now)
	return c.probing && free > 0 || free >= max(1, min(pushesAtOnce, int(c.limit))/2)
}

// free is how many more pushes may be leased now, for so many times as may be under way: none while paused. c.mu is held.
func (c *channel) free(ahead int, now time.Time) int {
	if now.Before(c.until) {
		return 0
	}
	if c.probing {
		return max(0, 1-c.inflight-c.queued)
	}
	return max(0, int(c.limit)*ahead-c.inflight-c.queued-c.settling)
}

// reserve takes up to n places for pushes that are about to be leased, of so many times as may be under way, and returns
// how many.
func (c *channel) reserve(n, ahead int, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.free(ahead, now))
	c.queued += n
	return n
}

// release gives back n places that were reserved.
func (c *channel) release(n int) {
	c.mu.Lock()
	c.queued -= n
	c.mu.Unlock()
	c.signal()
}

// start turns a reserved place into a request under way. When it may not start, it says how long nothing may; 0 means
// until another ends. What was answered and not written down would be sent again by whoever comes after a crash: while
// there is as much of it as may be under way, nothing starts.
func (c *channel) start(now time.Time) (ok bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now.Before(c.until):
		return false, c.until.Sub(now)
	case c.inflight >= int(c.limit) || c.probing && c.inflight > 0 || c.settling >= max(int(c.limit), settleAtOnce):
		return false, 0
	}
	c.queued--
	c.inflight++
	return true, 0
}

// unstart takes back a start: there is no request, and the place is reserved as before.
func (c *channel) unstart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued++
	c.inflight--
}

// done ends a request with what came of it, which is still to be written down.
func (c *channel) done(o Outcome, now time.Time) {
	c.mu.Lock()
	full := c.inflight >= int(c.limit)
	c.inflight--
	c.settling++
	c.hear(o, full, now)
	c.mu.Unlock()
	c.signal()
}

// heard is what came of a request that took none of the channel's places.
func (c *channel) heard(o Outcome, now time.Time) {
	c.mu.Lock()
	c.hear(o, false, now)
	c.mu.Unlock()
	c.signal()
}

func (c *channel) hear(o Outcome, full bool, now time.Time) {
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

// settled says that what came of n requests was written down, or given up.
func (c *channel) settled(n int) {
	c.mu.Lock()
	c.settling -= n
	c.mu.Unlock()
	c.signal()
}

func (c *channel) fail(o Outcome, now time.Time) {
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

func (c *channel) succeed(full bool) {
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

func (c *channel) shrink(now time.Time) {
	if now.Sub(c.halved) < shrinkEvery {
		return
	}
	c.halved = now
	c.limit = max(c.bounds.min, c.limit/2)
}

func (c *channel) pause(d time.Duration, now time.Time) {
	if until := now.Add(d); until.After(c.until) {
		c.until = until
	}
	c.probing = true
}

// backoff doubles with every probe that fails, with up to half of it at random.
func (c *channel) backoff() time.Duration {
	d := min(c.pauses.most, c.pauses.first<<min(c.probes, 16))
	return d/2 + rand.N(d/2+1)
}

// doubt has single requests find out whether any token is still taken, after pauses that double: where it is to begin,
// or has begun.
func (c *channel) doubt(begin bool, now time.Time) {
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
type channelState struct {
	width   int
	paused  time.Duration
	circuit Class
}

func (c *channel) state(now time.Time) channelState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return channelState{width: int(c.limit), paused: max(0, c.until.Sub(now)), circuit: c.circuit}
}

func (c *channel) signal() {
	wakeUp(c.freed)
	wakeUp(c.roomy)
}

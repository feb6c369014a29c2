package notify

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"firsttap/notify/wakeup"
)

// limits bound the number of requests in flight.
type limits struct{ min, start, max float64 }

// defaultLimits allow 10,000 requests a second to a push service that answers in 50 ms.
var defaultLimits = limits{min: 1, start: 64, max: 512}

// failuresToPause is how many attempts in a row have to fail to start a pause.
const failuresToPause = 5

// throttle decides how many requests may be in flight, and when none may.
//
// Its limit grows by one with every success while it is exhausted, which doubles it each round trip. A failure halves it,
// at most once per shrinkInterval. (Additive increase would need minutes to reach the capacity of a push service; compare
// TCP's slow start, RFC 5681.) It pauses when the push service asks for a pause or fails several times in a row. After a
// pause a single request, the probe, finds out whether the push service is back.
type throttle struct {
	mu         sync.Mutex
	bounds     limits
	pauses     pauses
	limit      float64
	inflight   int
	reserved   int // places of pushes that are not in flight yet
	unrecorded int // answered requests whose results are not recorded yet
	failures   int // in a row
	probes     int // how many of the failures were probes
	halved     time.Time
	until      time.Time // end of the pause
	probing    bool      // after a pause, until a request succeeds
	refusedAt  time.Time // when the push service last refused our credentials; zero once it has accepted them
	// freed is set when a request has ended, room when there is room for another lease.
	freed, room wakeup.Signal
}

// pauses are how long nothing is sent.
type pauses struct {
	quota time.Duration // without a Retry-After
	auth  time.Duration
	first time.Duration // after several failures; doubles up to most
	most  time.Duration
}

var defaultPauses = pauses{quota: time.Minute, auth: time.Minute, first: time.Second, most: 30 * time.Second}

func newThrottle(w limits, p pauses) *throttle {
	return &throttle{bounds: w, pauses: p, limit: w.start, freed: wakeup.New(), room: wakeup.New()}
}

const (
	// ahead is how many pushes are leased for each request that may be in flight.
	ahead = 4
	// aheadCommitted is ahead for pushes that their event's expansion leases: some find room behind any other event.
	aheadCommitted = 5
)

// worthLease reports whether there is room for enough pushes to make a lease worth its transaction.
func (t *throttle) worthLease(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := t.free(ahead, now)
	return t.probing && free > 0 || free >= max(1, min(pushBatch, int(t.limit))/2)
}

// free returns how many more pushes may be leased now, none while paused. t.mu is held.
func (t *throttle) free(ahead int, now time.Time) int {
	if now.Before(t.until) {
		return 0
	}
	if t.probing {
		return max(0, 1-t.inflight-t.reserved)
	}
	return max(0, int(t.limit)*ahead-t.inflight-t.reserved-t.unrecorded)
}

// reserve reserves up to n places for pushes that are about to be leased, and returns how many. Ahead is how many places
// there are for each request that may be in flight.
func (t *throttle) reserve(n, ahead int, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = min(n, t.free(ahead, now))
	t.reserved += n
	return n
}

// release frees n reserved places.
func (t *throttle) release(n int) {
	t.mu.Lock()
	t.reserved -= n
	t.mu.Unlock()
	t.wake()
}

// start turns a reserved place into a request in flight. If none may start, it returns the rest of the pause, or 0 to wait
// until a request ends. After a crash, pushes with unrecorded results are sent again; so nothing starts while there are as
// many of them as may be in flight.
func (t *throttle) start(now time.Time) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case now.Before(t.until):
		return false, t.until.Sub(now)
	case t.inflight >= int(t.limit) || t.probing && t.inflight > 0 || t.unrecorded >= max(int(t.limit), resultBatch):
		return false, 0
	}
	t.reserved--
	t.inflight++
	return true, 0
}

// cancelStart undoes start: there is no request, and the place is reserved again.
func (t *throttle) cancelStart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved++
	t.inflight--
}

// done ends a request with its outcome. Its result counts as unrecorded until recorded.
func (t *throttle) done(o Outcome, now time.Time) {
	t.mu.Lock()
	full := t.inflight >= int(t.limit)
	t.inflight--
	t.unrecorded++
	t.adapt(o, full, now)
	t.mu.Unlock()
	t.wake()
}

func (t *throttle) adapt(o Outcome, full bool, now time.Time) {
	switch o.Class {
	case Quota:
		t.shrink(now)
		t.pause(cmp.Or(o.RetryAfter, t.pauses.quota), now)
	case Auth:
		t.refusedAt = now
		t.pause(t.pauses.auth, now)
	case Unavailable, Unreached, Unsure:
		t.fail(o, now)
	default:
		t.succeed(full)
	}
}

// recorded says that the results of n requests were recorded or given up.
func (t *throttle) recorded(n int) {
	t.mu.Lock()
	t.unrecorded -= n
	t.mu.Unlock()
	t.wake()
}

func (t *throttle) fail(o Outcome, now time.Time) {
	t.failures++
	t.shrink(now)
	switch {
	case o.RetryAfter > 0:
		t.pause(o.RetryAfter, now)
	case now.Before(t.until): // the request began before the pause
	case t.probing:
		t.probes++
		t.pause(t.backoff(), now)
	case t.failures >= failuresToPause:
		t.pause(t.backoff(), now)
	}
}

func (t *throttle) succeed(full bool) {
	t.failures, t.probes, t.refusedAt = 0, 0, time.Time{}
	if t.probing {
		t.probing = false
		return
	}
	if full {
		t.limit = min(t.bounds.max, t.limit+1)
	}
}

// shrinkInterval keeps one burst of failures from halving the limit many times.
const shrinkInterval = 200 * time.Millisecond

func (t *throttle) shrink(now time.Time) {
	if now.Sub(t.halved) < shrinkInterval {
		return
	}
	t.halved = now
	t.limit = max(t.bounds.min, t.limit/2)
}

func (t *throttle) pause(d time.Duration, now time.Time) {
	if until := now.Add(d); until.After(t.until) {
		t.until = until
	}
	t.probing = true
}

// backoff doubles with every failed probe. Up to half of it is random.
func (t *throttle) backoff() time.Duration {
	d := min(t.pauses.most, t.pauses.first<<min(t.probes, 16))
	return d/2 + rand.N(d/2+1)
}

// throttleState is the part of a throttle that operators see.
type throttleState struct {
	limit   int
	paused  time.Duration
	refused bool // our credentials, at most circuitKnown ago
}

// circuitKnown is how long an open circuit is reported if this process sends nothing: another one may have sent since. What was refused is
// sent again sooner.
const circuitKnown = 3 * time.Minute

func (t *throttle) state(now time.Time) throttleState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return throttleState{
		limit: int(t.limit), paused: max(0, t.until.Sub(now)), refused: now.Before(t.refusedAt.Add(circuitKnown)),
	}
}

func (t *throttle) wake() {
	t.freed.Set()
	t.room.Set()
}

package notify

import (
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// tooManyRefused is how many drivers' tokens that were good lately have to be refused within a gap, more than are taken,
	// for the push service not to be believed: it has a fault of its own, or does not know our credentials. Tokens that
	// were never good say nothing about it, and a driver counts once, whatever they have registered.
	tooManyRefused = 20
	// maxNeverGood is how many of a driver's tokens may be refused that were never good. What else the driver registers is
	// tried apart from the others' then.
	maxNeverGood = 10
	// goodPeriod is how long a token counts as good, goodAgain how often it is noted that it is.
	goodPeriod  = 7 * 24 * time.Hour
	goodRenewal = 24 * time.Hour
)

// These are numbers of gaps.
const (
	// recently is for how long a push that was taken shows that the push service works, and how long distrust lasts.
	recently = 10
	// maxDistrust bounds distrust; it does not begin again for as long.
	maxDistrust = 30
	// neverGoodMemory is how long a driver's made-up tokens count.
	neverGoodMemory = 60
)

// deadTokens judges those that the push service calls dead. The first verdict puts a device under suspicion: what is pushed
// to it goes apart from the others' from then on, see aside. The second, a gap later at the earliest, quarantines it if
// the push service has taken a push to another driver in between.
//
// No verdict stops what is pushed to others, but for one: when many tokens that were good lately are refused and none
// is taken, single requests find out whether any is.
type deadTokens struct {
	throttle *throttle
	verdicts *verdictWriter
	gap      time.Duration
	log      *slog.Logger
	metrics  *relayMetrics

	mu            sync.Mutex
	sweptAt       time.Time
	refusedTokens map[string]time.Time // lately. Pushes read before do not say yet that their devices are suspected
	neverGood     map[dispatch.DriverID]neverGood
	// Drivers within the last gap: whose token, known to be good, was refused; was again; whose token was taken.
	refusedOnce, refusedTwice, reached sightings
	lastReached, otherReached          sighting // the last whose token was taken, and the last before that of another driver
	distrust                           distrust
}

// neverGood counts a driver's tokens that were refused and never good.
type neverGood struct {
	tokens int
	since  time.Time
}

type sighting struct {
	driver dispatch.DriverID
	at     time.Time
}

// sightings is when drivers were last seen.
type sightings map[dispatch.DriverID]time.Time

// distrust is when nobody is quarantined.
type distrust struct{ since, until, notBefore time.Time }

func newDeadTokens(v *verdictWriter, c *throttle, gap time.Duration, log *slog.Logger, m *relayMetrics) *deadTokens {
	return &deadTokens{
		throttle: c, verdicts: v, gap: gap, log: log, metrics: m,
		refusedTokens: map[string]time.Time{}, neverGood: map[dispatch.DriverID]neverGood{},
		refusedOnce: sightings{}, refusedTwice: sightings{}, reached: sightings{},
	}
}

// suspected reports whether a push is to go apart from the others.
func (t *deadTokens) suspected(p outbox.Push, now time.Time) bool {
	if p.Topic != "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, refused := t.refusedTokens[p.Device.PushToken]; refused || p.Device.SuspectedAt != nil {
		return true
	}
	m := t.neverGood[p.Driver]
	return m.tokens >= maxNeverGood && now.Sub(m.since) < neverGoodMemory*t.gap && !wasGood(p.Device, now)
}

// retryWait is how long to wait with a token that was refused and was never good: to ask sooner would show nothing.
func (t *deadTokens) retryWait(p outbox.Push, now time.Time) time.Duration {
	if wasGood(p.Device, now) {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.refusedTokens[p.Device.PushToken]
	if at := p.Device.SuspectedAt; at != nil {
		last = latest(last, *at)
	}
	return max(0, last.Add(t.gap).Sub(now))
}

// wasGood reports whether the push service has taken a push to the device lately.
func wasGood(v dispatch.Device, now time.Time) bool {
	return v.GoodAt != nil && now.Sub(*v.GoodAt) < goodPeriod
}

// recordSent hears of a push that was taken.
func (t *deadTokens) recordSent(p outbox.Push, now time.Time) {
	if p.Topic != "" {
		return // which says nothing about any token
	}
	t.mu.Lock()
	_, refused := t.refusedTokens[p.Device.PushToken]
	delete(t.refusedTokens, p.Device.PushToken)
	t.reached[p.Driver] = now
	if t.lastReached.driver != p.Driver {
		t.otherReached = t.lastReached
	}
	t.lastReached = sighting{p.Driver, now}
	t.mu.Unlock()
	v := p.Device
	if refused || v.SuspectedAt != nil || v.GoodAt == nil || now.Sub(*v.GoodAt) > goodRenewal {
		t.verdicts.add(verdict{v, trusted})
	}
}

// recordRefusal hears of a push whose token was refused, and says what becomes of the push.
func (t *deadTokens) recordRefusal(p outbox.Push, o Outcome, now time.Time) outbox.SendResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	t.countRefusal(p, o, now)
	s := outbox.SendResult{
		ID: p.ID, Status: outbox.Pending, After: t.retryAfter(), Attempts: p.Attempts,
		Result: string(o.Class), Reason: o.Reason,
	}
	suspected := p.Device.SuspectedAt
	switch {
	case suspected == nil:
		t.verdicts.add(verdict{p.Device, underSuspicion})
	case now.Sub(*suspected) >= t.gap && !now.Before(t.distrust.until) && t.reachesSince(p.Driver, *suspected, now):
		t.verdicts.add(verdict{p.Device, quarantined})
		s.Status, s.After = outbox.Dropped, 0
		s.Attempts++
	}
	return s
}

// retryAfter is when a push whose token was refused is tried again: late enough for the second verdict. Many that are tried
// again at almost the same time are settled by one statement.
func (t *deadTokens) retryAfter() time.Duration { return jittered(t.gap * 5 / 4).Round(t.gap / 60) }

// reachesSince reports whether the push service has taken a push lately, and after a time, to another driver. t.mu is held.
func (t *deadTokens) reachesSince(but dispatch.DriverID, after, now time.Time) bool {
	last := t.lastReached
	if last.driver == but {
		last = t.otherReached
	}
	return last.at.After(after) && now.Sub(last.at) < recently*t.gap
}

// reachesOthers is works without a time after which it has to be.
func (t *deadTokens) reachesOthers(others dispatch.DriverID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reachesSince(others, time.Time{}, now)
}

// countRefusal has the refusal count as what it shows. t.mu is held.
func (t *deadTokens) countRefusal(p outbox.Push, o Outcome, now time.Time) {
	first := p.Device.SuspectedAt == nil
	if _, known := t.refusedTokens[p.Device.PushToken]; known {
		first = false
	}
	t.refusedTokens[p.Device.PushToken] = now
	if !wasGood(p.Device, now) {
		m := t.neverGood[p.Driver]
		if now.Sub(m.since) >= neverGoodMemory*t.gap {
			m = neverGood{since: now}
		}
		if first {
			m.tokens++
		}
		t.neverGood[p.Driver] = m
		return
	}
	if !first {
		t.refusedTwice[p.Driver] = now
	} else {
		t.refusedOnce[p.Driver] = now
	}
	lost, taken := len(t.refusedOnce), len(t.reached)
	silent := now.Sub(t.lastReached.at) > recently*t.gap
	if silent {
		lost = max(lost, len(t.refusedTwice))
	}
	tooMany := lost >= tooManyRefused && lost > taken
	if tooMany {
		t.extendDistrust(silent, o, now)
	}
	if first && taken == 0 {
		t.throttle.probeTokens(tooMany, now)
	}
}

// extendDistrust begins distrust, or has it last on: without an end while the push service is silent, which takes nothing. t.mu is
// held.
func (t *deadTokens) extendDistrust(silent bool, o Outcome, now time.Time) {
	d := &t.distrust
	begins := !now.Before(d.until)
	if begins && !silent && now.Before(d.notBefore) {
		return
	}
	if begins || silent {
		d.since = now
	}
	d.until = now.Add(recently * t.gap)
	if end := d.since.Add(maxDistrust * t.gap); d.until.After(end) {
		d.until = end
	}
	d.notBefore = d.until.Add(maxDistrust * t.gap)
	t.metrics.distrusted.Store(d.until.UnixNano())
	if begins {
		t.log.Error("ALERT: the push service calls tokens dead that were good lately, and is not believed: no device is quarantined until then",
			"until", d.until, "drivers", len(t.refusedOnce), "drivers_reached", len(t.reached), "reason", o.Reason)
	}
}

// sweep forgets what no longer counts. t.mu is held.
func (t *deadTokens) sweep(now time.Time) {
	if now.Sub(t.sweptAt) < t.gap/6 {
		return
	}
	t.sweptAt = now
	for _, s := range []sightings{t.refusedOnce, t.refusedTwice, t.reached} {
		for driver, at := range s {
			if now.Sub(at) > t.gap {
				delete(s, driver)
			}
		}
	}
	for token, at := range t.refusedTokens {
		if now.Sub(at) > 2*t.gap {
			delete(t.refusedTokens, token)
		}
	}
	for driver, m := range t.neverGood {
		if now.Sub(m.since) >= neverGoodMemory*t.gap {
			delete(t.neverGood, driver)
		}
	}
}

package notify

import (
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// Distrust of the push service begins when it refuses recently good tokens of tooManyRefused drivers within a gap, and
	// reaches fewer drivers than that, of maxReached: it has a fault of its own, or the credentials are another project's. Tokens that
	// never were good prove nothing, and a driver counts once, however many tokens the driver registered.
	tooManyRefused = 20
	// maxNeverGood is how many refused tokens that never were good a driver may have before the driver's other new tokens
	// are suspected too.
	maxNeverGood = 10
	// maxReached is how many reached drivers are remembered, of hundreds of thousands that an instance may reach in a gap.
	maxReached = 10_000
	// goodPeriod is how long a token counts as good after a push, goodRenewal how old the record of it may become.
	goodPeriod  = 7 * 24 * time.Hour
	goodRenewal = 24 * time.Hour
)

// Periods, as multiples of the gap.
const (
	// recently is how long an accepted push proves that the push service works, and how long distrust lasts.
	recently = 10
	// maxDistrust bounds distrust. For as long afterwards it does not begin again.
	maxDistrust = 30
	// neverGoodMemory is how long a driver's refused tokens that never were good count.
	neverGoodMemory = 60
)

// deadTokens judges tokens that the push service calls dead. The first refusal puts the device under suspicion: pushes to
// it go through the suspectQueue from then on. The second, at least a gap later, quarantines the device if the push service
// accepted a push to another driver in between.
//
// Refusals do not slow down pushes to others, with one exception: when many recently good tokens are refused and none is
// accepted, the throttle lets single requests find out whether any is.
type deadTokens struct {
	throttle *throttle
	verdicts *verdictWriter
	gap      time.Duration
	log      *slog.Logger
	metrics  *relayMetrics

	mu            sync.Mutex
	sweptAt       time.Time
	refusedTokens map[string]time.Time // recently; a push that was read earlier does not show the suspicion yet
	neverGood     map[dispatch.DriverID]neverGood
	// The drivers of the last gap whose recently good token was refused, was refused again, and was accepted.
	refusedOnce, refusedTwice, reached sightings
	lastReached, otherReached          sighting // the last driver who was reached, and the last other one before
	distrust                           distrust
}

// neverGood counts a driver's refused tokens that never were good.
type neverGood struct {
	tokens int
	since  time.Time
}

type sighting struct {
	driver dispatch.DriverID
	at     time.Time
}

// sightings are the times at which drivers were last seen.
type sightings map[dispatch.DriverID]time.Time

// note records that the driver was seen. A new driver takes the place of an arbitrary one if there are maxReached.
func (s sightings) note(driver dispatch.DriverID, now time.Time) {
	if _, known := s[driver]; !known && len(s) >= maxReached {
		for other := range s {
			delete(s, other)
			break
		}
	}
	s[driver] = now
}

// distrust is the period in which no device is quarantined. The next one begins at notBefore at the earliest.
type distrust struct{ since, until, notBefore time.Time }

func newDeadTokens(v *verdictWriter, c *throttle, gap time.Duration, log *slog.Logger, m *relayMetrics) *deadTokens {
	return &deadTokens{
		throttle: c, verdicts: v, gap: gap, log: log, metrics: m,
		refusedTokens: map[string]time.Time{}, neverGood: map[dispatch.DriverID]neverGood{},
		refusedOnce: sightings{}, refusedTwice: sightings{}, reached: sightings{},
	}
}

// suspected reports whether a push belongs into the suspectQueue.
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

// retryWait returns how long a refused token that never was good has to wait: an earlier refusal would prove nothing new.
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

// wasGood reports whether the push service recently accepted a push to the device.
func wasGood(v dispatch.Device, now time.Time) bool {
	return v.PushAcceptedAt != nil && now.Sub(*v.PushAcceptedAt) < goodPeriod
}

// recordSent records that the push service accepted a push.
func (t *deadTokens) recordSent(p outbox.Push, now time.Time) {
	if p.Topic != "" {
		return // it proves nothing about a token
	}
	t.mu.Lock()
	_, refused := t.refusedTokens[p.Device.PushToken]
	delete(t.refusedTokens, p.Device.PushToken)
	t.reached.note(p.Driver, now)
	if t.lastReached.driver != p.Driver {
		t.otherReached = t.lastReached
	}
	t.lastReached = sighting{p.Driver, now}
	t.mu.Unlock()
	v := p.Device
	if refused || v.SuspectedAt != nil || v.PushAcceptedAt == nil || now.Sub(*v.PushAcceptedAt) > goodRenewal {
		t.verdicts.add(verdict{v, outbox.Trusted})
	}
}

// recordRefusal judges the refused token of a push, and returns the push's result.
func (t *deadTokens) recordRefusal(p outbox.Push, o Outcome, now time.Time) outbox.SendResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	t.countRefusal(p, o, now)
	s := outbox.SendResult{
		ID: p.ID, Status: outbox.Pending, RetryAfter: t.retryAfter(), Attempts: p.Attempts,
		Result: string(o.Class), Reason: o.Reason,
	}
	suspected := p.Device.SuspectedAt
	switch {
	case suspected == nil:
		t.verdicts.add(verdict{p.Device, outbox.Suspected})
	case now.Sub(*suspected) >= t.gap && !now.Before(t.distrust.until) && t.reachesSince(p.Driver, *suspected, now):
		t.verdicts.add(verdict{p.Device, outbox.Quarantined})
		s.Status, s.RetryAfter = outbox.Dropped, 0
		s.Attempts++
	}
	return s
}

// retryAfter is the wait before a refused push is retried, long enough for a second verdict. It is rounded so that one
// statement can record many results.
func (t *deadTokens) retryAfter() time.Duration { return jittered(t.gap * 5 / 4).Round(t.gap / 60) }

// reachesSince reports whether the push service recently accepted a push to another driver, and did so after the given
// time. t.mu is held.
func (t *deadTokens) reachesSince(but dispatch.DriverID, after, now time.Time) bool {
	last := t.lastReached
	if last.driver == but {
		last = t.otherReached
	}
	return last.at.After(after) && now.Sub(last.at) < recently*t.gap
}

// reachesOthers reports whether the push service recently accepted a push to another driver.
func (t *deadTokens) reachesOthers(others dispatch.DriverID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reachesSince(others, time.Time{}, now)
}

// countRefusal counts a refusal as evidence against the driver's tokens or against the push service. t.mu is held.
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

// extendDistrust begins or extends distrust. While the push service is silent, accepting no push, distrust has no end. t.mu
// is held.
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
		t.log.Error("ALERT: push service refuses too many tokens that worked recently; no device is quarantined for a while",
			"until", d.until, "drivers", len(t.refusedOnce), "drivers_reached", len(t.reached), "reason", o.Reason)
	}
}

// sweep forgets evidence that is too old to count. t.mu is held.
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

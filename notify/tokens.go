package notify

import (
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// tooManyLost is how many drivers' tokens that were good lately have to be refused within a gap, more than are taken,
	// for the push service not to be believed: it has a fault of its own, or does not know our credentials. Tokens that
	// were never good say nothing about it, and a driver counts once, whatever they have registered.
	tooManyLost = 20
	// mostMadeUp is how many of a driver's tokens may be refused that were never good. What else the driver registers is
	// tried apart from the others' then.
	mostMadeUp = 10
	// goodFor is how long a token counts as good, goodAgain how often it is noted that it is.
	goodFor   = 7 * 24 * time.Hour
	goodAgain = 24 * time.Hour
)

// These are numbers of gaps.
const (
	// lately is for how long a push that was taken shows that the push service works, and how long distrust lasts.
	lately = 10
	// mostDistrust bounds distrust; it does not begin again for as long.
	mostDistrust = 30
	// remembered is how long a driver's made-up tokens count.
	remembered = 60
)

// tokens judges those that the push service calls dead. The first verdict puts a device under suspicion: what is pushed
// to it goes apart from the others' from then on, see aside. The second, a gap later at the earliest, quarantines it if
// the push service has taken a push to another driver in between.
//
// No verdict stops what is pushed to others, but for one: when many tokens that were good lately are refused and none
// is taken, single requests find out whether any is.
type tokens struct {
	channel  *channel
	verdicts *verdicts
	gap      time.Duration
	log      *slog.Logger
	metrics  *relayMetrics

	mu      sync.Mutex
	swept   time.Time
	refused map[string]time.Time // lately. Pushes read before do not say yet that their devices are suspected
	madeUp  map[dispatch.DriverID]madeUp
	// Drivers within the last gap: whose token, known to be good, was refused; was again; whose token was taken.
	lost, lostAgain, taken sightings
	latest, other          sighting // the last whose token was taken, and the last before that of another driver
	distrust               distrust
}

// madeUp counts a driver's tokens that were refused and never good.
type madeUp struct {
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
type distrust struct{ since, until, rests time.Time }

func newTokens(v *verdicts, c *channel, gap time.Duration, log *slog.Logger, m *relayMetrics) *tokens {
	return &tokens{
		channel: c, verdicts: v, gap: gap, log: log, metrics: m,
		refused: map[string]time.Time{}, madeUp: map[dispatch.DriverID]madeUp{},
		lost: sightings{}, lostAgain: sightings{}, taken: sightings{},
	}
}

// apart reports whether a push is to go apart from the others.
func (t *tokens) apart(p outbox.Push, now time.Time) bool {
	if p.Topic != "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, refused := t.refused[p.Device.PushToken]; refused || p.Device.SuspectedAt != nil {
		return true
	}
	m := t.madeUp[p.Driver]
	return m.tokens >= mostMadeUp && now.Sub(m.since) < remembered*t.gap && !wasGood(p.Device, now)
}

// tooEarly is how long to wait with a token that was refused and was never good: to ask sooner would show nothing.
func (t *tokens) tooEarly(p outbox.Push, now time.Time) time.Duration {
	if wasGood(p.Device, now) {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.refused[p.Device.PushToken]
	if at := p.Device.SuspectedAt; at != nil {
		last = latest(last, *at)
	}
	return max(0, last.Add(t.gap).Sub(now))
}

// wasGood reports whether the push service has taken a push to the device lately.
func wasGood(v dispatch.Device, now time.Time) bool {
	return v.GoodAt != nil && now.Sub(*v.GoodAt) < goodFor
}

// accept hears of a push that was taken.
func (t *tokens) accept(p outbox.Push, now time.Time) {
	if p.Topic != "" {
		return // which says nothing about any token
	}
	t.mu.Lock()
	_, refused := t.refused[p.Device.PushToken]
	delete(t.refused, p.Device.PushToken)
	t.taken[p.Driver] = now
	if t.latest.driver != p.Driver {
		t.other = t.latest
	}
	t.latest = sighting{p.Driver, now}
	t.mu.Unlock()
	v := p.Device
	if refused || v.SuspectedAt != nil || v.GoodAt == nil || now.Sub(*v.GoodAt) > goodAgain {
		t.verdicts.add(verdict{v, trusted})
	}
}

// judge hears of a push whose token was refused, and says what becomes of the push.
func (t *tokens) judge(p outbox.Push, o Outcome, now time.Time) outbox.SendResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	t.note(p, o, now)
	s := outbox.SendResult{
		ID: p.ID, Status: outbox.Pending, After: t.again(), Attempts: p.Attempts,
		Result: string(o.Class), Reason: o.Reason,
	}
	suspected := p.Device.SuspectedAt
	switch {
	case suspected == nil:
		t.verdicts.add(verdict{p.Device, underSuspicion})
	case now.Sub(*suspected) >= t.gap && !now.Before(t.distrust.until) && t.works(p.Driver, *suspected, now):
		t.verdicts.add(verdict{p.Device, quarantined})
		s.Status, s.After = outbox.Dropped, 0
		s.Attempts++
	}
	return s
}

// again is when a push whose token was refused is tried again: late enough for the second verdict. Many that are tried
// again at almost the same time are settled by one statement.
func (t *tokens) again() time.Duration { return jittered(t.gap * 5 / 4).Round(t.gap / 60) }

// works reports whether the push service has taken a push lately, and after a time, to another driver. t.mu is held.
func (t *tokens) works(but dispatch.DriverID, after, now time.Time) bool {
	last := t.latest
	if last.driver == but {
		last = t.other
	}
	return last.at.After(after) && now.Sub(last.at) < lately*t.gap
}

// worksFor is works without a time after which it has to be.
func (t *tokens) worksFor(others dispatch.DriverID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.works(others, time.Time{}, now)
}

// note has the refusal count as what it shows. t.mu is held.
func (t *tokens) note(p outbox.Push, o Outcome, now time.Time) {
	first := p.Device.SuspectedAt == nil
	if _, known := t.refused[p.Device.PushToken]; known {
		first = false
	}
	t.refused[p.Device.PushToken] = now
	if !wasGood(p.Device, now) {
		m := t.madeUp[p.Driver]
		if now.Sub(m.since) >= remembered*t.gap {
			m = madeUp{since: now}
		}
		if first {
			m.tokens++
		}
		t.madeUp[p.Driver] = m
		return
	}
	if !first {
		t.lostAgain[p.Driver] = now
	} else {
		t.lost[p.Driver] = now
	}
	lost, taken := len(t.lost), len(t.taken)
	silent := now.Sub(t.latest.at) > lately*t.gap
	if silent {
		lost = max(lost, len(t.lostAgain))
	}
	tooMany := lost >= tooManyLost && lost > taken
	if tooMany {
		t.doubt(silent, o, now)
	}
	if first && taken == 0 {
		t.channel.doubt(tooMany, now)
	}
}

// doubt begins distrust, or has it last on: without an end while the push service is silent, which takes nothing. t.mu is
// held.
func (t *tokens) doubt(silent bool, o Outcome, now time.Time) {
	d := &t.distrust
	begins := !now.Before(d.until)
	if begins && !silent && now.Before(d.rests) {
		return
	}
	if begins || silent {
		d.since = now
	}
	d.until = now.Add(lately * t.gap)
	if end := d.since.Add(mostDistrust * t.gap); d.until.After(end) {
		d.until = end
	}
	d.rests = d.until.Add(mostDistrust * t.gap)
	t.metrics.distrusted.Store(d.until.UnixNano())
	if begins {
		t.log.Error("ALERT: the push service calls tokens dead that were good lately, and is not believed: no device is quarantined until then",
			"until", d.until, "drivers", len(t.lost), "drivers_reached", len(t.taken), "reason", o.Reason)
	}
}

// sweep forgets what no longer counts. t.mu is held.
func (t *tokens) sweep(now time.Time) {
	if now.Sub(t.swept) < t.gap/6 {
		return
	}
	t.swept = now
	for _, s := range []sightings{t.lost, t.lostAgain, t.taken} {
		for driver, at := range s {
			if now.Sub(at) > t.gap {
				delete(s, driver)
			}
		}
	}
	for token, at := range t.refused {
		if now.Sub(at) > 2*t.gap {
			delete(t.refused, token)
		}
	}
	for driver, m := range t.madeUp {
		if now.Sub(m.since) >= remembered*t.gap {
			delete(t.madeUp, driver)
		}
	}
}

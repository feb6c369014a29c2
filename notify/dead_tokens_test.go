package notify

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// court is deadTokens with a clock of its own.
type court struct {
	*deadTokens
	t    *testing.T
	now  time.Time
	said bytes.Buffer
}

func newCourt(t *testing.T) *court {
	c := &court{t: t, now: time.Unix(1e9, 0)}
	m := newRelayMetrics(nil, nil)
	log := slog.New(slog.NewTextHandler(&c.said, nil))
	c.deadTokens = newDeadTokens(newVerdictWriter(nil, log, m), newThrottle(defaultLimits, defaultPauses), time.Minute, log, m)
	return c
}

// last returns the last verdict since its last call, "" for none.
func (c *court) last() (what outbox.Verdict) {
	for len(c.verdicts.queue) > 0 {
		what = (<-c.verdicts.queue).kind
	}
	return what
}

// device returns a push to a driver whose token was good so long ago, -1 for never.
func (c *court) device(driver string, good time.Duration) outbox.Push {
	id := dispatch.DriverID(driver)
	p := outbox.Push{Driver: id, Device: dispatch.Device{ID: dispatch.DeviceID(driver), Driver: id, PushToken: "token of " + driver}}
	if at := c.now.Add(-good); good >= 0 {
		p.Device.PushAcceptedAt = &at
	}
	return p
}

func (c *court) takes(p outbox.Push) { c.recordSent(p, c.now) }

func (c *court) refuses(p outbox.Push) outbox.SendResult {
	return c.recordRefusal(p, Outcome{Class: DeadToken, Reason: "404"}, c.now)
}

// suspect returns p as read after its device came under suspicion.
func (c *court) suspect(p outbox.Push) outbox.Push {
	at := c.now
	p.Device.SuspectedAt = &at
	return p
}

// The first verdict puts a device under suspicion. The second quarantines it if it comes later and the push service works.
func TestTwoVerdicts(t *testing.T) {
	for name, good := range map[string]time.Duration{"was good": time.Hour, "never was": -1, "was good long ago": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t)
			other, p := c.device("other", 0), c.device("p", good)
			c.takes(other)
			mustBe := func(when string, p outbox.Push, status outbox.Status, what outbox.Verdict) {
				t.Helper()
				s := c.refuses(p)
				if got := c.last(); s.Status != status || got != what {
					t.Errorf("%s: the push is %s, the token %q, want %s, %q", when, s.Status, got, status, what)
				}
				if waits := s.Status == outbox.Pending; waits != (s.RetryAfter >= c.gap) {
					t.Errorf("%s: again after %s", when, s.RetryAfter)
				}
			}
			c.last()
			if c.suspected(p, c.now) {
				t.Error("apart without a reason")
			}
			mustBe("the first", p, outbox.Pending, outbox.Suspected)
			if !c.suspected(p, c.now) {
				t.Error("a push that was read before the verdict goes with the others")
			}
			wait := c.gap // another refusal at once would prove nothing new
			if wasGood(p.Device, c.now) {
				wait = 0
			}
			testkit.Equal(t, "the wait until the token is tried again", wait, c.retryWait(p, c.now))
			p = c.suspect(p)
			c.now = c.now.Add(time.Second)
			c.takes(other)
			c.last()
			mustBe("at the same time", p, outbox.Pending, "")
			c.now = c.now.Add(11 * time.Minute)
			mustBe("while no token is accepted", p, outbox.Pending, "")
			c.takes(c.device("p", 0))
			c.last()
			mustBe("while only the same driver is reached", p, outbox.Pending, "")
			c.takes(other)
			c.last()
			mustBe("the second", p, outbox.Dropped, outbox.Quarantined)

			c.takes(p)
			testkit.Equal(t, "the verdict on a suspect that is taken", outbox.Trusted, c.last())
		})
	}
}

func TestGoodTokensAreRecordedOnceADay(t *testing.T) {
	c := newCourt(t)
	for good, want := range map[time.Duration]outbox.Verdict{-1: outbox.Trusted, time.Hour: "", 23 * time.Hour: "", 25 * time.Hour: outbox.Trusted} {
		c.takes(c.device("p", good))
		testkit.Equal(t, fmt.Sprintf("what is recorded of a token that was good %s ago", good), want, c.last())
	}
	p := c.device("p", time.Hour)
	p.Topic = "dispatch-1"
	if c.takes(p); c.last() != "" || c.suspected(p, c.now) {
		t.Error("a push to a topic counts as a proof of a token")
	}
}

// Tokens that were never good prove nothing, however many, nor do many of few drivers.
func TestMadeUpTokensAreNoEvidence(t *testing.T) {
	c := newCourt(t)
	for i := range 600 {
		p := c.device(fmt.Sprint("cheat ", i/10), -1)
		p.Device.PushToken = fmt.Sprint("made up ", i)
		c.refuses(p)
	}
	for i := range 10 * (tooManyRefused - 1) {
		p := c.device(fmt.Sprint("driver ", i/10), 0)
		p.Device.PushToken = fmt.Sprint("lost ", i)
		c.refuses(p)
	}
	if s := c.throttle.state(c.now); c.distrust.until.After(c.now) || s.circuit != "" || s.paused > 0 || c.said.Len() > 0 {
		t.Errorf("%+v %+v %s", c.distrust, s, &c.said)
	}
}

// After too many made-up tokens, a driver's other tokens are suspected, unless they were good.
func TestMadeUpTokensAreRemembered(t *testing.T) {
	c := newCourt(t)
	token := func(i int, good time.Duration) outbox.Push {
		p := c.device("cheat", good)
		p.Device.PushToken = fmt.Sprint("made up ", i)
		return p
	}
	for i := range maxNeverGood {
		if c.suspected(token(i, -1), c.now) {
			t.Errorf("token %d is apart", i)
		}
		c.refuses(token(i, -1))
	}
	if !c.suspected(token(100, -1), c.now) {
		t.Error("yet another goes with the others")
	}
	if c.suspected(token(101, time.Hour), c.now) || c.suspected(c.device("other", -1), c.now) {
		t.Error("a good one, or another driver's, does not")
	}
	c.now = c.now.Add(time.Hour)
	if c.suspected(token(100, -1), c.now) {
		t.Error("for more than an hour")
	}
}

// many refuses the good tokens of some drivers, and accepts those of others.
func (c *court) many(refused, taken int) {
	for i := range taken {
		c.takes(c.device(fmt.Sprint("reached ", i), 0))
	}
	for i := range refused {
		c.refuses(c.device(fmt.Sprint("lost ", i), 0))
	}
	c.last()
}

// During distrust no device is quarantined. It ends by itself, and does not slow pushes while some tokens are accepted.
func TestDistrust(t *testing.T) {
	c := newCourt(t)
	first := c.suspect(c.device("first", 0))
	c.now = c.now.Add(5 * time.Minute)
	c.many(70, 30)
	testkit.Equal(t, "alerts", 1, strings.Count(c.said.String(), "ALERT"))
	if s := c.throttle.state(c.now); s.circuit != "" || s.paused > 0 {
		t.Errorf("the channel is %+v", s)
	}
	judged := func() outbox.Verdict {
		c.takes(c.device("reached 0", 0))
		c.refuses(first)
		return c.last()
	}
	c.now = c.now.Add(9 * time.Minute)
	testkit.Equal(t, "the verdict while the push service is not believed", "", judged())
	c.now = c.now.Add(2 * time.Minute)
	testkit.Equal(t, "the verdict afterwards", outbox.Quarantined, judged())
	// Drivers with ever more refused tokens can cause distrust for half of the time at most.
	distrusted := 0
	for minute := range 120 {
		c.now = c.now.Add(time.Minute)
		for i := range 30 {
			c.refuses(c.device(fmt.Sprintf("cheat %d %d", minute, i), 0))
		}
		c.takes(c.device("reached 0", 0))
		if c.now.Before(c.distrust.until) {
			distrusted++
		}
	}
	if distrusted == 0 || distrusted > 65 {
		t.Errorf("not believed for %d minutes of 120", distrusted)
	}
}

// When no token is accepted, single requests probe whether the push service accepts any.
func TestAllTokensAreRefused(t *testing.T) {
	c := newCourt(t)
	c.many(tooManyRefused-1, 0)
	if s := c.throttle.state(c.now); s.circuit != "" {
		t.Fatalf("too early: %+v", s)
	}
	c.many(tooManyRefused, 0)
	if !c.now.Before(c.distrust.until) {
		t.Error("the push service's refusals are trusted")
	}
	s := c.throttle.state(c.now)
	testkit.Equal(t, "the circuit", DeadToken, s.circuit)
	for range 60 {
		c.now = c.now.Add(time.Minute)
		c.many(tooManyRefused, 0)
		if s := c.throttle.state(c.now); s.circuit != DeadToken {
			t.Fatalf("%+v", s)
		}
	}
	if !c.now.Before(c.distrust.until) {
		t.Error("the push service's refusals are trusted after an hour without an accepted push")
	}
}

// Evidence is forgotten after a time, which bounds the memory.
func TestTokensForget(t *testing.T) {
	c := newCourt(t)
	for i := range 1000 {
		c.refuses(c.device(fmt.Sprint("lost ", i), 0))
		c.refuses(c.device(fmt.Sprint("cheat ", i), -1))
		c.takes(c.device(fmt.Sprint("reached ", i), 0))
	}
	c.now = c.now.Add(2 * time.Hour)
	c.refuses(c.device("one", 0))
	testkit.Equal(t, "what is remembered", 2, len(c.refusedOnce)+len(c.refusedTwice)+len(c.reached)+len(c.refusedTokens)+len(c.neverGood))
}

// However many drivers are reached, few are remembered, and enough to know that the push service works.
func TestReachedDriversAreBounded(t *testing.T) {
	c := newCourt(t)
	const n = 3 * maxReached
	for i := range n {
		c.now = c.now.Add(2 * time.Minute / n)
		c.takes(c.device(fmt.Sprint("reached ", i), 0))
		if len(c.reached) > maxReached {
			t.Fatalf("%d are remembered", len(c.reached))
		}
	}
	c.many(10*tooManyRefused, 0)
	if c.said.Len() > 0 || len(c.reached) < maxReached/2 {
		t.Errorf("%d of the last minute are remembered\n%s", len(c.reached), &c.said)
	}
}

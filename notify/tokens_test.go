package notify

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
)

// court is tokens with a clock of its own.
type court struct {
	*tokens
	now  time.Time
	said bytes.Buffer
}

func newCourt() *court {
	c := &court{now: time.Unix(1e9, 0)}
	c.tokens = newTokens(nil, time.Minute, slog.New(slog.NewTextHandler(&c.said, nil)), newRelayMetrics(nil, nil))
	return c
}

// last returns the last verdict since its last call, "" for none.
func (c *court) last() (what outbox.Verdict) {
	for len(c.queue) > 0 {
		what = (<-c.queue).kind
	}
	return what
}

// device returns a push to a device.
func (c *court) device(name string) outbox.Push {
	return outbox.Push{Device: dispatch.Device{ID: dispatch.DeviceID(name), PushToken: "token of " + name}}
}

// The first report makes a device a suspect. The second quarantines it if it comes later, and the push service has accepted a push since the
// first, and did so recently. Until then the push is retried.
func TestTwoVerdicts(t *testing.T) {
	c := newCourt()
	other, p := c.device("other"), c.device("p")
	refuse := func(when string, status outbox.Status, what outbox.Verdict) {
		t.Helper()
		s := c.recordRefusal(p, Outcome{Class: DeadToken, Reason: "404"}, c.now)
		if got := c.last(); s.Status != status || got != what {
			t.Errorf("%s: the push is %s, the token %q, want %s, %q", when, s.Status, got, status, what)
		}
		if waits := s.Status == outbox.Pending; waits != (s.RetryAfter >= c.gap) {
			t.Errorf("%s: again after %s", when, s.RetryAfter)
		}
	}
	c.recordSent(other, c.now)
	refuse("the first", outbox.Pending, outbox.Suspected)
	at := c.now
	p.Device.SuspectedAt = &at
	c.now = c.now.Add(time.Minute)
	for range 3 {
		refuse("nothing was accepted since", outbox.Pending, "")
	}
	testkit.Equal(t, "lines in the log", 1, strings.Count(c.said.String(), "not believed"))
	c.recordSent(other, c.now)
	c.now = at.Add(time.Minute - 1)
	refuse("too soon", outbox.Pending, "")
	c.now = at.Add(11 * time.Minute)
	refuse("nothing was accepted for ten minutes", outbox.Pending, "")
	topic := other
	topic.Topic = "dispatch-1"
	c.recordSent(topic, c.now)
	refuse("only a topic's push was accepted", outbox.Pending, "")
	c.recordSent(other, c.now)
	refuse("the second", outbox.Pending, outbox.Quarantined)
	c.recordSent(p, c.now)
	testkit.Equal(t, "the verdict on a suspect that is accepted", outbox.Trusted, c.last())
}

package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
)

const (
	// verdictEvery is how long tokens that are said to be dead are gathered before any of them is believed to be.
	verdictEvery = 2 * time.Second
	// A push service with a fault of its own, or asked with the wrong project's credentials, says so of tokens that
	// live: this many within one verdict, and more than half of all answers, are not believed.
	tooManyDead = 20
	// distrustFor is how long nothing is sent then.
	distrustFor   = time.Minute
	suspectsQueue = 2048
)

// tokens judges those that the push service calls dead, several at a time.
type tokens struct {
	devices Devices
	settler *settler
	channel *channel
	log     *slog.Logger
	metrics *relayMetrics
	queue   chan suspect
}

type suspect struct {
	push    dispatch.Push
	outcome Outcome
}

func newTokens(d Devices, s *settler, c *channel, log *slog.Logger, m *relayMetrics) *tokens {
	return &tokens{devices: d, settler: s, channel: c, log: log, metrics: m, queue: make(chan suspect, suspectsQueue)}
}

// suspect hands over a push whose token was called dead. It stays leased until there is a verdict.
func (t *tokens) suspect(p dispatch.Push, o Outcome) { t.queue <- suspect{p, o} }

// finish has run judge what is left and end.
func (t *tokens) finish() { close(t.queue) }

func (t *tokens) run(ctx context.Context) {
	var suspects []suspect
	tick := time.NewTicker(verdictEvery)
	defer tick.Stop()
	before := t.metrics.answers.Load()
	for {
		select {
		case s, ok := <-t.queue:
			if !ok {
				t.judge(ctx, suspects, t.metrics.answers.Load()-before)
				return
			}
			suspects = append(suspects, s)
		case <-tick.C:
			t.judge(ctx, suspects, t.metrics.answers.Load()-before)
			suspects, before = suspects[:0], t.metrics.answers.Load()
		}
	}
}

// judge quarantines the tokens, or tries all of them again when there are too many to be true. Answers is how many the
// push service gave in the same time.
func (t *tokens) judge(ctx context.Context, suspects []suspect, answers int64) {
	if len(suspects) == 0 {
		return
	}
	if len(suspects) >= tooManyDead && 2*int64(len(suspects)) > answers {
		t.channel.trip(suspects[0].outcome.Class, distrustFor, time.Now())
		t.log.Error("ALERT: most tokens are said to be dead, which is not believed; nothing is pushed for a while",
			"tokens", len(suspects), "of", answers, "reason", suspects[0].outcome.Reason)
		for _, s := range suspects {
			t.settler.add(dispatch.Settled{
				ID: s.push.ID, Status: dispatch.NotificationPending, After: distrustFor, Attempts: s.push.Attempts,
				Result: string(s.outcome.Class), Reason: s.outcome.Reason,
			})
		}
		return
	}
	dead := make([]dispatch.Device, len(suspects))
	for i, s := range suspects {
		dead[i] = s.push.Device
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := t.devices.Quarantine(bounded, dead); err != nil {
		t.log.Error("dead tokens were not quarantined", "tokens", len(dead), "error", err)
	}
	t.metrics.quarantined.Add(float64(len(dead)))
	for _, s := range suspects {
		t.settler.add(dispatch.Settled{
			ID: s.push.ID, Status: dispatch.NotificationDropped, Attempts: s.push.Attempts + 1,
			Result: string(s.outcome.Class), Reason: s.outcome.Reason,
		})
	}
}

package notify

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

const (
	// recently is for how many gaps an accepted push proves that the push service works.
	recently = 10
	// verdictInterval is how long a verdict waits for others to be written with it, verdictQueue how many may wait.
	verdictInterval = 100 * time.Millisecond
	verdictQueue    = 2048
)

// tokens judges devices' push tokens by the push service's answers, and records the verdicts, many with one statement. A token is dead when
// the push service has called it so twice, at least a gap apart, and has accepted a push in between. Devices bounds how many are dead in a
// minute. Pushes to suspects are sent like others: a refusal is an answer, and takes no longer.
type tokens struct {
	devices Devices
	gap     time.Duration
	log     *slog.Logger
	metrics *relayMetrics
	queue   chan verdict
	// acceptedAt is when the push service last accepted a push to a device, in Unix nanoseconds.
	acceptedAt atomic.Int64
}

// verdict is what the push service's answers say about a device's token.
type verdict struct {
	device dispatch.Device
	kind   outbox.Verdict
}

func newTokens(d Devices, gap time.Duration, log *slog.Logger, m *relayMetrics) *tokens {
	return &tokens{devices: d, gap: gap, log: log, metrics: m, queue: make(chan verdict, verdictQueue)}
}

// recordSent records that the push service accepted a push.
func (t *tokens) recordSent(p outbox.Push, now time.Time) {
	if p.Topic != "" {
		return // it proves nothing about a token
	}
	t.acceptedAt.Store(now.UnixNano())
	if p.Device.SuspectedAt != nil {
		t.add(verdict{p.Device, outbox.Trusted})
	}
}

// recordRefusal judges the refused token of a push, and returns the push's result.
func (t *tokens) recordRefusal(p outbox.Push, o Outcome, now time.Time) outbox.SendResult {
	s := outbox.SendResult{
		ID: p.ID, Status: outbox.Pending, RetryAfter: t.retryAfter(), Attempts: p.Attempts,
		Result: string(o.Class), Reason: o.Reason,
	}
	suspected := p.Device.SuspectedAt
	switch {
	case suspected == nil:
		t.add(verdict{p.Device, outbox.Suspected})
	case now.Sub(*suspected) < t.gap: // too soon to prove anything new
	case !t.acceptsSince(*suspected, now):
		t.doubt("it has accepted no push since it called them so first", now)
	default: // the lease of a push to a device in quarantine drops it; not every device that is called dead may get there
		t.add(verdict{p.Device, outbox.Quarantined})
	}
	return s
}

// retryAfter is the wait before a refused push is retried, long enough for a second verdict. It is rounded so that one
// statement can record many results.
func (t *tokens) retryAfter() time.Duration { return jittered(t.gap * 5 / 4).Round(t.gap / 60) }

// acceptsSince reports whether the push service recently accepted a push, and did so after the given time. If it did not, it has a fault of
// its own, or the credentials are another project's.
func (t *tokens) acceptsSince(after, now time.Time) bool {
	at := time.Unix(0, t.acceptedAt.Load())
	return at.After(after) && now.Sub(at) < recently*t.gap
}

// doubt records that the push service called tokens dead twice and is not believed. It says so in the log when that begins.
func (t *tokens) doubt(why string, now time.Time) {
	until := t.metrics.distrusted.Swap(now.Add(recently * t.gap).UnixNano())
	if now.UnixNano() > until {
		t.log.Warn("push service calls tokens dead and is not believed; their devices are kept", "reason", why)
	}
}

// add never blocks. It drops a verdict that the queue has no room for: the next push to the device brings it again.
func (t *tokens) add(v verdict) {
	select {
	case t.queue <- v:
	default:
	}
}

// finish makes run return after it has written the queue. Nothing may be added afterwards.
func (t *tokens) finish() { close(t.queue) }

// run writes verdicts until finish. Of several on a token in one batch it writes the last.
func (t *tokens) run(ctx context.Context) {
	for open := true; open; {
		var queued []verdict
		queued, open = nextBatch(t.queue, verdictQueue, verdictInterval)
		byToken := map[string]verdict{}
		for _, v := range queued {
			byToken[v.device.PushToken] = v
		}
		for _, kind := range []outbox.Verdict{outbox.Trusted, outbox.Suspected, outbox.Quarantined} {
			t.write(ctx, kind, byToken)
		}
	}
}

func (t *tokens) write(ctx context.Context, kind outbox.Verdict, batch map[string]verdict) {
	var devices []dispatch.Device
	for _, v := range batch {
		if v.kind == kind {
			devices = append(devices, v.device)
		}
	}
	if len(devices) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	recorded, err := t.devices.RecordVerdict(bounded, kind, devices)
	t.metrics.countVerdicts(kind, recorded)
	switch {
	case err != nil:
		t.log.Error("verdicts on tokens not recorded; the next pushes to the tokens will bring them again",
			"tokens", len(devices)-recorded, "verdict", kind, "error", err)
	case recorded < len(devices):
		t.doubt("more are dead than may be quarantined in a minute", time.Now())
	}
}

// nextBatch waits for a value and returns it with those that follow within d, up to limit. Open is false once the queue is
// closed.
func nextBatch[T any](queue <-chan T, limit int, d time.Duration) (batch []T, open bool) {
	first, open := <-queue
	if !open {
		return nil, false
	}
	batch = append(batch, first)
	t := time.NewTimer(d)
	defer t.Stop()
	for len(batch) < limit {
		select {
		case next, open := <-queue:
			if !open {
				return batch, false
			}
			batch = append(batch, next)
		case <-t.C:
			return batch, true
		}
	}
	return batch, true
}

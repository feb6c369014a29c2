package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

const (
	// verdictInterval is how long a verdict waits for others to be written with it, verdictQueue how many may wait.
	verdictInterval = 100 * time.Millisecond
	verdictQueue    = 2048
)

// verdict is what the push service's answers say about a device's token.
type verdict struct {
	device dispatch.Device
	kind   outbox.Verdict
}

// verdictWriter records verdicts, many with one statement.
type verdictWriter struct {
	devices Devices
	log     *slog.Logger
	metrics *relayMetrics
	queue   chan verdict
}

func newVerdictWriter(d Devices, log *slog.Logger, m *relayMetrics) *verdictWriter {
	return &verdictWriter{devices: d, log: log, metrics: m, queue: make(chan verdict, verdictQueue)}
}

// add never blocks. It drops a verdict that the queue has no room for: the next push to the device brings it again.
func (w *verdictWriter) add(v verdict) {
	select {
	case w.queue <- v:
	default:
	}
}

// finish makes run return after it has written the queue. Nothing may be added afterwards.
func (w *verdictWriter) finish() { close(w.queue) }

// run writes until finish. Of several verdicts on a token in one batch it writes the last.
func (w *verdictWriter) run(ctx context.Context) {
	for open := true; open; {
		var queued []verdict
		queued, open = nextBatch(w.queue, verdictQueue, verdictInterval)
		byToken := map[string]verdict{}
		for _, v := range queued {
			byToken[v.device.PushToken] = v
		}
		for _, kind := range []outbox.Verdict{outbox.Trusted, outbox.Suspected, outbox.Quarantined} {
			w.write(ctx, kind, byToken)
		}
	}
}

func (w *verdictWriter) write(ctx context.Context, kind outbox.Verdict, batch map[string]verdict) {
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
	if err := w.devices.RecordVerdict(bounded, kind, devices); err != nil {
		w.log.Error("verdicts on tokens not recorded; the next pushes to the tokens will bring them again",
			"tokens", len(devices), "verdict", kind, "error", err)
		return
	}
	w.metrics.countVerdicts(kind, devices)
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

package notify

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
)

const (
	// verdictInterval is how long verdicts are gathered to be written with one statement, verdictsQueue how many may wait.
	verdictInterval = 100 * time.Millisecond
	verdictQueue    = 2048
)

// verdict is what is to be noted of a device's token.
type verdict struct {
	device dispatch.Device
	kind   verdictKind
}

type verdictKind string

const (
	trusted        verdictKind = "trusted"
	underSuspicion verdictKind = "suspected"
	quarantined    verdictKind = "quarantined"
)

// verdictWriter writes them down, many with one statement.
type verdictWriter struct {
	devices Devices
	log     *slog.Logger
	metrics *relayMetrics
	queue   chan verdict
}

func newVerdictWriter(d Devices, log *slog.Logger, m *relayMetrics) *verdictWriter {
	return &verdictWriter{devices: d, log: log, metrics: m, queue: make(chan verdict, verdictQueue)}
}

// add never blocks. A verdict for which there is no room comes again with the next push to the device.
func (v *verdictWriter) add(one verdict) {
	select {
	case v.queue <- one:
	default:
	}
}

// finish has run write what is left and end. Nothing may be added afterwards.
func (v *verdictWriter) finish() { close(v.queue) }

// run writes until finish.
func (v *verdictWriter) run(ctx context.Context) {
	for {
		first, ok := <-v.queue
		if !ok {
			return
		}
		batch := map[string]verdict{first.device.PushToken: first}
		open := v.gather(batch)
		for _, what := range []verdictKind{trusted, underSuspicion, quarantined} {
			v.write(ctx, what, batch)
		}
		if !open {
			return
		}
	}
}

// gather adds what comes next to a batch: of one token the last verdict.
func (v *verdictWriter) gather(batch map[string]verdict) (open bool) {
	t := time.NewTimer(verdictInterval)
	defer t.Stop()
	for len(batch) < verdictQueue {
		select {
		case one, ok := <-v.queue:
			if !ok {
				return false
			}
			batch[one.device.PushToken] = one
		case <-t.C:
			return true
		}
	}
	return true
}

func (v *verdictWriter) write(ctx context.Context, what verdictKind, batch map[string]verdict) {
	var devices []dispatch.Device
	for _, one := range batch {
		if one.kind == what {
			devices = append(devices, one.device)
		}
	}
	if len(devices) == 0 {
		return
	}
	note := v.devices.Trust
	switch what {
	case underSuspicion:
		note = v.devices.Suspect
	case quarantined:
		note = v.devices.Quarantine
	case trusted:
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := note(bounded, devices); err != nil {
		v.log.Error("what the push service says of tokens was not noted, and is when it says so again",
			"tokens", len(devices), "verdict", what, "error", err)
		return
	}
	v.metrics.countVerdicts(what, devices)
}

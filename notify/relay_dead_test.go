//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/repository/pushes"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify"
)

// realGap is the SuspicionGap where time is real.
const realGap = 300 * time.Millisecond

// judging shortens the time until a second verdict where time is real.
func (o *office) judging(n *notify.RelayOptions, _ *pushes.Options) {
	if !o.bubble {
		n.SuspicionGap = realGap
	}
}

// devicesOf returns the drivers' devices that match.
func (o *office) devicesOf(drivers []dispatch.Driver, is func(dispatch.Device) bool) (matching []dispatch.Device) {
	o.t.Helper()
	for _, v := range drivers {
		devices := everything(o.t, func(p dispatch.Page) ([]dispatch.Device, string, error) {
			return o.store.Devices.Devices(o.t.Context(), v.ID, p)
		})
		for _, d := range devices {
			if is(d) {
				matching = append(matching, d)
			}
		}
	}
	return matching
}

// devices counts the drivers' devices that match.
func (o *office) devices(drivers []dispatch.Driver, is func(dispatch.Device) bool) int {
	return len(o.devicesOf(drivers, is))
}

func isSuspected(v dispatch.Device) bool   { return v.SuspectedAt != nil }
func isQuarantined(v dispatch.Device) bool { return v.QuarantinedAt != nil }
func isGood(v dispatch.Device) bool        { return v.SuspectedAt == nil && v.QuarantinedAt == nil }

// A dead token gets one more request, later; then its device is quarantined. The other pushes go on.
func TestDeadToken(t *testing.T) {
	t.Parallel()
	onDatabases(t, 10, func(t *testing.T, o *office) {
		dead, living := o.cars[3], len(o.cars)-1
		o.fcm.Kill(phone(dead))
		o.relay(o.judging)
		offers := 0
		for ; o.devices(o.cars, isQuarantined) == 0; offers++ {
			if offers == 500 {
				t.Fatalf("not in quarantine after %d offers", offers)
			}
			asked := o.fcm.Stats().Statuses[404]
			o.offer()
			o.eventually("the others show the offer", func() bool { return o.shows(dispatch.EventOpened) == (offers+1)*living })
			if o.bubble {
				time.Sleep(20 * time.Second)
				continue
			}
			o.eventually("the dead token gets another request, or is in quarantine", func() bool {
				return o.fcm.Stats().Statuses[404] > asked || o.devices(o.cars, isQuarantined) > 0
			})
		}
		if o.fcm.Stats().Statuses[404] < 2 {
			t.Errorf("in quarantine after one verdict")
		}
		o.eventually("nothing waits", func() bool {
			rows := o.rows()
			return rows["SENT sent"] == offers*living && rows["PENDING dead_token"]+rows["PENDING "] == 0
		})
		asked := o.fcm.Stats().Statuses[404]
		o.offer()
		o.eventually("the others show another offer", func() bool { return o.shows(dispatch.EventOpened) == (offers+1)*living })
		testkit.Equal(t, "requests with the dead token", asked, o.fcm.Stats().Statuses[404])
		// The app registers again: the token lives.
		o.fcm.Revive(phone(dead))
		o.put(dead, "app", phone(dead))
		last := o.offer()
		// The phone may also show offers from before: while they are open, an event that is completed only now finds it.
		o.eventually("all show the last offer", func() bool { return o.showing(last) == len(o.cars) })
		o.eventually("all are good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
	})
}

// When the push service calls a living token dead for a moment, the phone gets its push afterwards.
func TestLiveTokenIsReportedDead(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		o.fcm.Kill(phone(o.cars[0]))
		o.relay(nil)
		o.offer()
		time.Sleep(time.Second)
		testkit.Equal(t, "suspects after a second", 1, o.devices(o.cars, isSuspected))
		o.fcm.Revive(phone(o.cars[0]))
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "phones that show the offer", len(o.cars), o.shows(dispatch.EventOpened))
		testkit.Equal(t, "devices that are good", len(o.cars), o.devices(o.cars, isGood))
		testkit.Equal(t, "messages that came twice", 0, o.twice())
	})
}

// delays are how long pushes took from their event to their arrival.
type delays []time.Duration

func (d delays) String() string {
	sorted := slices.Sorted(slices.Values(d))
	at := func(p float64) time.Duration { return sorted[int(p*float64(len(sorted)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s, longest %s of %d", at(.5), at(.99), at(1), len(d))
}

func gauge(t *testing.T, from prometheus.Gatherer, name string) (value float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

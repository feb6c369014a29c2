package notify_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
	"firsttap/repository"
)

// soon shortens the time until a second verdict.
func soon(n *notify.RelayOptions, _ *repository.OutboxOptions) {
	n.SuspicionGap = 300 * time.Millisecond
}

// devices counts the drivers' devices that match.
func (o *office) devices(drivers []dispatch.Driver, is func(dispatch.Device) bool) (n int) {
	o.t.Helper()
	for _, v := range drivers {
		devices, _, err := o.store.Devices(o.t.Context(), v.ID, dispatch.Page{Limit: 100})
		if err != nil {
			o.t.Fatal(err)
		}
		for _, d := range devices {
			if is(d) {
				n++
			}
		}
	}
	return n
}

func isQuarantined(v dispatch.Device) bool { return v.QuarantinedAt != nil }
func isGood(v dispatch.Device) bool {
	return v.PushAcceptedAt != nil && v.SuspectedAt == nil && v.QuarantinedAt == nil
}

// cheats adds drivers with ten dead tokens each.
func (o *office) cheats(n int, class string) []dispatch.Driver {
	o.t.Helper()
	drivers := o.accounts(n, "seoul", class)
	for _, v := range drivers {
		for i := range 10 {
			token := fmt.Sprintf("made-up-by-%s-%d", v.ID, i)
			o.fcm.Kill(token)
			o.put(v, fmt.Sprint("app ", i), token)
		}
	}
	return drivers
}

// offerUntil opens one dispatch after the other until enough returns true; it gets the number of dispatches.
func (o *office) offerUntil(class string, enough func(offers int) bool) (offers int) {
	o.t.Helper()
	pace := time.NewTicker(200 * time.Millisecond)
	defer pace.Stop()
	for offers = 1; ; offers++ {
		o.offerTo(class)
		if enough(offers) {
			return offers
		}
		if offers == 500 {
			o.t.Fatalf("not enough after %d offers", offers)
		}
		<-pace.C
	}
}

// A dead token gets one more request, later; then its device is quarantined. The other pushes go on.
func TestDeadToken(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		dead, living := o.cars[3], len(o.cars)-1
		o.fcm.Kill(phone(dead))
		o.relay(soon)
		offers := o.offerUntil("45m", func(offers int) bool {
			o.eventually("the others show the offer", func() bool { return o.shows(dispatch.EventOpened) == offers*living })
			return o.devices(o.cars, isQuarantined) > 0
		})
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
		if n := o.fcm.Stats().Statuses[404]; n != asked {
			t.Errorf("the dead token was asked again")
		}
		// The app registers again: the token lives.
		o.fcm.Revive(phone(dead))
		o.put(dead, "app", phone(dead))
		o.offer()
		o.eventually("all show the last offer", func() bool { return o.shows(dispatch.EventOpened) == (offers+2)*living+1 })
		o.eventually("all are good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
	}, 10)
}

// When the push service calls a living token dead for a moment, the phone gets its push afterwards.
func TestLiveTokenIsReportedDead(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Kill(phone(o.cars[0]))
		o.relay(func(n *notify.RelayOptions, _ *repository.OutboxOptions) { n.SuspicionGap = 3 * time.Second })
		o.offer()
		o.eventually("it is under suspicion", func() bool {
			return o.devices(o.cars[:1], func(v dispatch.Device) bool { return v.SuspectedAt != nil }) == 1
		})
		o.fcm.Revive(phone(o.cars[0]))
		o.eventually("all show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		o.eventually("it is good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
		if _, again, _, _ := o.fcm.Totals(); again != 0 {
			t.Errorf("%d messages came twice", again)
		}
	}, 5)
}

// With another project's credentials every token is refused: no device is quarantined, the push service gets single
// requests, and all pushes are sent when the credentials are right again.
func TestEveryTokenIsRefused(t *testing.T) {
	for name, known := range map[string]bool{"all were good": true, "none ever was": false} {
		t.Run(name, func(t *testing.T) {
			onDatabases(t, func(t *testing.T, o *office) {
				if known {
					o.trustAll()
				}
				o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 403 }) // SENDER_ID_MISMATCH
				o.relay(soon)
				o.offer()
				// By then every token had its second verdict.
				o.eventually("they were asked more than twice", func() bool { return o.fcm.Requests() > int64(2*len(o.cars)) })
				if n := o.devices(o.cars, isQuarantined); n != 0 {
					t.Errorf("%d are in quarantine", n)
				}
				for what, n := range o.rows() {
					if what[:7] == "DROPPED" {
						t.Errorf("%s: %d", what, n)
					}
				}
				o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 0 })
				o.eventually("all show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
				o.eventually("all are good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
			}, 40)
		})
	}
}

// trustAll marks every phone as one to which a push was accepted.
func (o *office) trustAll() {
	o.t.Helper()
	var all []dispatch.Device
	for _, v := range o.cars {
		devices, _, err := o.store.Devices(o.t.Context(), v.ID, dispatch.Page{Limit: 100})
		if err != nil {
			o.t.Fatal(err)
		}
		all = append(all, devices...)
	}
	if err := o.store.MarkPushAccepted(o.t.Context(), all); err != nil {
		o.t.Fatal(err)
	}
}

// The dead tokens of three drivers do not delay an offer to others.
func TestForgedTokensDelayNoOtherPush(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		cheats := o.cheats(3, "cheats")
		o.relay(soon)
		o.offerTo("cheats")
		o.eventually("the dead are refused", func() bool { return o.fcm.Stats().Statuses[404] >= 30 })
		o.offerUntil("45m", func(offers int) bool {
			o.offerTo("cheats")
			o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == offers*len(o.cars) })
			return o.devices(cheats, isQuarantined) == 30
		})
		o.eventually("all are good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
	}, 20)
}

// delays records how long each push took from its event to its arrival.
type delays struct {
	mu  sync.Mutex
	all []time.Duration
}

// note records the delay of an offer, which opened when it was created.
func (d *delays) note(r fcmtest.Request) {
	opened, err := time.Parse(time.RFC3339, r.Data["opens_at"])
	if err != nil {
		return
	}
	d.mu.Lock()
	d.all = append(d.all, r.At.Sub(opened))
	d.mu.Unlock()
}

func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.all)
	at := func(p float64) time.Duration { return d.all[int(p*float64(len(d.all)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s, longest %s of %d", at(.5), at(.99), at(1), len(d.all))
}

// Sixty accounts have ten dead tokens each: every phone gets every offer, and the throttle's circuit never opens.
func TestSixHundredDeadTokens(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		cheats := o.cheats(60, "45m")
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 10 * time.Millisecond })
		metrics := prometheus.NewRegistry()
		o.relay(func(n *notify.RelayOptions, _ *repository.OutboxOptions) {
			n.Metrics, n.SuspicionGap = metrics, 2*time.Second
		})
		var took delays
		o.fcm.OnSend(func(r fcmtest.Request) {
			if r.Accepted {
				took.note(r)
			}
		})
		offers := o.offerUntil("45m", func(offers int) bool {
			o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == offers*len(o.cars) })
			for _, name := range []string{"firsttap_push_circuit_open", "firsttap_push_distrusted"} {
				if v := gauge(t, metrics, name); v != 0 {
					t.Fatalf("%s is %v", name, v)
				}
			}
			return offers >= 3 && o.devices(cheats, isQuarantined) == 600
		})
		t.Logf("after %d offers and %d requests all 600 are in quarantine; pushes to the %d others took %s",
			offers, o.fcm.Stats().Statuses[404], len(o.cars), &took)
		o.eventually("all phones are good", func() bool { return o.devices(o.cars, isGood) == len(o.cars) })
	}, 40)
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

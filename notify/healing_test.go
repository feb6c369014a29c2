//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/repository/pushes"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/outbox"
	"firsttap/testkit"
)

// gateway is a push service with a latency, on the test's clock, and with dead tokens.
type gateway struct {
	notify.Sender // nobody subscribes
	mu            sync.Mutex
	dead          map[string]bool
	taken         delays // of offers
	told          map[dispatch.ID]int
	asked         int
}

// Send takes 50 ms of the bubble.
func (a *gateway) Send(_ context.Context, p outbox.Push) notify.Outcome {
	time.Sleep(50 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.dead[p.Device.PushToken] {
		return notify.Outcome{Class: notify.DeadToken, Reason: "404 UNREGISTERED"}
	}
	if p.Type.IsOffer() {
		a.taken = append(a.taken, time.Since(p.EventAt))
		a.told[p.Dispatch.ID]++
	}
	return notify.Outcome{Class: notify.Sent}
}

func (a *gateway) kill(tokens ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, token := range tokens {
		a.dead[token] = true
	}
}

func (a *gateway) revive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = map[string]bool{}
}

// reached returns the delays of the pushes that were accepted since its last call, and the number of requests.
func (a *gateway) reached() (took delays, asked int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took, asked = a.taken, a.asked
	a.taken, a.asked = nil, 0
	return took, asked
}

// of returns how many pushes of a dispatch's offer were accepted.
func (a *gateway) of(id dispatch.ID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told[id]
}

// fleetInBubble runs a relay with the settings of production over a fleet of phones, in a bubble.
func fleetInBubble(t *testing.T, drivers int, test func(*testing.T, *office, *gateway)) {
	t.Helper()
	inBubble(t, drivers, func(t *testing.T, o *office) {
		push := &gateway{dead: map[string]bool{}, told: map[dispatch.ID]int{}}
		o.metrics = prometheus.NewRegistry()
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.Sender, n.Metrics = push, o.metrics })
		test(t, o, push)
	})
}

func (o *office) phones() (tokens []string) {
	for _, v := range o.cars {
		tokens = append(tokens, phone(v))
	}
	return tokens
}

// When seven in ten tokens die at once, all of them are quarantined within an hour, and pushes to the others do not wait.
func TestAFleetHeals(t *testing.T) {
	fleet := testkit.Scale(60, 1000)
	for name, known := range map[string]bool{"all were good": true, "none was known to be": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleetInBubble(t, fleet, func(t *testing.T, o *office, push *gateway) {
				if known {
					o.offer()
					time.Sleep(5 * time.Minute)
					if n := o.devices(o.cars, isGood); n != len(o.cars) {
						t.Fatalf("%d of %d are known to be good", n, len(o.cars))
					}
				}
				dead, living := o.cars[:fleet*7/10], o.cars[fleet*7/10:]
				push.kill(o.phones()[:len(dead)]...)
				push.reached()
				var all delays
				rounds := 0
				for ; rounds < 30 && o.devices(dead, isQuarantined) < len(dead); rounds++ {
					o.offer()
					time.Sleep(2 * time.Minute)
					took, _ := push.reached()
					testkit.Equal(t, "live devices that got the push", len(living), len(took))
					all = append(all, took...)
				}
				if n := o.devices(dead, isQuarantined); n < len(dead) {
					t.Fatalf("after an hour %d of %d are in quarantine", n, len(dead))
				}
				testkit.Equal(t, "living devices that are good", len(living), o.devices(living, isGood))
				if most := slices.Max(all); most > 2*time.Second {
					t.Errorf("a live device waited %s", most)
				}
				push.reached()
				o.offer()
				time.Sleep(2 * time.Minute)
				if _, asked := push.reached(); asked != len(living) {
					t.Errorf("%d requests for %d live devices", asked, len(living))
				}
				t.Logf("healed after %d minutes; the live devices got the push after %s", 2*rounds, all)
			})
		})
	}
}

// While an instance has the wrong credentials, no device is quarantined and the push service gets few requests. Pushes that
// are still useful are sent when the credentials are right again.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	for _, drivers := range []int{30, 200} { // all are refused once within minutes, and within the hour
		t.Run(fmt.Sprint(drivers), func(t *testing.T) {
			if drivers > 30 {
				testkit.OnlyInAll(t)
			}
			t.Parallel()
			fleetInBubble(t, drivers, func(t *testing.T, o *office, push *gateway) {
				o.trustAll()
				push.kill(o.phones()...)
				var offers []dispatch.Dispatch
				for range 5 {
					offers = append(offers, o.offer())
					time.Sleep(4 * time.Minute)
				}
				_, asked := push.reached()
				testkit.Equal(t, "devices in quarantine", 0, o.devices(o.cars, isQuarantined))
				// Those in flight when the circuit opens, and in each of 20 minutes 3 suspects and 4 of the others.
				if most := 64 + 20*(3+4); asked > most {
					t.Errorf("%d requests in 20 minutes, none of which was accepted, want %d at most", asked, most)
				}
				push.revive()
				time.Sleep(2 * time.Minute)
				for _, d := range offers[len(offers)-2:] { // which stand for another 2 minutes at least
					testkit.Equal(t, fmt.Sprintf("drivers who got the push of the offer made %s ago", time.Since(d.OpensAt)), len(o.cars), push.of(d.ID))
				}
				testkit.Equal(t, "devices that are good", len(o.cars), o.devices(o.cars, isGood))
			})
		})
	}
}

// Sixty accounts register ten dead tokens each, and new ones every two minutes. Pushes to all others are not delayed, and
// the refusals are no evidence against the push service. In the end all dead tokens are in quarantine.
func TestMadeUpTokensAllTheTime(t *testing.T) {
	t.Parallel()
	accounts := testkit.Scale(21, 60) // more than the 20 drivers whose refused tokens would be evidence
	fleetInBubble(t, testkit.Scale(20, 100), func(t *testing.T, o *office, push *gateway) {
		honest, cheats := o.cars, o.accounts(accounts, "seoul")
		var all delays
		offer := func() {
			o.offer()
			time.Sleep(30 * time.Second)
			took, _ := push.reached()
			testkit.Equal(t, "pushes of an offer that arrived", len(honest), len(took))
			all = append(all, took...)
			for _, name := range []string{"firsttap_push_circuit_open", "firsttap_push_distrusted"} {
				if v := gauge(t, o.metrics, name); v != 0 {
					t.Fatalf("%s is %v", name, v)
				}
			}
		}
		for round := range testkit.Scale(2, 3) {
			for _, v := range cheats {
				for i := range 10 {
					token := fmt.Sprintf("made-up-%d-by-%s-%d", round, v.ID, i)
					push.kill(token)
					o.put(v, fmt.Sprint("app ", i), token)
				}
			}
			for range testkit.Scale(2, 4) {
				offer()
			}
		}
		for offers := 0; o.devices(cheats, isQuarantined) < 10*accounts; offers++ {
			if offers == 60 {
				t.Fatalf("%d of %d dead tokens are in quarantine", o.devices(cheats, isQuarantined), 10*accounts)
			}
			offer()
		}
		testkit.Equal(t, "honest phones that are good", len(honest), o.devices(honest, isGood))
		if most := slices.Max(all); most > 2*time.Second {
			t.Errorf("one waited %s", most)
		}
		t.Logf("honest phones got the pushes after %s", all)
	})
}

// Pushes to suspects are one request at a time, and take no place of other pushes.
func TestSuspectsGoApart(t *testing.T) {
	fleetInBubble(t, 50, func(t *testing.T, o *office, push *gateway) {
		o.trustAll()
		dead := o.cars[:40]
		push.kill(o.phones()[:len(dead)]...)
		o.offer()
		time.Sleep(10 * time.Second)
		if n := o.devices(dead, isSuspected); n != len(dead) {
			t.Fatalf("%d of %d are suspected", n, len(dead))
		}
		push.reached()
		o.offer()
		time.Sleep(time.Second)
		took, asked := push.reached()
		if refused := asked - len(took); len(took) != 10 || refused == 0 || refused > 20 {
			t.Errorf("in a second %d pushes arrived and %d requests were refused, each in 50 ms", len(took), refused)
		}
	})
}

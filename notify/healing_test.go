package notify_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/outbox"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/testkit"
)

// gateway is a push service with a latency, on the test's clock, and with dead tokens.
type gateway struct {
	mu    sync.Mutex
	dead  map[string]bool
	taken []time.Duration // from the event to the answer
	told  map[dispatch.ID]int
	asked int
}

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

func (a *gateway) Subscribe(context.Context, string, []string) ([]int, notify.Outcome) {
	return nil, notify.Outcome{Class: notify.Sent}
}

func (a *gateway) Unsubscribe(context.Context, string, []string) ([]int, notify.Outcome) {
	return nil, notify.Outcome{Class: notify.Sent}
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
func (a *gateway) reached() (d *delays, asked int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, asked = &delays{all: a.taken}, a.asked
	a.taken, a.asked = nil, 0
	return d, asked
}

// of returns how many pushes of a dispatch's offer were accepted.
func (a *gateway) of(id dispatch.ID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told[id]
}

// inFakeTime runs a relay with the settings of production over a fleet of phones, on synctest's clock.
func inFakeTime(t *testing.T, drivers int, test func(*testing.T, *office, *gateway)) {
	synctest.Test(t, func(t *testing.T) {
		o := emptyOffice(t, repositorytest.URL(t, "sqlite"))
		o.hire("seoul", drivers)
		push := &gateway{dead: map[string]bool{}, told: map[dispatch.ID]int{}}
		var r *notify.Relay
		o.store = o.open(repository.Options{
			OutboxOwner: "ins_1", OutboxLease: 30 * time.Second,
			OnCommit: func(d dispatch.Dispatch, events []dispatch.Event) { r.OnCommit(d, events) },
		})
		box := o.store.Outbox(repository.OutboxOptions{Owner: "ins_1", LeaseTerm: 30 * time.Second})
		r = notify.NewRelay(notify.RelayOptions{
			Outbox: box, Topics: box, Devices: o.store, Sender: push, Log: slog.New(slog.DiscardHandler),
		})
		testkit.Run(t, r.Run)
		test(t, o, push)
	})
}

func (o *office) phones() (tokens []string) {
	for _, v := range o.cars {
		tokens = append(tokens, phone(v))
	}
	return tokens
}

// most returns the longest delay.
func (d *delays) most() (most time.Duration) {
	for _, took := range d.all {
		most = max(most, took)
	}
	return most
}

// When seven in ten tokens die at once, all of them are quarantined within an hour, and pushes to the others do not wait.
func TestAFleetHeals(t *testing.T) {
	for name, known := range map[string]bool{"all were good": true, "none was known to be": false} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1000, func(t *testing.T, o *office, push *gateway) {
				if known {
					o.offer()
					time.Sleep(5 * time.Minute)
					if n := o.devices(o.cars, isGood); n != len(o.cars) {
						t.Fatalf("%d of %d are known to be good", n, len(o.cars))
					}
				}
				push.kill(o.phones()[:700]...)
				push.reached()
				died := time.Now()
				var all delays
				for o.devices(o.cars[:700], isQuarantined) < 700 {
					if time.Since(died) > time.Hour {
						t.Fatalf("after an hour %d of 700 are in quarantine", o.devices(o.cars[:700], isQuarantined))
					}
					o.offer()
					time.Sleep(2 * time.Minute)
					took, _ := push.reached()
					if len(took.all) != 300 {
						t.Errorf("%d of 300 live devices got the push", len(took.all))
					}
					all.all = append(all.all, took.all...)
				}
				healed := time.Since(died)
				if n := o.devices(o.cars[700:], isGood); n != 300 {
					t.Errorf("%d of the 300 live devices are good", n)
				}
				if most := all.most(); most > 2*time.Second {
					t.Errorf("a live device waited %s", most)
				}
				push.reached()
				o.offer()
				time.Sleep(2 * time.Minute)
				if _, asked := push.reached(); asked != 300 {
					t.Errorf("%d requests for 300 live devices", asked)
				}
				t.Logf("healed after %s; the live devices got the push after %s", healed, &all)
			})
		})
	}
}

// While an instance has the wrong credentials, no device is quarantined and the push service gets few requests. Pushes that
// are still useful are sent when the credentials are right again.
func TestWrongCredentials(t *testing.T) {
	inFakeTime(t, 200, func(t *testing.T, o *office, push *gateway) {
		o.trustAll()
		push.kill(o.phones()...)
		var offers []dispatch.Dispatch
		for range 10 {
			offers = append(offers, o.offer())
			time.Sleep(2 * time.Minute)
		}
		_, asked := push.reached()
		if n := o.devices(o.cars, isQuarantined); n != 0 {
			t.Errorf("%d are in quarantine", n)
		}
		if asked > 3*10*len(o.cars) {
			t.Errorf("%d requests for %d pushes, none of which was taken", asked, 10*len(o.cars))
		}
		push.revive()
		time.Sleep(3 * time.Minute)
		for _, d := range offers[len(offers)-3:] { // which stand for more than 3 minutes
			if n := push.of(d.ID); n != len(o.cars) {
				t.Errorf("%d of %d drivers got the push of the offer made %s ago", n, len(o.cars), time.Since(d.OpensAt))
			}
		}
		if n := o.devices(o.cars, isGood); n != len(o.cars) {
			t.Errorf("%d of %d are good", n, len(o.cars))
		}
		t.Logf("%d requests in 20 minutes", asked)
	})
}

// Sixty accounts register ten dead tokens each, and new ones every two minutes. Pushes to all others are not delayed.
func TestMadeUpTokensAllTheTime(t *testing.T) {
	inFakeTime(t, 100, func(t *testing.T, o *office, push *gateway) {
		honest, cheats := o.cars, o.accounts(60, "seoul", "45m")
		var all delays
		for round := range 3 {
			for _, v := range cheats {
				for i := range 10 {
					token := fmt.Sprintf("made-up-%d-by-%s-%d", round, v.ID, i)
					push.kill(token)
					o.put(v, fmt.Sprint("app ", i), token)
				}
			}
			for range 4 {
				o.offer()
				time.Sleep(30 * time.Second)
			}
			took, _ := push.reached()
			if len(took.all) != 4*len(honest) {
				t.Errorf("%d pushes of four offers arrived, want %d", len(took.all), 4*len(honest))
			}
			all.all = append(all.all, took.all...)
		}
		if n := o.devices(honest, isGood); n != len(honest) {
			t.Errorf("%d of %d phones are good", n, len(honest))
		}
		if most := all.most(); most > 2*time.Second {
			t.Errorf("one waited %s", most)
		}
		t.Logf("honest phones got the pushes after %s", &all)
	})
}

// Pushes to suspects are one request at a time, and take no place of other pushes.
func TestSuspectsGoApart(t *testing.T) {
	inFakeTime(t, 50, func(t *testing.T, o *office, push *gateway) {
		o.trustAll()
		dead := o.cars[:40]
		push.kill(o.phones()[:len(dead)]...)
		o.offer()
		time.Sleep(10 * time.Second)
		if n := o.devices(dead, func(v dispatch.Device) bool { return v.SuspectedAt != nil }); n != len(dead) {
			t.Fatalf("%d of %d are suspected", n, len(dead))
		}
		push.reached()
		o.offer()
		time.Sleep(time.Second)
		took, asked := push.reached()
		if refused := asked - len(took.all); len(took.all) != 10 || refused == 0 || refused > 20 {
			t.Errorf("in a second %d pushes arrived and %d requests were refused, each in 50 ms", len(took.all), refused)
		}
	})
}

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
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/notify"
)

// gateway is a push service with a latency, on the test's clock, and with dead tokens.
type gateway struct {
	notify.Sender // nobody subscribes
	mu            sync.Mutex
	dead          map[string]bool
	taken         delays // of offers
	told          map[dispatch.ID]int
	refused       int // requests
}

// Send takes 50 ms of the bubble.
func (a *gateway) Send(_ context.Context, p outbox.Push) notify.Outcome {
	time.Sleep(50 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead[p.Device.PushToken] {
		a.refused++
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

// reached returns the delays of the pushes that were accepted since its last call, and how many requests were refused.
func (a *gateway) reached() (took delays, refused int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took, refused = a.taken, a.refused
	a.taken, a.refused = nil, 0
	return took, refused
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

func phones(of []dispatch.Driver) (tokens []string) {
	for _, v := range of {
		tokens = append(tokens, phone(v))
	}
	return tokens
}

// notDelayed fails the test if one of the pushes to living devices took longer than two seconds, and returns them as text.
func notDelayed(t *testing.T, all delays) string {
	t.Helper()
	if most := slices.Max(all); most > 2*time.Second {
		t.Errorf("a living device waited %s", most)
	}
	return all.String()
}

// Three accounts register ten dead tokens each, and new ones all the time. Pushes to all others arrive at the pace that they have without
// them: an account has ten devices at most, and a push to one gets a request every 75 s at most while the offer stands.
func TestMadeUpTokensHoldUpNobody(t *testing.T) {
	t.Parallel()
	const accounts, devices, gap = 3, 10, 75 * time.Second
	fleetInBubble(t, testkit.Scale(30, 100), func(t *testing.T, o *office, push *gateway) {
		honest := o.cars
		o.offer()
		time.Sleep(5 * time.Second)
		before, _ := push.reached()
		cheats, made := o.accounts(accounts, "seoul"), 0
		makeUp := func() {
			for _, v := range cheats {
				for i := range devices {
					token := fmt.Sprintf("made-up-%d", made)
					push.kill(token)
					o.put(v, fmt.Sprint("app ", i), token)
					made++
				}
			}
		}
		var all delays
		offers := testkit.Scale(4, 40)
		refused := 0
		makeUp()
		for range offers {
			o.offer()
			time.Sleep(5 * time.Second)
			took, n := push.reached()
			testkit.Equal(t, "pushes of an offer that arrived", len(honest), len(took))
			all, refused = append(all, took...), refused+n
			for range 5 {
				makeUp()
				time.Sleep(5 * time.Second)
			}
			_, n = push.reached()
			refused += n
		}
		if most := accounts * devices * offers * (1 + int(dispatch.DefaultWindow/gap)); refused == 0 || refused > most {
			t.Errorf("%d requests for dead tokens, want %d at most", refused, most)
		}
		testkit.Equal(t, "honest phones that are good", len(honest), o.devices(honest, isGood))
		t.Logf("%d dead tokens of %d accounts, %d offers: %d requests for them; honest phones got the pushes after %s; before, after %s",
			made, accounts, offers, refused, notDelayed(t, all), before)
	})
}

// When seven in ten tokens die at once, all of them are quarantined, one in a hundred a minute, and pushes to the others do not wait.
func TestAFleetHeals(t *testing.T) {
	t.Parallel()
	fleet := testkit.Scale(40, 1000)
	fleetInBubble(t, fleet, func(t *testing.T, o *office, push *gateway) {
		o.offer()
		time.Sleep(5 * time.Minute)
		dead, living := o.cars[:fleet*7/10], o.cars[fleet*7/10:]
		push.kill(phones(dead)...)
		push.reached()
		var all delays
		minutes, asked, before := 0, 0, 0
		for before < len(dead) {
			o.offer()
			time.Sleep(time.Minute)
			minutes++
			took, refused := push.reached()
			testkit.Equal(t, "living devices that got the push", len(living), len(took))
			all, asked = append(all, took...), asked+refused
			gone := o.devices(dead, isQuarantined)
			if most := max(1, fleet/100); gone-before > most || minutes > 2*len(dead)/most {
				t.Fatalf("in minute %d %d more are in quarantine, want %d at most, and all of %d in twice the time", minutes, gone-before, most, len(dead))
			}
			before = gone
		}
		testkit.Equal(t, "living devices that are good", len(living), o.devices(living, isGood))
		o.offer()
		time.Sleep(2 * time.Minute)
		if took, refused := push.reached(); refused > 0 || len(took) != len(living) {
			t.Errorf("%d requests were refused, %d of %d living devices got the push", refused, len(took), len(living))
		}
		t.Logf("of %d devices %d were dead: healed after %d minutes and %d requests that were refused; the living got the pushes after %s",
			fleet, len(dead), minutes, asked, notDelayed(t, all))
	})
}

// A push service that calls every token dead, because of an outage or of another project's credentials, is not believed: no device is
// quarantined, and no push is dropped. A refused push gets a request every 75 s at most. When the push service is right again, pushes that
// are still useful are sent.
func TestEveryTokenIsCalledDead(t *testing.T) {
	t.Parallel()
	const gap, minutes = 75 * time.Second, 20
	fleetInBubble(t, testkit.Scale(40, 200), func(t *testing.T, o *office, push *gateway) {
		o.offer()
		time.Sleep(5 * time.Minute)
		push.kill(phones(o.cars)...)
		push.reached()
		var offers []dispatch.Dispatch
		for range minutes / 4 {
			offers = append(offers, o.offer())
			time.Sleep(4 * time.Minute)
		}
		_, refused := push.reached()
		testkit.Equal(t, "devices in quarantine", 0, o.devices(o.cars, isQuarantined))
		testkit.Equal(t, "what an operator sees", 1.0, gauge(t, o.metrics, "firsttap_push_distrusted"))
		testkit.Equal(t, "pushes that are dropped for their tokens", 0, o.rows()["DROPPED dead_token"])
		if most := len(offers) * len(o.cars) * (1 + int(minutes*time.Minute/gap)); refused <= len(offers)*len(o.cars) || refused > most {
			t.Errorf("%d requests in %d minutes, want %d at most", refused, minutes, most)
		}
		push.revive()
		time.Sleep(2 * time.Minute)
		for _, d := range offers[len(offers)-2:] { // which stand for another 2 minutes at least
			testkit.Equal(t, fmt.Sprintf("drivers who got the push of the offer made %s ago", time.Since(d.OpensAt)), len(o.cars), push.of(d.ID))
		}
		testkit.Equal(t, "devices that are good", len(o.cars), o.devices(o.cars, isGood))
		t.Logf("%d phones, %d offers, %d minutes: %d requests, all refused; no device is quarantined", len(o.cars), len(offers), minutes, refused)
	})
}

// A push service that calls nine in ten living tokens dead for a quarter of an hour costs one device in a hundred a minute at most, each
// until its app starts.
func TestLivingTokensAreCalledDead(t *testing.T) {
	t.Parallel()
	const minutes = 15
	fleetInBubble(t, testkit.Scale(30, 300), func(t *testing.T, o *office, push *gateway) {
		push.kill(phones(o.cars)[len(o.cars)/10:]...)
		var last dispatch.Dispatch
		for range minutes {
			last = o.offer()
			time.Sleep(time.Minute)
		}
		lost, most := o.devices(o.cars, isQuarantined), minutes*max(1, len(o.cars)/100)
		if lost == 0 || lost > most {
			t.Errorf("%d devices are in quarantine, want %d at most", lost, most)
		}
		testkit.Equal(t, "what an operator sees", 1.0, gauge(t, o.metrics, "firsttap_push_distrusted"))
		push.revive()
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "drivers who got the offer that was made before the push service was right again", len(o.cars)-lost, push.of(last.ID))
		push.reached()
		o.offer()
		time.Sleep(time.Second)
		took, _ := push.reached()
		testkit.Equal(t, "devices that got the next offer", len(o.cars)-lost, len(took))
		t.Logf("%d phones, nine in ten called dead for %d minutes: %d in quarantine", len(o.cars), minutes, lost)
	})
}

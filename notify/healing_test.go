package notify_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/repository"
)

// gateway is a push service that takes its time, by the clock of the test, and knows which tokens are dead.
type gateway struct {
	mu    sync.Mutex
	dead  map[string]bool
	taken []time.Duration // from the event to the answer
	asked int
}

func (a *gateway) Send(_ context.Context, p dispatch.Push) notify.Outcome {
	time.Sleep(50 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.dead[p.Device.PushToken] {
		return notify.Outcome{Class: notify.DeadToken, Reason: "404 UNREGISTERED"}
	}
	if p.Type.Offers() {
		a.taken = append(a.taken, time.Since(p.At))
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

// reached returns the delays of what was taken since it was asked for last, and how many requests there were.
func (a *gateway) reached() (d *delays, asked int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, asked = &delays{all: a.taken}, a.asked
	a.taken, a.asked = nil, 0
	return d, asked
}

// inFakeTime runs a relay with the settings of production over a fleet of phones, and a clock that passes as fast as
// all is done.
func inFakeTime(t *testing.T, drivers int, test func(*testing.T, *office, *gateway)) {
	synctest.Test(t, func(t *testing.T) {
		o := emptyOffice(t, "sqlite://"+filepath.Join(t.TempDir(), "firsttap.db"))
		o.hire(drivers)
		push := &gateway{dead: map[string]bool{}}
		box := o.store.Outbox(repository.OutboxOptions{Owner: "ins_1", Term: 30 * time.Second})
		r := notify.NewRelay(notify.RelayOptions{
			Outbox: box, Topics: box, Devices: o.store, Sender: push, Log: slog.New(slog.DiscardHandler),
		})
		o.store.BornLeased("ins_1", 30*time.Second)
		o.store.OnCommit(r.Committed)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		defer func() {
			stop()
			<-ended
		}()
		test(t, o, push)
	})
}

func (o *office) phones() (tokens []string) {
	for _, v := range o.cars {
		tokens = append(tokens, phone(v))
	}
	return tokens
}

// most is the longest of what took some time.
func (d *delays) most() (most time.Duration) {
	for _, took := range d.all {
		most = max(most, took)
	}
	return most
}

// A fleet of which seven in ten tokens die at once heals within an hour, and nobody who lives waits for it.
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
						t.Errorf("%d of 300 who live were told", len(took.all))
					}
					all.all = append(all.all, took.all...)
				}
				healed := time.Since(died)
				if n := o.devices(o.cars[700:], isGood); n != 300 {
					t.Errorf("%d of the 300 who live are good", n)
				}
				if most := all.most(); most > 2*time.Second {
					t.Errorf("one who lives waited %s", most)
				}
				push.reached()
				o.offer()
				time.Sleep(2 * time.Minute)
				if _, asked := push.reached(); asked != 300 {
					t.Errorf("%d requests for 300 who live", asked)
				}
				t.Logf("healed after %s; those who live were told after %s", healed, &all)
			})
		})
	}
}

// An instance that starts with the wrong credentials: nobody is quarantined, the push service is asked little, and what
// is still of use is told when all is right again.
func TestWrongCredentials(t *testing.T) {
	inFakeTime(t, 200, func(t *testing.T, o *office, push *gateway) {
		o.trustAll()
		push.kill(o.phones()...)
		for range 10 {
			o.offer()
			time.Sleep(2 * time.Minute)
		}
		_, asked := push.reached()
		if n := o.devices(o.cars, isQuarantined); n != 0 {
			t.Errorf("%d are in quarantine", n)
		}
		if asked > 3*10*len(o.cars) {
			t.Errorf("%d requests for %d pushes, none of which was taken", asked, 10*len(o.cars))
		}
		o.offer()
		push.revive()
		right := time.Now()
		var took *delays
		for told := 0; told < 5*len(o.cars); told += len(took.all) { // those of the last 10 minutes
			if time.Since(right) > 5*time.Minute {
				t.Fatalf("%d of %d were told", told, 5*len(o.cars))
			}
			time.Sleep(time.Second)
			took, _ = push.reached()
		}
		t.Logf("%d requests in 20 minutes; all was told %s after all was right", asked, time.Since(right))
	})
}

// Sixty accounts register ten dead tokens each, and others every two minutes. Everybody else is told as if they were not
// there.
func TestMadeUpTokensAllTheTime(t *testing.T) {
	inFakeTime(t, 100, func(t *testing.T, o *office, push *gateway) {
		honest, cheats := o.cars, o.accounts(60, "45m")
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
				t.Errorf("%d phones were told of four offers, want %d", len(took.all), 4*len(honest))
			}
			all.all = append(all.all, took.all...)
		}
		if n := o.devices(honest, isGood); n != len(honest) {
			t.Errorf("%d of %d phones are good", n, len(honest))
		}
		if most := all.most(); most > 2*time.Second {
			t.Errorf("one waited %s", most)
		}
		t.Logf("honest phones were told after %s", &all)
	})
}

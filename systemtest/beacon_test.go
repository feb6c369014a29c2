package systemtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// beacon offers dispatches to a driver with a phone, in a region without other drivers, while a trial runs. It shows whether pushes arrive.
type beacon struct {
	tr   *trial
	fcm  *fcmtest.Server
	url  string // of the database
	stop func()

	mu       sync.Mutex // guards the fields below
	arrivals []time.Time
	refused  int
	silences []string // the longest time without a push, of each fault so far
}

const beaconRegion = "busan"

func startBeacon(tr *trial) *beacon {
	b := &beacon{tr: tr, fcm: StartFCM(tr.t), url: mariaDB(tr.t)}
	b.fcm.OnSend(func(r fcmtest.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if r.Accepted {
			b.arrivals = append(b.arrivals, r.At)
		} else {
			b.refused++
		}
	})
	b.stop = testkit.Run(tr.t, b.offer)
	return b
}

// offer makes dispatches until ctx ends. An instance may fail to: it is the trial that checks responses.
func (b *beacon) offer(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	reachable := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		running := b.tr.instances()
		switch {
		case len(running) == 0:
		case reachable:
			createDispatch(running[0], DispatchOptions{Region: beaconRegion, Expires: time.Now().Add(time.Hour)})
		default:
			for _, d := range createDrivers(running[0], beaconRegion, 1).drivers() {
				device := fmt.Sprintf(`{"platform":"android","push_token":%q}`, pushToken(d))
				reachable = send("PUT", running[0].URL+"/v1/me/devices/app", d.Token, device).status == 200
			}
		}
	}
}

// settings are those of instances that push to the beacon's phone.
func (b *beacon) settings(more ...string) [2][]string {
	return both(PushSettings(b.url, b.fcm, "demo", more...)...)
}

// arrivedSince counts the pushes that have arrived since then.
func (b *beacon) arrivedSince(since time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.arrivals {
		if at.After(since) {
			n++
		}
	}
	return n
}

// failed counts the pushes that the push service has not accepted.
func (b *beacon) failed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// await waits until pushes arrive again.
func (b *beacon) await() {
	b.tr.t.Helper()
	since := time.Now()
	testkit.Within(b.tr.t, settled, "pushes arrive", func() bool { return b.arrivedSince(since) >= 5 })
}

// fault is a fault after whose end pushes arrive again.
func (b *beacon) fault(name string, strike func() (mend func())) fault {
	return fault{name, func() func() {
		b.await()
		began := time.Now()
		mend := strike()
		return func() {
			mended := time.Now()
			mend()
			b.await()
			b.note(name, began, mended)
		}
	}}
}

// note writes down the longest time without a push since a fault began, and how much of it came after its end.
func (b *beacon) note(name string, began, mended time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := began
	var longest, late time.Duration
	for _, at := range b.arrivals {
		if at.After(before) {
			if at.Sub(before) > longest {
				longest, late = at.Sub(before), max(0, at.Sub(mended))
			}
			before = at
		}
	}
	b.silences = append(b.silences, fmt.Sprintf("%s: %.1f s, until %.1f s after its end", name, longest.Seconds(), late.Seconds()))
}

// remark checks that the phone got each offer, and returns the longest times without a push.
func (b *beacon) remark() string {
	b.stop()
	db := OpenDatabase(b.tr.t, b.url)
	testkit.Within(b.tr.t, leaseTakeover+settled, "each offer is pushed", func() bool {
		return db.Count("notifications WHERE state = 1") == db.Count("dispatches WHERE region = '"+beaconRegion+"'")
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	return "longest time without a push: " + strings.Join(b.silences, "; ")
}

// onQuorum has a leader that pushes, under the lock of three servers.
func onQuorum(tr *trial) deployment {
	b := startBeacon(tr)
	var servers [3]*servertest.Redis
	urls := make([]string, len(servers))
	for k := range servers {
		servers[k] = servertest.StartRedis(tr.t)
		urls[k] = servers[k].URL()
	}
	kill := func(n int) (start func()) {
		for _, r := range servers[:n] {
			r.Kill()
		}
		return func() {
			for _, r := range servers[:n] {
				r.Start()
			}
		}
	}
	return deployment{
		settings: b.settings("FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS="+strings.Join(urls, ",")),
		current:  func() string { return b.url },
		remark:   b.remark,
		faults: []fault{
			b.fault("one of the three servers is killed, and started again later", func() func() {
				start := kill(1)
				b.await()
				return start
			}),
			b.fault("two of the three servers are killed, and started again later", func() func() {
				const undecided = "the leader can't be determined"
				before := tr.logged(undecided)
				start := kill(2)
				testkit.Within(tr.t, settled, "no instance leads", func() bool { return tr.logged(undecided) > before })
				b.await() // without a leader, each instance pushes
				return start
			}),
		},
	}
}

// onFCM has a push service that fails.
func onFCM(tr *trial) deployment {
	b := startBeacon(tr)
	refuse := func(set, end func(*fcmtest.Knobs)) func() func() {
		return func() func() {
			before := b.failed()
			b.fcm.Set(set)
			testkit.Within(tr.t, settled, "FCM accepts no push", func() bool { return b.failed() >= before+5 })
			return func() { b.fcm.Set(end) }
		}
	}
	return deployment{
		settings: b.settings(),
		current:  func() string { return b.url },
		remark:   b.remark,
		faults: []fault{
			b.fault("FCM answers 503, and recovers later", refuse(
				func(k *fcmtest.Knobs) { k.Status = 503 }, func(k *fcmtest.Knobs) { k.Status = 0 })),
			b.fault("FCM does not answer, and recovers later", refuse(
				func(k *fcmtest.Knobs) { k.Hang = true }, func(k *fcmtest.Knobs) { k.Hang = false })),
		},
	}
}

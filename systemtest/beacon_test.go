package systemtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// beacon offers dispatches to a driver with a phone, in a region without other drivers, while a trial runs: ten each second, over the
// instances in turns. It shows whether pushes arrive.
type beacon struct {
	tr  *trial
	fcm *fcmtest.Server
	url string // of the database
	// end ends the offers.
	end func()

	mu       sync.Mutex // guards the fields below
	offered  map[string]time.Time
	arrivals map[string]arrival // the first of each dispatch
	refused  int
	faults   []beaconFault
}

// arrival is when a push service accepted a push, and the Firebase project of the instance that sent it.
type arrival struct {
	at      time.Time
	project string
}

// beaconFault is a fault that ended, and until when pushes after its end were awaited.
type beaconFault struct {
	name                 string
	began, ended, waited time.Time
}

const beaconRegion = "busan"

// beaconProjects are the Firebase projects of the two instances.
var beaconProjects = [2]string{"one", "two"}

func startBeacon(tr *trial) *beacon {
	b := &beacon{
		tr: tr, fcm: StartFCM(tr.t), url: mariaDB(tr.t), offered: map[string]time.Time{}, arrivals: map[string]arrival{},
	}
	b.fcm.OnSend(b.record)
	b.end = testkit.Run(tr.t, b.offer)
	return b
}

func (b *beacon) record(r fcmtest.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := r.Data["dispatch_id"]
	if _, again := b.arrivals[id]; !r.Accepted {
		b.refused++
	} else if !again {
		b.arrivals[id] = arrival{r.At, r.Project}
	}
}

// offer makes dispatches until ctx ends. An instance may fail to: it is the trial that checks responses.
func (b *beacon) offer(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var driver []Driver
	reachable := false
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		running := b.tr.instances()
		if len(running) == 0 {
			continue
		}
		i := running[n%len(running)]
		switch {
		case reachable:
			began := time.Now()
			if made := createDispatch(i, DispatchOptions{Region: beaconRegion, Expires: began.Add(time.Hour)}); made.status == 201 {
				b.mu.Lock()
				b.offered[made.ID] = began
				b.mu.Unlock()
			}
		case len(driver) == 0:
			driver = createDrivers(i, beaconRegion, 1).drivers()
		default:
			device := fmt.Sprintf(`{"platform":"android","push_token":%q}`, pushToken(driver[0]))
			reachable = send("PUT", i.URL+"/v1/me/devices/app", driver[0].Token, device).status == 200
		}
	}
}

// settings are those of instances that push to the beacon's phone.
func (b *beacon) settings(more ...string) (of [2][]string) {
	for k, project := range beaconProjects {
		of[k] = PushSettings(b.url, b.fcm, project, more...)
	}
	return of
}

// arrivedSince counts the pushes that have arrived since then, by project.
func (b *beacon) arrivedSince(since time.Time) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[string]int{}
	for _, a := range b.arrivals {
		if a.at.After(since) {
			n[a.project]++
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
	testkit.Within(b.tr.t, settled, "pushes arrive", func() bool {
		n := b.arrivedSince(since)
		return n[beaconProjects[0]]+n[beaconProjects[1]] >= 5
	})
}

// fault is a fault before and after which pushes arrive.
func (b *beacon) fault(name string, strike func() (mend func())) fault {
	return fault{name, func() func() {
		b.await()
		began := time.Now()
		mend := strike()
		return func() {
			ended := time.Now()
			mend()
			b.await()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.faults = append(b.faults, beaconFault{name, began, ended, time.Now()})
		}
	}}
}

// remark waits until each offer has arrived at the phone, and returns how late they were.
func (b *beacon) remark() string {
	b.end()
	db := OpenDatabase(b.tr.t, b.url)
	testkit.Within(b.tr.t, leaseTakeover+settled, "each offer arrives", func() bool {
		arrived := true
		b.mu.Lock()
		defer b.mu.Unlock()
		db.each("SELECT id FROM dispatches WHERE region = '"+beaconRegion+"'", func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			_, ok := b.arrivals[id]
			arrived = arrived && ok
			return err
		})
		return arrived
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, f := range b.faults {
		latest, next := b.delays(f)
		lines = append(lines, fmt.Sprintf("%s, for %.1f s: the next push came %.1f s after its end, and the latest push %.1f s after its offer",
			f.name, f.ended.Sub(f.began).Seconds(), next.Seconds(), latest.Seconds()))
	}
	return strings.Join(lines, "\n")
}

// delays returns the longest time from an offer during the fault, or until pushes arrived again, to its push; and the time from the fault's
// end to the next push.
func (b *beacon) delays(f beaconFault) (latest, next time.Duration) {
	next = f.waited.Sub(f.ended)
	for id, a := range b.arrivals {
		if at, ok := b.offered[id]; ok && at.After(f.began) && at.Before(f.waited) {
			latest = max(latest, a.at.Sub(at))
		}
		if a.at.After(f.ended) {
			next = min(next, a.at.Sub(f.ended))
		}
	}
	return latest, next
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
	leads := func() {
		testkit.Within(tr.t, settled, "an instance leads", func() bool { return relayHolder(tr.instances()[0]) != "" })
	}
	return deployment{
		settings: b.settings("FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS="+strings.Join(urls, ","), patientOthers),
		current:  func() string { return b.url },
		remark:   b.remark,
		faults: []fault{
			b.fault("one of the three servers is killed, and started again later", func() func() {
				leads()
				doubts := tr.logged(undecided) + tr.logged(lostLead)
				start, since := kill(1), time.Now()
				testkit.Within(tr.t, settled, "pushes arrive for longer than a lease of the lead", func() bool {
					return len(b.arrivedSince(since.Add(12*time.Second))) > 0
				})
				if by := b.arrivedSince(since); len(by) != 1 || tr.logged(undecided)+tr.logged(lostLead) != doubts {
					tr.mustBeTrue(false, "the lead was lost with one of three servers: pushes are by %v", by)
				}
				return start
			}),
			b.fault("two of the three servers are killed, and started again later", func() func() {
				leads()
				before := tr.logged(lostLead)
				start := kill(2)
				testkit.Within(tr.t, settled, "the lead is lost", func() bool { return tr.logged(lostLead) > before })
				since := time.Now()
				testkit.Within(tr.t, settled, "without a leader, each instance pushes", func() bool { return len(b.arrivedSince(since)) == 2 })
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
			testkit.Within(tr.t, settled, "FCM has refused five pushes", func() bool { return b.failed() >= before+5 })
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

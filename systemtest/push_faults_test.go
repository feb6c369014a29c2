package systemtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// slowest is FCM's longest latency here: long enough that an instance most likely has something in flight when it is killed.
const slowest = 500 * time.Millisecond

// fleet is three instances over one database that are killed at random and replaced.
type fleet struct {
	*pushing
	redis string // the setting of every instance

	mu        sync.Mutex
	instances [3]*Instance
	names     [3]string        // Firebase projects: no two processes have the same
	leases    [3]time.Duration // nor the same lease of pushes
	started   int
	deaths    []death
}

// death is the kill of an instance.
type death struct {
	name string
	// unsent are the messages that were not recorded as sent at that time.
	unsent map[message]bool
	// parts is how many large audiences were told in part then.
	parts int
}

func newFleet(t *testing.T, url string) *fleet {
	h := &fleet{pushing: startPushing(t, url), redis: ownRedis(t)}
	for k := range h.instances {
		h.begin(k)
	}
	return h
}

func (h *fleet) begin(k int) {
	h.t.Helper()
	h.started++
	name := fmt.Sprintf("process-%d", h.started)
	lease := time.Duration(h.started) * time.Hour // no lease ends by itself
	i := h.start(name, h.redis, pushLease+"="+lease.String())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instances[k], h.names[k], h.leases[k] = i, name, lease
}

func (h *fleet) any() *Instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.instances[rand.N(len(h.instances))]
}

// kill kills an instance, ends its leases, and starts another in its place.
func (h *fleet) kill(k int) {
	h.t.Helper()
	h.instances[k].Kill()
	h.deaths = append(h.deaths, death{name: h.names[k], unsent: h.db.unsentMessages(), parts: h.db.Count("expansions")})
	h.db.endLeases(h.leases[k])
	h.begin(k)
}

// killSender kills an instance that has sent a message and waits for the answer.
func (h *fleet) killSender() {
	h.t.Helper()
	sender, killed := make(chan string, 1), make(chan struct{})
	defer close(killed)
	var held atomic.Bool
	h.fcm.OnSend(func(r fcmtest.Request) {
		h.mail.record(r)
		if r.Accepted && held.CompareAndSwap(false, true) {
			sender <- r.Project
			<-killed
		}
	})
	name := testkit.Await(h.t, "a message to the push service", sender)
	h.kill(slices.Index(h.names[:], name))
	h.fcm.OnSend(h.mail.record)
}

// endLeases ends the leases that were taken for that time, a number of hours.
func (db *Database) endLeases(lease time.Duration) {
	db.t.Helper()
	end := time.Now().Add(lease)
	for _, update := range []string{
		"UPDATE notifications SET due_at = 0 WHERE state = 0 AND claim <> '' AND due_at BETWEEN ? AND ?",
		"UPDATE events SET next_at = 0 WHERE claim <> '' AND next_at BETWEEN ? AND ?",
		"UPDATE webhook_deliveries SET next_at = 0 WHERE status = 'PENDING' AND claim <> '' AND next_at BETWEEN ? AND ?",
	} {
		db.exec(update, end.Add(-30*time.Minute).UnixMicro(), end.Add(30*time.Minute).UnixMicro())
	}
}

// make makes n dispatches, one each pace, while instances are killed. It closes the returned channel at the end. A
// dispatch whose response was lost may exist beside its replacement.
func (h *fleet) make(n int, pace time.Duration) <-chan struct{} {
	made := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(n))
	tick := time.NewTicker(pace)
	var makers sync.WaitGroup
	for range 4 {
		makers.Go(func() {
			for left.Add(-1) >= 0 {
				<-tick.C
				for h.t.Context().Err() == nil && createDispatch(h.any(), DispatchOptions{}).status != 201 {
				}
			}
		})
	}
	go func() {
		makers.Wait()
		tick.Stop()
		close(made)
	}()
	return made
}

// account checks that every driver got every event, and that each duplicate is due to an instance that was killed before
// it recorded the first message as sent, or to an attempt that got no answer.
func (h *fleet) account(events []string, drivers []Driver) {
	h.t.Helper()
	h.mail.mu.Lock()
	defer h.mail.mu.Unlock()
	lost, inFlight, again, unexplained := 0, 0, 0, 0
	unanswered := h.db.unansweredMessages()
	for _, e := range events {
		for _, d := range drivers {
			of := message{e, "dispatch.opened", pushToken(d)}
			arrivals := h.mail.sent[of]
			if len(arrivals) == 0 {
				lost++
				continue
			}
			excuses := 0
			for _, death := range h.deaths {
				for _, by := range arrivals {
					if by == death.name && death.unsent[of] {
						excuses++
					}
				}
			}
			inFlight += excuses
			again += len(arrivals) - 1
			if more := len(arrivals) - 1 - excuses - unanswered[of]; more > 0 {
				unexplained += more
				h.t.Logf("%v arrived from %v, of which %d were in flight at a kill and %d got no answer", of, arrivals, excuses, unanswered[of])
			}
		}
	}
	if lost > 0 || unexplained > 0 || len(h.mail.sent) != len(events)*len(drivers) {
		h.t.Errorf("%d events to %d drivers: %d were lost, %d were told again for no reason, %d are in the mail",
			len(events), len(drivers), lost, unexplained, len(h.mail.sent))
	}
	if inFlight == 0 {
		h.t.Error("no message was in flight at a kill: killSender has not killed a sender")
	}
	h.t.Logf("%d pushes, %d kills: %d pushes were in flight or not recorded then, %d were sent again",
		len(h.mail.sent), len(h.deaths), inFlight, again)
}

// Instances are killed at random while they send. Nothing is lost, every duplicate was in flight at a kill, each phone
// shows each offer once, and others send what a killed instance had leased.
func TestKilledInstancesLoseNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		t.Parallel()
		killWhilePushing(t, url, testkit.Scale(1500, 5000), 50, 60*time.Millisecond)
	})
}

// killWhilePushing sends that many pushes to that many drivers, with a dispatch each pace, while instances are killed.
func killWhilePushing(t *testing.T, url string, pushes, drivers int, pace time.Duration) {
	h := newFleet(t, url)
	h.fcm.Set(func(k *fcmtest.Knobs) { k.Latency, k.Jitter = slowest/2, slowest/2 })
	people := MakeDriversWithPhones(t, h.instances[0], "seoul", drivers)
	made := h.make(pushes/drivers, pace)
	h.killSender()
	for making := true; making || len(h.deaths) < 4; {
		next := time.NewTimer(200*time.Millisecond + rand.N(time.Second))
		<-next.C
		h.kill(rand.N(len(h.instances)))
		select {
		case <-made:
			making = false
		default:
		}
	}
	h.mustHaveTold(people)
}

// mustHaveTold waits until every event of a new dispatch was pushed to everybody, and fails the test unless each phone shows it once,
// nothing is lost, and every duplicate was in flight at a kill.
func (h *fleet) mustHaveTold(people []Driver) {
	h.t.Helper()
	var events []string
	h.db.each("SELECT id FROM events WHERE type='dispatch.created'", func(scan func(...any) error) error {
		var id string
		defer func() { events = append(events, id) }()
		return scan(&id)
	})
	all := len(events) * len(people)
	testkit.Within(h.t, testkit.Patience+time.Duration(all/200)*time.Second, "everybody has heard of everything", func() bool {
		n, _ := h.mail.Count()
		return n == all
	})
	h.settle()
	h.account(events, people)
	for _, d := range people {
		shown := map[string]int{}
		for _, n := range h.fcm.Device(pushToken(d)).Visible {
			shown[n.Event]++
		}
		for _, e := range events {
			if shown[e] != 1 {
				h.t.Errorf("%s sees the offer of %s %d times", d.ID, e, shown[e])
			}
		}
	}
}

// A large audience is told in parts. Instances are killed all the time, also between two parts, and everybody is told.
func TestKilledInstancesTellALargeAudience(t *testing.T) {
	t.Parallel()
	killWhileTelling(t, mariaDB(t), testkit.Scale(2500, 5000))
}

// killWhileTelling makes a dispatch for that many drivers, and kills instances until most are told.
func killWhileTelling(t *testing.T, url string, drivers int) {
	h := newFleet(t, url)
	h.fcm.Set(func(k *fcmtest.Knobs) { k.Latency, k.Jitter = slowest/2, slowest/2 })
	people := MakeDrivers(t, h.instances[0], drivers)
	h.db.exec(`INSERT INTO devices (id, driver_id, installation_id, platform, push_token, app_version, locale, created_at, updated_at)
		SELECT CONCAT('dev_', SUBSTRING(id, 5)), id, 'app', 'android', CONCAT('token-', id), '', '', 1, 1 FROM drivers`)
	<-h.make(1, time.Millisecond)
	for told := 0; told < drivers*8/10; told, _ = h.mail.Count() {
		h.killSender()
		next := time.NewTimer(rand.N(time.Second))
		<-next.C
	}
	if !slices.ContainsFunc(h.deaths, func(d death) bool { return d.parts > 0 }) {
		t.Error("no instance was killed between two parts of the audience")
	}
	h.mustHaveTold(people)
}

package systemtest

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// balancer sends requests to instances whose /readyz is 200, as a proxy does.
type balancer struct {
	urls  []string
	ready []atomic.Bool
}

const probeEvery = 200 * time.Millisecond

// openBalancer probes the instances until the test ends.
func openBalancer(t *testing.T, urls []string) *balancer {
	t.Helper()
	b := &balancer{urls: urls, ready: make([]atomic.Bool, len(urls))}
	stop := make(chan struct{})
	var probing sync.WaitGroup
	for k := range urls {
		probing.Go(func() {
			tick := time.NewTicker(probeEvery)
			defer tick.Stop()
			for {
				b.ready[k].Store(send("GET", urls[k]+"/readyz", "", "").status == http.StatusOK)
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		})
	}
	t.Cleanup(func() { close(stop); probing.Wait() })
	return b
}

// pick returns one of the instances that are ready. While the database does not answer there is none.
func (b *balancer) pick() (picked *Instance) {
	for picked == nil {
		testkit.Poll(testkit.Patience, func() bool {
			for _, k := range rand.Perm(len(b.urls)) {
				if b.ready[k].Load() {
					picked = &Instance{URL: b.urls[k]}
				}
			}
			return picked != nil
		})
	}
	return picked
}

// taken is one dispatch's result, by its drivers' responses.
type taken struct {
	dispatch, winner, claim string
}

// load is what all that race have in common.
type load struct {
	stop  chan struct{}
	races atomic.Int64
	// calm is set while an instance that gets no requests drains: less load then shows as much.
	calm atomic.Bool
}

const calmEvery = time.Second

// racing makes dispatches and lets all drivers accept each at the same time, until the load is to stop. It counts the races, and
// returns the results; an unexpected response fails the test.
func racing(t *testing.T, b *balancer, drivers []Driver, l *load) (won []taken) {
	pace := time.NewTicker(calmEvery)
	defer pace.Stop()
	for {
		if l.calm.Load() {
			<-pace.C
		}
		select {
		case <-l.stop:
			return won
		default:
		}
		made := createDispatch(b.pick(), DispatchOptions{})
		if made.status != 201 {
			t.Errorf("dispatch: %s", made)
			return won
		}
		id := made.ID
		answers := Together(len(drivers), func(k int) Response { return Accept(b.pick(), id, drivers[k], 1) })
		for k, a := range answers {
			switch {
			case a.Won():
				won = append(won, taken{id, drivers[k].ID, a.Claim.ID})
			case a.status != http.StatusConflict || a.Code != "ALREADY_TAKEN":
				t.Errorf("%s taps on %s: %s", drivers[k].ID, id, a)
			}
		}
		l.races.Add(1)
	}
}

// listening follows the backoffice's stream from one instance to the next, and counts dispatch.accepted by dispatch.
type listening struct {
	accepted       map[string]int
	resyncs, moved int
	last           string
	reconnect      bool          // the stream's last event was the notice to reconnect
	first          string        // the address of the instance that the first stream is from
	begun          chan struct{} // closed when the first stream is open
}

func (l *listening) follow(t *testing.T, b *balancer, over func(*listening) bool) {
	for !over(l) {
		from := b.pick()
		s := openStream(t, from, AdminKey, l.last)
		if l.moved == 0 {
			l.first = from.URL
			close(l.begun)
		}
		l.reconnect = false
		event := ""
		for line := range s.lines {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "id":
				l.last = value
			case "event":
				event = value
				l.reconnect = value == "reconnect"
				if value == "resync" {
					l.resyncs++
				}
			case "data":
				if event == "dispatch.accepted" {
					l.accepted[textOf(value, "dispatch_id")]++
				}
			}
			if over(l) {
				return
			}
		}
		if !l.reconnect {
			t.Error("a stream ended and did not say that it is to be opened again")
		}
		l.moved++
	}
}

// Three instances are replaced one after the other under load, as in a deployment, or of the three the one that a stream is from: no
// request fails, nothing is lost, and every event is sent once.
func TestRollingRestart(t *testing.T) {
	p, redis := startPushing(t, mariaDB(t)), ownRedis(t)
	fleet, urls := make([]*Instance, 3), make([]string, 3)
	begin := func(k int, addr string) {
		// The balancer has to notice within the drain, also on a busy machine. A stream that waits less for Redis may have to be read again.
		fleet[k] = p.start("rolling", redis, "FIRSTTAP_DRAIN=15s", otherTimeout+"=1m", "FIRSTTAP_ADDR="+addr)
	}
	for k := range fleet {
		begin(k, testkit.FreeAddress(t))
		urls[k] = fleet[k].URL
	}
	balance := openBalancer(t, urls)
	drivers := MakeDriversWithPhones(t, fleet[0], "seoul", 6)

	var racers, hearing sync.WaitGroup
	load := &load{stop: make(chan struct{})}
	won := make([][]taken, 3)
	var made atomic.Int64 // -1 until the load is over
	made.Store(-1)
	heard := &listening{accepted: map[string]int{}, begun: make(chan struct{})}
	var gaveUp atomic.Bool
	hearing.Go(func() {
		heard.follow(t, balance, func(l *listening) bool {
			return int64(len(l.accepted)) == made.Load() || gaveUp.Load()
		})
	})
	testkit.Await(t, "the stream is open", heard.begun)
	for k := range won {
		racers.Go(func() { won[k] = racing(t, balance, drivers, load) })
	}
	replaced := []int{0, 1, 2}
	if !testkit.All() {
		replaced = []int{slices.Index(urls, heard.first)}
	}
	for _, k := range replaced {
		i := fleet[k]
		before := load.races.Load()
		i.signal(syscall.SIGTERM)
		testkit.Eventually(t, "the load goes on without it", func() bool { return !balance.ready[k].Load() && load.races.Load() > before+20 })
		load.calm.Store(true) // for the rest of its drain
		i.mustEnd()
		load.calm.Store(false)
		begin(k, strings.TrimPrefix(urls[k], "http://"))
		testkit.Eventually(t, "the new one is ready", balance.ready[k].Load)
		joined := load.races.Load()
		testkit.Eventually(t, "the load goes on with it", func() bool { return load.races.Load() > joined+20 })
	}
	close(load.stop)
	racers.Wait()
	all := slices.Concat(won...)
	made.Store(int64(len(all)))
	defer time.AfterFunc(3*requestTimeout, func() { gaveUp.Store(true) }).Stop()
	// The last event may have come before made was known: one more event makes the stream check again.
	if a := createDispatch(balance.pick(), DispatchOptions{Region: "nowhere"}); a.status != 201 {
		t.Errorf("dispatch: %s", a)
	}
	hearing.Wait()

	for _, w := range all {
		p.db.mustBeWonBy(w.dispatch, 1, w.winner, w.claim)
		if n := heard.accepted[w.dispatch]; n != 1 && heard.resyncs == 0 {
			t.Errorf("%s: %d dispatch.accepted in the stream", w.dispatch, n)
		}
	}
	testkit.Eventually(t, "every tap is in the ledger", func() bool { return p.db.taps("%") == len(all)*len(drivers) })
	// Rows that an instance could not release are sent once their leases have expired.
	testkit.Within(t, leaseTakeover, "everything is sent", p.db.nothingToPush)
	messages, again := p.mail.Count()
	t.Logf("%d dispatches, %d taps, %d pushes, %d of them again; the stream moved %d times, %d resyncs",
		len(all), len(all)*len(drivers), messages, again, heard.moved, heard.resyncs)
	if n := p.db.Count("notifications WHERE type='dispatch.accepted'"); n != len(all) {
		t.Errorf("%d notifications of %d wins", n, len(all))
	}
	if again > p.db.unanswered() || heard.resyncs > 0 || heard.moved == 0 {
		t.Errorf("repeated events: %d, resyncs: %d, moved: %d", again, heard.resyncs, heard.moved)
	}
}

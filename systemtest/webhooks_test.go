package systemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// verifier verifies deliveries as they arrive, with the reference library of Standard Webhooks in Node.
type verifier struct {
	t       *testing.T
	mu      sync.Mutex
	in      *json.Encoder
	close   func() error
	out     *bufio.Scanner
	process *exec.Cmd
	// complaints are what it writes when it fails itself.
	complaints testkit.LogBuffer
	given      int
}

func startVerifier(t *testing.T) *verifier {
	t.Helper()
	const pages = "../web/browser"
	v := &verifier{t: t, process: exec.CommandContext(t.Context(), servertest.NodePackage(t, pages, "standardwebhooks"), "testdata/verify_webhooks.cjs", pages)}
	v.process.Stderr = &v.complaints
	in, err := v.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.process.Start(); err != nil {
		t.Fatal(err)
	}
	buffered := bufio.NewWriter(in)
	v.in, v.out = json.NewEncoder(buffered), bufio.NewScanner(out)
	v.close = func() error {
		if err := buffered.Flush(); err != nil {
			return err
		}
		return in.Close()
	}
	return v
}

func (v *verifier) verify(secret string, a Arrival) {
	v.mu.Lock()
	defer v.mu.Unlock()
	headers := map[string]string{}
	for name := range a.header {
		headers[name] = a.header.Get(name)
	}
	v.given++
	_ = v.in.Encode(map[string]any{"secret": secret, "headers": headers, "body": string(a.body)}) // mustAccept sees what does not arrive
}

// mustAccept waits for the verdicts, and fails the test unless each delivery was accepted.
func (v *verifier) mustAccept() {
	v.t.Helper()
	if err := v.close(); err != nil {
		v.t.Fatalf("%v\n%s", err, &v.complaints)
	}
	var lines []string
	for v.out.Scan() {
		lines = append(lines, v.out.Text())
	}
	if err := v.process.Wait(); err != nil || !slices.Equal(lines, []string{fmt.Sprintf("accepted %d", v.given)}) {
		v.t.Errorf("of %d deliveries: %v, %s", v.given, err, strings.Join(lines[:min(len(lines), 10)], "; "))
	}
}

// couriers are two instances that send webhooks over one database, and are killed and replaced.
type couriers struct {
	t        *testing.T
	url      string
	redis    string
	db       *Database
	receiver *Receiver

	mu        sync.Mutex
	instances [2]*Instance
	leases    [2]time.Duration // no two processes have the same: so it is known who holds a delivery
	started   int
	// endpoints are the paths of the endpoints by their identifiers; inFlight counts the kills at which a delivery was leased.
	endpoints map[string]string
	inFlight  map[delivery]int
	dead      []time.Duration // the leases of killed instances
}

// delivery is an event for the endpoint at a path.
type delivery struct{ endpoint, event string }

func startCouriers(t *testing.T, url string) *couriers {
	t.Helper()
	c := &couriers{
		t: t, url: url, redis: ownRedis(t), db: OpenDatabase(t, url), receiver: StartReceiver(t), endpoints: map[string]string{}, inFlight: map[delivery]int{},
	}
	for k := range c.instances {
		c.begin(k)
	}
	return c
}

func (c *couriers) begin(k int) {
	c.t.Helper()
	c.started++
	lease := time.Duration(c.started) * time.Hour // no lease ends by itself
	i := Start(c.t, databaseURL(c.url), c.redis, PrivateWebhooks, pushLease+"="+lease.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[k], c.leases[k] = i, lease
}

func (c *couriers) any() *Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instances[rand.N(len(c.instances))]
}

// kill kills an instance, notes what it had leased, ends its leases, and starts another in its place.
func (c *couriers) kill(k int) {
	c.t.Helper()
	c.instances[k].Kill()
	c.dead = append(c.dead, c.leases[k])
	end := time.Now().Add(c.leases[k])
	c.db.each(fmt.Sprintf("SELECT webhook_id, event_id FROM webhook_deliveries WHERE status = 'PENDING' AND claim <> '' AND next_at BETWEEN %d AND %d",
		end.Add(-30*time.Minute).UnixMicro(), end.Add(30*time.Minute).UnixMicro()), func(scan func(...any) error) error {
		var id, event string
		err := scan(&id, &event)
		c.inFlight[delivery{c.endpoints[id], event}]++
		return err
	})
	c.db.endLeases(c.leases[k])
	c.begin(k)
}

// make makes dispatches, and events of each: a driver accepts, and the backoffice cancels. The instances are killed meanwhile:
// a request that fails is sent again, and one that was carried out although it failed leaves events of its own.
func (c *couriers) make(dispatches int, drivers []Driver) (made <-chan struct{}) {
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(dispatches))
	var making sync.WaitGroup
	for k := range 4 {
		making.Go(func() {
			for left.Add(-1) >= 0 && c.t.Context().Err() == nil {
				c.live(drivers[k])
			}
		})
	}
	go func() {
		making.Wait()
		close(done)
	}()
	return done
}

func (c *couriers) live(d Driver) {
	var id string
	for id == "" && c.t.Context().Err() == nil {
		if a := createDispatch(c.any(), DispatchOptions{}); a.status == 201 {
			id = a.ID
		}
	}
	for _, step := range []func() Response{
		func() Response { return Accept(c.any(), id, d, 1) },
		func() Response {
			path := "/v1/admin/dispatches/" + id
			seen := send("GET", c.any().URL+path, AdminKey, "")
			if seen.status != 200 {
				return seen
			}
			return sendWith("POST", c.any().URL+path+"/cancel", AdminKey, `{"reason_code":"SITE_CLOSED"}`, "If-Match", seen.header.Get("ETag"))
		},
	} {
		for a := step(); (a.status == 0 || a.status >= 500) && c.t.Context().Err() == nil; {
			a = step()
		}
	}
}

// settle waits until every delivery has been written, has arrived and is recorded.
func (c *couriers) settle(patience time.Duration) {
	c.t.Helper()
	if !testkit.Poll(patience, func() bool {
		for _, lease := range c.dead { // the database may have carried out a statement of an instance that was dead already
			c.db.endLeases(lease)
		}
		return c.db.Count("webhook_events") == 0 && c.db.Count("webhook_deliveries WHERE status = 'PENDING'") == 0
	}) {
		left := ""
		c.db.each("SELECT dispatch_id, event_id, claim, next_at FROM webhook_deliveries WHERE status = 'PENDING' LIMIT 5", func(scan func(...any) error) error {
			var id, event, claim string
			var next int64
			err := scan(&id, &event, &claim, &next)
			left += fmt.Sprintf("\n%s %s leased to %q until %s", id, event, claim, time.UnixMicro(next))
			return err
		})
		c.t.Fatalf("never: all webhooks are delivered; what is left, %d events and %d deliveries:%s",
			c.db.Count("webhook_events"), c.db.Count("webhook_deliveries WHERE status = 'PENDING'"), left)
	}
	if n := c.db.Count("webhook_deliveries WHERE status <> 'DELIVERED'"); n > 0 {
		c.t.Errorf("%d deliveries are not delivered", n)
	}
}

// account checks that each endpoint got every event of every dispatch, in order by dispatch, and that each duplicate was in flight at a
// kill, or had no answer in time.
func (c *couriers) account() {
	c.t.Helper()
	want := map[string][]string{} // events by dispatch, in order
	events := 0
	c.db.each("SELECT dispatch_id, id FROM events WHERE dispatch_id IN (SELECT id FROM dispatches) ORDER BY id", func(scan func(...any) error) error {
		var id, event string
		defer func() { want[id] = append(want[id], event); events++ }()
		return scan(&id, &event)
	})
	excuses := map[delivery]int{}
	for d, n := range c.inFlight {
		excuses[d] = n
	}
	c.db.each("SELECT webhook_id, event_id, attempts FROM webhook_deliveries WHERE attempts LIKE '%},{%'", func(scan func(...any) error) error {
		var id, event, attempts string
		err := scan(&id, &event, &attempts)
		excuses[delivery{c.endpoints[id], event}] += strings.Count(attempts, "},{") // attempts that failed: a slow machine
		return err
	})
	again, unexplained, disorder := 0, 0, 0
	for _, endpoint := range c.endpoints {
		got, seen := map[string][]string{}, map[string]int{}
		for _, a := range c.receiver.Arrivals(endpoint) {
			if seen[a.Event]++; seen[a.Event] > 1 {
				again++
				if seen[a.Event]-1 > excuses[delivery{endpoint, a.Event}] {
					unexplained++
				}
			}
			if last := got[a.Dispatch]; len(last) > 0 && last[len(last)-1] > a.Event {
				disorder++
			} else if len(last) == 0 || last[len(last)-1] != a.Event {
				got[a.Dispatch] = append(last, a.Event)
			}
		}
		lost := 0
		for id, events := range want {
			if !slices.Equal(got[id], events) {
				lost++
			}
		}
		if lost > 0 || len(got) != len(want) {
			c.t.Errorf("%s got all events of %d dispatches, of %d; it heard of %d", endpoint, len(want)-lost, len(want), len(got))
		}
	}
	if unexplained > 0 || disorder > 0 {
		c.t.Errorf("%d duplicates were not in flight at a kill; %d events came after a later one of their dispatch", unexplained, disorder)
	}
	c.t.Logf("%d deliveries to %d endpoints, %d kills: %d deliveries were in flight then, %d were sent again",
		events*len(c.endpoints), len(c.endpoints), len(c.dead), len(c.inFlight), again)
}

// TestWebhooksOutliveKills: instances are killed while they send webhooks. Each event arrives at each endpoint at least once, in order by
// dispatch; what arrives twice was in flight at a kill; and the reference library in Node accepts each signature.
func TestWebhooksOutliveKills(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		t.Parallel()
		killWhileDelivering(t, url, 2000, 3, func(int) time.Duration { return time.Second })
	})
}

// killWhileDelivering has that many deliveries made to that many endpoints, and kills an instance after each pause.
func killWhileDelivering(t *testing.T, url string, deliveries, endpoints int, pause func(int) time.Duration) {
	v := startVerifier(t)
	c := startCouriers(t, url)
	secrets := map[string]string{}
	for k := range endpoints {
		path := fmt.Sprintf("/endpoint-%d", k)
		w := MakeWebhook(t, c.any(), c.receiver.URL(path))
		secrets[path], c.endpoints[w.ID] = w.Secret, path
	}
	held := make(chan struct{})
	var hold atomic.Int64
	hold.Store(8) // deliveries that get no answer before a kill: it meets some in flight
	waiting := make(chan struct{}, 8)
	c.receiver.OnArrival(func(a Arrival) {
		v.verify(secrets[a.Endpoint], a)
		if hold.Add(-1) >= 0 {
			waiting <- struct{}{}
			<-held
		}
	})
	drivers := MakeDrivers(t, c.any(), 4)
	const events = 3 // of a dispatch: it is created, accepted and canceled
	made := c.make(deliveries/endpoints/events+1, drivers)
	for range cap(waiting) {
		testkit.Await(t, "deliveries are in flight", waiting)
	}
	for k := range c.instances {
		c.kill(k)
	}
	close(held)
	for n, making := 0, true; making; n++ {
		next := time.NewTimer(pause(n))
		select {
		case <-next.C:
			c.kill(n % len(c.instances))
		case <-made:
			making = false
			next.Stop()
		}
	}
	c.kill(0)
	c.settle(testkit.Patience + time.Duration(deliveries/50)*time.Second)
	v.mustAccept()
	c.account()
	if len(c.inFlight) == 0 {
		t.Error("no delivery was in flight at a kill")
	}
}

package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
)

// script is an outbox of dispatches with one delivery each. What the repository promises is tested there: this one
// does what a test says.
type script struct {
	mu sync.Mutex
	// due holds the deliveries that wait, by endpoint; leased those that are leased.
	due    map[webhook.ID][]webhook.Lease
	leased map[webhook.DeliveryID]bool
	// leases, completions and releases are what the courier has asked for.
	leases      int
	completions [][]webhook.Result
	// term is how long a lease lasts: 30 s. next is when something is due, zero for what due says.
	term time.Duration
	next time.Time
	// fail is the error of every call while it is set; duringLease is called in a lease.
	fail        error
	duringLease func()
	// events is how many events have no deliveries yet, writes how often the courier wanted to write some. Silent says
	// that no endpoint is active.
	events, writes int
	silent         bool
	paused         []webhook.Endpoint
}

func newScript() *script {
	return &script{due: map[webhook.ID][]webhook.Lease{}, leased: map[webhook.DeliveryID]bool{}, term: 30 * time.Second}
}

func (s *script) add(endpoint webhook.ID, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		k := len(s.due[endpoint]) + len(s.leased)
		l := leaseTo("https://" + string(endpoint) + ".test/")
		l.Delivery.Endpoint, l.Delivery.ID = endpoint, webhook.DeliveryID(fmt.Sprintf("whd_%s_%d", endpoint, k))
		s.due[endpoint] = append(s.due[endpoint], l)
	}
}

// set changes the script, or reads it, while the courier does not.
func (s *script) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *script) leaseCount() (n int) {
	s.set(func() { n = s.leases })
	return n
}

func (s *script) LeaseDeliveries(_ context.Context, perEndpoint int, busy map[webhook.ID]int, limit int) (
	leases []webhook.Lease, more bool, err error,
) {
	s.mu.Lock()
	during := s.duringLease
	s.mu.Unlock()
	if during != nil {
		during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases++
	if s.fail != nil {
		return nil, false, s.fail
	}
	for endpoint, due := range s.due {
		n := min(perEndpoint-busy[endpoint], limit-len(leases), len(due))
		for _, l := range due[:n] {
			l.LeasedUntil = time.Now().Add(s.term)
			s.leased[l.Delivery.ID] = true
			leases = append(leases, l)
		}
		s.due[endpoint] = due[n:]
		more = more || n > 0 && len(due) > n
	}
	return leases, more, nil
}

func (s *script) CompleteDeliveries(_ context.Context, results []webhook.Result) ([]webhook.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	s.completions = append(s.completions, results)
	for _, r := range results {
		delete(s.leased, r.Lease.Delivery.ID)
	}
	paused := s.paused
	s.paused = nil
	return paused, nil
}

// WriteDeliveries writes a delivery of one event, to the endpoint "written".
func (s *script) WriteDeliveries(_ context.Context, body webhook.Body) (more, active bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes++; s.fail != nil {
		return false, false, s.fail
	}
	if s.events > 0 {
		s.events--
		l := leaseTo("https://written.test/")
		l.Delivery.Endpoint, l.Delivery.ID = "written", webhook.DeliveryID(fmt.Sprintf("whd_event_%d", s.events))
		l.Delivery.Body = body(dispatch.Dispatch{}, dispatch.Event{})
		s.due["written"] = append(s.due["written"], l)
	}
	return s.events > 0, !s.silent, nil
}

func (s *script) Due(context.Context) (outbox.Due, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	due := outbox.Due{ReadAt: now, Webhooks: s.next}
	for _, deliveries := range s.due {
		if len(deliveries) > 0 {
			due.Webhooks = now
		}
	}
	return due, s.fail
}

// counts returns how many deliveries wait, are leased, were completed and were released.
func (s *script) counts() (due, leased, completed, released int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, deliveries := range s.due {
		due += len(deliveries)
	}
	for _, batch := range s.completions {
		for _, r := range batch {
			if r.Unsent {
				released++
			} else {
				completed++
			}
		}
	}
	return due, len(s.leased), completed, released
}

// endpoints answer each attempt as a test says; without a word they deliver at once.
type endpoints struct {
	answer func(ctx context.Context, l webhook.Lease) (status int)

	mu       sync.Mutex
	inFlight map[webhook.ID]int
	most     map[webhook.ID]int
	attempts map[webhook.ID]int
}

func (e *endpoints) Attempt(ctx context.Context, l webhook.Lease) webhook.Result {
	id := l.Delivery.Endpoint
	e.mu.Lock()
	e.attempts[id]++
	e.inFlight[id]++
	e.most[id] = max(e.most[id], e.inFlight[id])
	e.mu.Unlock()
	began, status := time.Now(), 200
	if e.answer != nil {
		status = e.answer(ctx, l)
	}
	e.mu.Lock()
	e.inFlight[id]--
	e.mu.Unlock()
	r := webhook.Result{Lease: l, Attempt: webhook.Attempt{At: began, HTTPStatus: status, Took: time.Since(began)}, Gone: status == 410}
	if status/100 != 2 {
		r.Attempt.Error = "no success"
	}
	return r
}

// attempted returns how many attempts there were at the endpoint, and most of them at a time.
func (e *endpoints) attempted(id webhook.ID) (n, most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attempts[id], e.most[id]
}

// underWay returns how many attempts are under way at all endpoints.
func (e *endpoints) underWay() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.inFlight {
		n += k
	}
	return n
}

// hang does not answer: the client gives up after its time, or when it is canceled.
func hang(ctx context.Context) int {
	t := time.NewTimer(webhook.AttemptTimeout)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return 0
}

// courier is a running Courier and what is around it.
type courier struct {
	*Courier
	store *script
	world *endpoints
	log   *testkit.LogBuffer
	stop  func()
}

// inBubble runs test in a bubble with a courier.
func inBubble(t *testing.T, test func(*testing.T, *courier)) {
	testkit.Bubble(t, func(t *testing.T) {
		k := &courier{
			store: newScript(), log: &testkit.LogBuffer{},
			world: &endpoints{inFlight: map[webhook.ID]int{}, most: map[webhook.ID]int{}, attempts: map[webhook.ID]int{}},
		}
		k.Courier = NewCourier(CourierOptions{
			Outbox: k.store, Client: k.world,
			Body: func(dispatch.Dispatch, dispatch.Event) []byte { return []byte("{}") },
			Log:  slog.New(slog.NewJSONHandler(k.log, nil)), Metrics: prometheus.NewRegistry(),
		})
		k.stop = testkit.Run(t, k.Run)
		synctest.Wait()
		test(t, k)
	})
}

func (s *script) batchSizes() (sizes []int) {
	s.set(func() {
		for _, b := range s.completions {
			sizes = append(sizes, len(b))
		}
	})
	return sizes
}

func (s *script) setFailure(err error) { s.set(func() { s.fail = err }) }

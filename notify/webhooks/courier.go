// Package webhooks sends webhooks: a [Courier] has the deliveries of new events written, leases deliveries from the
// outbox, attempts each with a [Client], and completes it as the holder of the lease.
//
// A delivery is sent at least once: a process that is killed leaves what it had leased to another one. The deliveries
// of one dispatch to one endpoint are sent one after the other.
package webhooks

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch/outbox"
	"firsttap/dispatch/webhook"
	"firsttap/notify/wakeup"
)

// Outbox holds the deliveries that a Courier sends; see repository.WebhookOutbox.
type Outbox interface {
	// WriteDeliveries writes the deliveries of some events that have none yet, and of a part of each replay. More says
	// that more such events may wait, active that an endpoint is active.
	WriteDeliveries(ctx context.Context, body webhook.Body) (more, active bool, err error)
	// LeaseDeliveries leases up to limit due deliveries, and of each endpoint as many as perEndpoint is more than busy.
	// More says that others may be due that can be leased at once. It may return leases also with an error.
	LeaseDeliveries(ctx context.Context, perEndpoint int, busy map[webhook.ID]int, limit int) (leases []webhook.Lease, more bool, err error)
	// CompleteDeliveries records the results and returns the endpoints that it paused, also with an error: it may have
	// recorded some. A result whose lease was lost is ignored.
	CompleteDeliveries(ctx context.Context, results []webhook.Result) (paused []webhook.Endpoint, err error)
	// Due may be as old as a second or two.
	Due(ctx context.Context) (outbox.Due, error)
}

// Attempter sends a delivery once; see Client.
type Attempter interface {
	Attempt(ctx context.Context, l webhook.Lease) webhook.Result
}

// CourierOptions configure a Courier. Outbox, Client and Body are required. Every other field has a default: a logger
// that discards, no metrics, or the number in its comment.
type CourierOptions struct {
	Outbox  Outbox
	Client  Attempter
	Body    webhook.Body
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// PollInterval is the interval between two polls of what is due: 1 s.
	PollInterval time.Duration
	// DrainTimeout is how long Run waits for attempts in flight after its context ended: 10 s.
	DrainTimeout time.Duration
}

const (
	// perEndpoint bounds the deliveries to one endpoint that a process has leased: an endpoint that hangs occupies no more.
	perEndpoint = 16
	// maxInFlight bounds the deliveries that a process has leased. There is room for each endpoint: however many hang,
	// none waits for another.
	maxInFlight = perEndpoint * webhook.MaxEndpoints
	// maxBatch bounds the deliveries that one transaction leases or completes.
	maxBatch = 256

	defaultPoll  = time.Second
	defaultDrain = 10 * time.Second
	// stepTimeout bounds one lease, and the writing of some deliveries.
	stepTimeout = 10 * time.Second
	// pollDelay is how much later than the scheduler the courier polls: it gets the scheduler's answer, and need not ask
	// the database.
	pollDelay = 50 * time.Millisecond
)

// Courier sends the deliveries of the outbox. Any number of processes may run one on the same outbox.
type Courier struct {
	options CourierOptions
	metrics *metrics
	// eventsDue wakes the loop that writes deliveries, deliveriesDue the one that leases them.
	eventsDue, deliveriesDue wakeup.Signal
	results                  *resultWriter
	attempts                 sync.WaitGroup

	mu sync.Mutex
	// busy counts the deliveries that this process has leased, by endpoint; inFlight is their sum.
	busy     map[webhook.ID]int
	inFlight int
}

// NewCourier returns a Courier. It sends while Run is running.
func NewCourier(o CourierOptions) *Courier {
	o.PollInterval, o.DrainTimeout = cmp.Or(o.PollInterval, defaultPoll), cmp.Or(o.DrainTimeout, defaultDrain)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Courier{
		options: o, metrics: newMetrics(o.Metrics), eventsDue: wakeup.New(), deliveriesDue: wakeup.New(), busy: map[webhook.ID]int{},
	}
}

// Wake makes the Courier look for new events, replays and due deliveries now. It never blocks.
func (c *Courier) Wake() {
	c.eventsDue.Set()
	c.deliveriesDue.Set()
}

// OnCommit makes the Courier look for new events now. It never blocks.
func (c *Courier) OnCommit() { c.eventsDue.Set() }

// Run sends until ctx ends. Then it waits for the attempts in flight, and releases the leases of what it did not
// send. It may be called again after it has returned.
func (c *Courier) Run(ctx context.Context) {
	// Attempts in flight go on, and their results are recorded, even after ctx has ended.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c.results = newResultWriter(c.options.Outbox, c.options.Log, c.recorded)
	var loops, writing sync.WaitGroup
	writing.Go(func() { c.results.run(lasting) })
	loops.Go(func() { c.lease(ctx, lasting) })
	loops.Go(func() { c.write(ctx) })
	loops.Go(func() { c.poll(ctx) })
	loops.Wait()

	late := time.AfterFunc(c.options.DrainTimeout, stop)
	defer late.Stop()
	c.attempts.Wait() // they end with lasting at the latest
	c.results.finish()
	writing.Wait()
}

// lease leases due deliveries and attempts them, as many as there is room for. What leads to more that are due, or to
// more room, wakes it: deliveries that were written, a poll, a result that was recorded.
func (c *Courier) lease(ctx, lasting context.Context) {
	failing := false
	for ctx.Err() == nil {
		c.deliveriesDue.Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		busy, room := c.room()
		if room == 0 {
			continue // the next result that is recorded makes some
		}
		leases, more, err := c.leaseDeliveries(lasting, busy, room)
		if err != nil && !failing && ctx.Err() == nil {
			c.options.Log.Warn("due webhook deliveries not leased; the courier tries again until they are", "error", err)
		}
		failing = err != nil
		if more {
			c.deliveriesDue.Set()
		}
		c.occupy(leases)
		for _, l := range leases {
			if ctx.Err() != nil || time.Until(l.LeasedUntil) < webhook.AttemptTimeout {
				c.results.add(webhook.Result{Lease: l, Unsent: true})
				continue
			}
			c.attempts.Go(func() { c.attempt(lasting, l) })
		}
	}
}

// leaseDeliveries goes on when the Courier stops, as what it leases has to be released.
func (c *Courier) leaseDeliveries(lasting context.Context, busy map[webhook.ID]int, room int) (
	leases []webhook.Lease, more bool, err error,
) {
	ctx, cancel := context.WithTimeout(lasting, stepTimeout)
	defer cancel()
	return c.options.Outbox.LeaseDeliveries(ctx, perEndpoint, busy, room)
}

func (c *Courier) attempt(ctx context.Context, l webhook.Lease) {
	r := c.options.Client.Attempt(ctx, l)
	if ctx.Err() != nil && !r.Succeeded() {
		// The Courier gave up, not the endpoint: this is no failure of the endpoint.
		c.results.add(webhook.Result{Lease: l, Unsent: true})
		return
	}
	c.metrics.observe(&r)
	if _, again := webhook.RetryAfter(l.Attempt); !r.Succeeded() && !again && !r.Gone {
		c.options.Log.Warn("webhook delivery failed for the last time; it is sent again only if an admin resends it",
			"endpoint", l.Delivery.Endpoint, "delivery", l.Delivery.ID, "event", l.Delivery.Event, "error", r.Attempt.Error)
	}
	c.results.add(r)
}

// room returns how many deliveries of each endpoint are leased, and how many more may be leased now.
func (c *Courier) room() (busy map[webhook.ID]int, room int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.busy), min(maxInFlight-c.inFlight, maxBatch)
}

func (c *Courier) occupy(leases []webhook.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range leases {
		c.busy[l.Delivery.Endpoint]++
	}
	c.inFlight += len(leases)
}

// recorded makes the room of these results free: the database knows them, or their leases are about to end.
func (c *Courier) recorded(results []webhook.Result, paused []webhook.Endpoint) {
	c.mu.Lock()
	for _, r := range results {
		id := r.Lease.Delivery.Endpoint
		if c.busy[id]--; c.busy[id] == 0 {
			delete(c.busy, id)
		}
	}
	c.inFlight -= len(results)
	c.mu.Unlock()
	for _, e := range paused {
		c.metrics.countPaused(e.PauseReason)
		c.options.Log.Error("ALERT: webhook endpoint paused; it gets nothing until an admin makes it active again",
			"endpoint", e.ID, "reason", e.PauseReason, "failing_since", e.FailingSince)
	}
	c.deliveriesDue.Set()
}

// write writes the deliveries of events and of replays, until ctx ends. While no endpoint is active it writes once in
// PollInterval only, as each time is a durable write.
func (c *Courier) write(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		c.eventsDue.Wait(ctx)
		for more := true; more && ctx.Err() == nil; {
			left, active, err := c.writeDeliveries(ctx)
			if more = left; err != nil && !failing && ctx.Err() == nil {
				c.options.Log.Warn("webhook deliveries of events not written; the courier tries again until they are", "error", err)
			}
			failing = err != nil
			switch {
			case failing:
				more = false
			case active:
				c.deliveriesDue.Set()
			case !more:
				sleep(ctx, c.options.PollInterval)
			}
		}
	}
}

func (c *Courier) writeDeliveries(ctx context.Context) (more, active bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return c.options.Outbox.WriteDeliveries(ctx, c.options.Body)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// poll wakes the loops when something is due that nobody announced: after a wait, when a lease has ended, or what
// another process has committed. It knows when the first delivery is due, and wakes them at that moment.
func (c *Courier) poll(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := c.readDue(ctx)
		if err != nil { // each loop tries by itself, and logs what it meets
			now := time.Now()
			due = outbox.Due{ReadAt: now, Webhooks: now}
		}
		if wait := time.Until(due.Webhooks); !due.Webhooks.IsZero() && wait <= 2*c.options.PollInterval {
			time.AfterFunc(wait, c.Wake)
		}
		sleep(ctx, max(time.Until(due.ReadAt.Add(c.options.PollInterval+pollDelay)), c.options.PollInterval/4))
	}
}

// readDue asks what is due, for PollInterval at most.
func (c *Courier) readDue(ctx context.Context) (outbox.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.PollInterval)
	defer cancel()
	return c.options.Outbox.Due(ctx)
}

// Package notify is the relay: it sends the pushes of the outbox to drivers' phones.
//
// No push is sent before its event is committed. A push is a row of the outbox, and the transaction that decided something
// also wrote its event. A [Relay] leases the row, sends the push outside any transaction, and completes the row as the
// holder of the lease. So a push is sent at least once, and carries what a phone needs to show it once.
package notify

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/notify/wakeup"
)

// Outbox holds the events and the pushes that a Relay sends; see pushes.Outbox.
type Outbox interface {
	LeaseEvents(ctx context.Context, limit int) ([]dispatch.EventID, error)
	ReleaseEvents(ctx context.Context, events ...dispatch.EventID) error
	Expand(ctx context.Context, events []dispatch.EventID, lease int) (outbox.Expansion, error)
	LeaseNotifications(ctx context.Context, limit int) (pushes []outbox.Push, dropped map[string]int, err error)
	RecordResults(ctx context.Context, results []outbox.SendResult, expanded []dispatch.EventID) error
}

// Poll tells when rows are due, as of a second or two ago; see poll.Poll.
type Poll interface {
	Due(ctx context.Context) (outbox.Due, error)
}

// Notifications tells operators what is due; see pushes.Notifications.
type Notifications interface {
	Backlog(ctx context.Context) (due int, oldest time.Duration, err error)
}

// Topics holds the audiences that a Relay subscribes and unsubscribes; see repository.Outbox.
type Topics interface {
	LeaseTopics(ctx context.Context, limit int) ([]outbox.Topic, error)
	TopicMembers(ctx context.Context, t outbox.Topic, limit int) ([]dispatch.Device, error)
	RecordMembers(ctx context.Context, t outbox.Topic, members, refused []dispatch.DeviceID) error
	CompleteTopic(ctx context.Context, t outbox.Topic) error
	CountTopics(ctx context.Context, after dispatch.DeviceID, limit int) (most int, last dispatch.DeviceID, err error)
}

// Devices records which tokens the push service accepts and which it calls dead; see devices.Devices.
type Devices interface {
	RecordVerdict(ctx context.Context, v outbox.Verdict, devices []dispatch.Device) (recorded int, err error)
}

// RelayOptions configure a Relay. The fields without a comment are required. Every other field has a default: a
// function that does nothing, a logger that discards, no metrics, or the number in its comment.
type RelayOptions struct {
	Outbox        Outbox
	Poll          Poll
	Notifications Notifications
	Topics        Topics
	Devices       Devices
	Sender        Sender
	// Publish sends the live stream an event that another process committed and may not have published.
	Publish func(dispatch.Dispatch, []dispatch.Event)
	// WakeOthers wakes the relays of other processes, because pushes are due.
	WakeOthers func()
	// Log gets warnings and alerts, Metrics what a Relay counts.
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// PollInterval is the interval between two polls of what is due: 1 s.
	PollInterval time.Duration
	// AttemptTimeout is the longest that one attempt may take: 16 s. A push whose lease ends sooner is released unsent.
	AttemptTimeout time.Duration
	// MaxAttempts is how many requests a push gets at most before it is dead: as many as there is time for.
	MaxAttempts int
	// RetryDelay is the least wait before a second attempt: 10 s.
	RetryDelay time.Duration
	// DrainTimeout is how long Run waits for attempts in flight after its loops have ended: 10 s.
	DrainTimeout time.Duration
	// QuotaPause is the pause after the push service reported a full quota without a Retry-After: 1 min.
	QuotaPause time.Duration
	// FailurePause is the first pause after several failures in a row: 1 s. It doubles until an attempt succeeds.
	FailurePause time.Duration
	// SuspicionGap is the least time between the two reports that quarantine a device: 1 min.
	SuspicionGap time.Duration
	// MaxInFlight is the largest number of requests in flight: 512.
	MaxInFlight int
}

const (
	defaultPoll    = time.Second
	defaultAttempt = 16 * time.Second
	defaultRetry   = 10 * time.Second
	defaultDrain   = 10 * time.Second
	// A push service that calls a living token dead by mistake has most likely recovered after a minute.
	defaultSuspicion = time.Minute
	// eventBatch and pushBatch bound one lease.
	eventBatch = 32
	pushBatch  = 256
	// urgentBatch bounds the events that one call expands: the push of the first waits until the last is written.
	urgentBatch = 16
	// gather is the least time from one such call to the next, unless so many wait: one call for many events costs little more than for
	// one.
	gather = 20 * time.Millisecond
	// committedBatch is how many pushes a call that expands events leases, so that no other query has to.
	committedBatch = 64
	// expanders is how many events that this process committed are expanded concurrently, beside one urgent event, and how many that others
	// left: the leader expands the events of all processes.
	expanders = 2
)

// Relay expands the events of the outbox into pushes and sends them. Any number of processes may run one on the same
// outbox.
type Relay struct {
	options  RelayOptions
	throttle *throttle
	results  *resultWriter
	tokens   *tokens
	metrics  *relayMetrics
	// These hold events: urgent those about a driver's own claim and committed the others that this process committed, completed those of
	// which all pushes are written.
	urgent, committed, completed chan dispatch.EventID
	// left passes events that this process has leased, and may not have committed. It has no buffer: a lease must not end in a queue.
	left    chan dispatch.EventID
	ready   *ready
	leasing sync.Mutex // held from a lease until its pushes are ready
	// Each of these wakes the loop that leases such rows.
	eventsDue, pushesDue, topicsDue wakeup.Signal
	// closedPlatforms can't be reached by the push service; each is tried again at its time.
	platformsMu     sync.Mutex
	closedPlatforms map[dispatch.Platform]time.Time
	failed          failedEvents
	// topicsNotBefore ends the pause of the calls for topics, topicPause is the next one. Only maintainTopics uses them.
	topicsNotBefore time.Time
	topicPause      time.Duration
	attempts        sync.WaitGroup
	// handOver passes a push to a goroutine that is idle after an attempt. Idle goroutines end after keepIdle, and when noMore is closed.
	handOver chan *outbox.Push
	noMore   chan struct{}
}

// NewRelay returns a Relay. It sends while Run is running.
func NewRelay(o RelayOptions) *Relay {
	o.PollInterval, o.AttemptTimeout = cmp.Or(o.PollInterval, defaultPoll), cmp.Or(o.AttemptTimeout, defaultAttempt)
	o.RetryDelay, o.DrainTimeout = cmp.Or(o.RetryDelay, defaultRetry), cmp.Or(o.DrainTimeout, defaultDrain)
	o.SuspicionGap = cmp.Or(o.SuspicionGap, defaultSuspicion)
	w, p := defaultLimits, defaultPauses
	p.quota, p.first = cmp.Or(o.QuotaPause, p.quota), cmp.Or(o.FailurePause, p.first)
	if o.MaxInFlight > 0 {
		w.max, w.start = float64(o.MaxInFlight), min(w.start, float64(o.MaxInFlight))
	}
	if o.Publish == nil {
		o.Publish = func(dispatch.Dispatch, []dispatch.Event) {}
	}
	if o.WakeOthers == nil {
		o.WakeOthers = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{
		options: o, throttle: newThrottle(w, p), topicPause: firstTopicPause,
		urgent: make(chan dispatch.EventID, committedQueue), committed: make(chan dispatch.EventID, committedQueue),
		completed: make(chan dispatch.EventID, committedQueue), left: make(chan dispatch.EventID),
		eventsDue: wakeup.New(), pushesDue: wakeup.New(), topicsDue: wakeup.New(), ready: newReady(),
		closedPlatforms: map[dispatch.Platform]time.Time{}, handOver: make(chan *outbox.Push),
	}
	r.metrics = newRelayMetrics(o.Metrics, r.throttle)
	return r
}

// Wake makes the Relay look at the outbox now. It never blocks.
func (r *Relay) Wake() {
	r.eventsDue.Set()
	r.pushesDue.Set()
}

// Run sends until ctx ends. Then it waits for the attempts in flight, and releases the leases of what it did not send. It
// may be called again after it has returned.
func (r *Relay) Run(ctx context.Context) {
	// Results of attempts in flight are recorded even after ctx has ended.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.results = newResultWriter(r.options.Outbox, r.completed, r.throttle, r.options.Log)
	r.tokens = newTokens(r.options.Devices, r.options.SuspicionGap, r.options.Log, r.metrics)
	r.noMore = make(chan struct{})
	var loops, writing, judging sync.WaitGroup
	writing.Go(func() { r.results.run(lasting) })
	judging.Go(func() { r.tokens.run(lasting) })
	for range expanders {
		loops.Go(func() { r.expandEach(ctx, lasting, r.committed, false) })
		loops.Go(func() { r.expandEach(ctx, lasting, r.left, true) })
	}
	loops.Go(func() { r.expandUrgent(ctx, lasting) })
	loops.Go(func() { r.leaseDue(ctx) })
	loops.Go(func() { r.lease(ctx, lasting) })
	loops.Go(func() { r.send(ctx, lasting) })
	loops.Go(func() { r.maintainTopics(ctx) })
	loops.Go(func() { r.watchBacklog(ctx) })
	loops.Go(func() { r.poll(ctx) })
	loops.Wait()

	close(r.noMore)
	late := time.AfterFunc(r.options.DrainTimeout, stop)
	defer late.Stop()
	r.releaseAll(anyPush, 0)
	r.attempts.Wait() // they end with lasting at the latest
	r.tokens.finish()
	judging.Wait()
	r.results.finish()
	writing.Wait()
	r.releaseEvents()
}

// releaseEvents releases the leases of these events, or of all if there are none, and reports whether that succeeded.
func (r *Relay) releaseEvents(events ...dispatch.EventID) bool {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := r.options.Outbox.ReleaseEvents(ctx, events...)
	if err != nil {
		r.options.Log.Warn("leased events not released; they will be expanded when their leases expire, or after another release",
			"error", err)
	}
	return err == nil
}

// releasePause is the least time between two releases of events whose expansion failed.
const releasePause = 5 * time.Second

// leaseDue leases due events, and passes them to expandEach. An event is due if no process leases it, or if its lease has ended: its
// process died, or failed to expand it.
func (r *Relay) leaseDue(ctx context.Context) {
	var released time.Time
	failing := false
	for ctx.Err() == nil {
		leased, err := r.options.Outbox.LeaseEvents(ctx, eventBatch)
		if err != nil && !failing && ctx.Err() == nil {
			r.options.Log.Warn("due events not leased; the relay tries again until they are", "error", err)
		}
		failing = err != nil
		if err == nil && time.Since(released) >= releasePause && r.failed.any() {
			released = time.Now()
			if events := r.failed.take(); !r.releaseEvents(events...) {
				r.failed.add(events)
			}
			continue
		}
		for _, event := range leased {
			select {
			case r.left <- event:
			case <-ctx.Done():
				return // Run releases the others
			}
		}
		if len(leased) < eventBatch {
			r.eventsDue.Wait(ctx)
		}
	}
}

// releaseSuperseded releases the waiting offers of dispatches that are no longer on offer. An offer that arrived after the
// push that ends it would replace that push on the phone.
func (r *Relay) releaseSuperseded(dispatches map[dispatch.ID]*dispatch.Dispatch) {
	if len(dispatches) == 0 {
		return
	}
	r.releaseAll(func(p *outbox.Push) bool {
		d := dispatches[p.Dispatch.ID]
		return d != nil && p.Type.IsOffer() && d.Superseded(p.Type, p.Silent, p.Driver, p.Round)
	}, 0)
}

// lease leases pushes and makes them ready, as many as the throttle has room for.
func (r *Relay) lease(ctx, lasting context.Context) {
	failing := false
	for ctx.Err() == nil {
		places := r.throttle.reserve(pushBatch, ahead, time.Now())
		if places == 0 {
			r.wait(ctx, r.throttle.room)
			continue
		}
		pushes, dropped, err := r.leaseBatch(lasting, places)
		leased := len(pushes)
		for why, n := range dropped {
			leased += n
			r.metrics.countDropped(why, n)
		}
		r.throttle.release(places - len(pushes))
		if err != nil && !failing && ctx.Err() == nil {
			r.options.Log.Warn("due notifications not leased or not read; the relay tries again until they are", "error", err)
		}
		failing = err != nil
		if leased < places {
			r.pushesDue.Wait(ctx)
			continue
		}
		r.awaitRoom(ctx)
	}
}

// leaseTimeout bounds one lease. A lease under way goes on when the Relay stops, as its pushes have to be released.
const leaseTimeout = 10 * time.Second

func (r *Relay) leaseBatch(ctx context.Context, places int) (pushes []outbox.Push, dropped map[string]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	r.leasing.Lock()
	defer r.leasing.Unlock()
	pushes, dropped, err = r.options.Outbox.LeaseNotifications(ctx, places)
	r.ready.add(fromBacklog, pushes)
	return pushes, dropped, err
}

// awaitRoom waits until the throttle has room for enough pushes to make a lease worth its transaction.
func (r *Relay) awaitRoom(ctx context.Context) {
	for ctx.Err() == nil && !r.throttle.worthLease(time.Now()) {
		r.wait(ctx, r.throttle.room)
	}
}

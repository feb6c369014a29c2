package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// Outbox is where a Relay finds what is to be told; see repository.Outbox.
type Outbox interface {
	LeaseEvents(ctx context.Context, limit int) ([]dispatch.EventID, error)
	GiveBackEvents(ctx context.Context) error
	Expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error)
	Lease(ctx context.Context, limit int) (pushes []outbox.Push, dropped map[string]int, err error)
	Settle(ctx context.Context, settled []outbox.SendResult) error
	Backlog(ctx context.Context) (due int, oldest time.Duration, err error)
}

// Topics is where a Relay finds whom to subscribe and unsubscribe; see repository.Outbox.
type Topics interface {
	LeaseTopics(ctx context.Context, limit int) ([]outbox.Topic, error)
	Members(ctx context.Context, t outbox.Topic, limit int) ([]dispatch.Device, error)
	SettleMembers(ctx context.Context, t outbox.Topic, members, refused []dispatch.DeviceID) error
	EndTopic(ctx context.Context, t outbox.Topic) error
}

// Devices is told which tokens are taken and which are said to be dead; see repository.Store.
type Devices interface {
	Trust(ctx context.Context, devices []dispatch.Device) error
	Suspect(ctx context.Context, devices []dispatch.Device) error
	Quarantine(ctx context.Context, dead []dispatch.Device) error
}

// RelayOptions are what a Relay stands on. Times that are 0 have defaults.
type RelayOptions struct {
	Outbox  Outbox
	Topics  Topics
	Devices Devices
	Sender  Sender
	// Publish tells the live stream of what another process has committed and may not have told; nil for none.
	Publish func(dispatch.Dispatch, []dispatch.Event)
	// WakeOthers tells other processes that something is due; nil for none.
	WakeOthers func()
	Log        *slog.Logger
	Metrics    prometheus.Registerer // nil for none
	// Poll is how often the outbox is looked at when nobody says that something is due.
	Poll time.Duration
	// Attempt is how long one attempt may take: a lease that ends sooner is given back unused.
	Attempt time.Duration
	// Retry is the least wait before a second attempt.
	Retry time.Duration
	// Drain is how long attempts under way may take to end when the Relay is to stop.
	Drain time.Duration
	// Quota is how long nothing is sent after the push service said too many, where it does not say how long.
	Quota time.Duration
	// Pause is how long nothing is sent after several attempts in a row have failed. It doubles until one succeeds.
	Pause time.Duration
	// Suspicion is the least time between the two verdicts that quarantine a device. What else is kept of dead tokens is
	// kept for so many times as long.
	Suspicion time.Duration
	// Width is how many requests are under way at most.
	Width int
}

const (
	defaultPoll    = time.Second
	defaultAttempt = 16 * time.Second
	defaultRetry   = 10 * time.Second
	defaultDrain   = 10 * time.Second
	// What a push service says of a living token by mistake is most likely over after a minute.
	defaultSuspicion = time.Minute
	// committedQueue bounds what this process has committed and not yet expanded. What is over is due when its lease ends.
	committedQueue = 4096
	// eventBatch and pushesAtOnce bound one lease.
	eventBatch = 32
	pushBatch  = 256
	// committedBatch is how many of an event's pushes go straight from its expansion to the push service.
	committedBatch = 64
	// expanders is how many events are expanded at a time, beside one that somebody is told of whose job it is.
	expanders = 2
)

// Relay sends what the outbox holds. Any number of processes may run one on the same outbox.
type Relay struct {
	RelayOptions
	throttle   *throttle
	results    *resultWriter
	deadTokens *deadTokens
	suspects   *suspectQueue
	metrics    *relayMetrics
	// urgent are the events that somebody is told of whose job it is, and fresh are all others: what is committed here.
	urgent, committed chan dispatch.EventID
	pushesDue         chan struct{} // notifications
	eventsDue         chan struct{}
	ready             *lanes
	leasing           sync.Mutex // held from a lease until what it has found is ready
	// platforms are closed until then, because the push service can't reach them.
	platformsMu     sync.Mutex
	closedPlatforms map[dispatch.Platform]time.Time
	// expandFailed says that an event that is leased here could not be expanded.
	expandFailed atomic.Bool
	attempts     sync.WaitGroup
}

// NewRelay returns a Relay; Run makes it work.
func NewRelay(o RelayOptions) *Relay {
	o.Poll, o.Attempt = cmp.Or(o.Poll, defaultPoll), cmp.Or(o.Attempt, defaultAttempt)
	o.Retry, o.Drain = cmp.Or(o.Retry, defaultRetry), cmp.Or(o.Drain, defaultDrain)
	o.Suspicion = cmp.Or(o.Suspicion, defaultSuspicion)
	w, p := defaultLimits, defaultPauses
	p.quota, p.first = cmp.Or(o.Quota, p.quota), cmp.Or(o.Pause, p.first)
	if o.Width > 0 {
		w.max, w.start = float64(o.Width), min(w.start, float64(o.Width))
	}
	r := &Relay{
		RelayOptions: o, throttle: newThrottle(w, p),
		urgent: make(chan dispatch.EventID, committedQueue), committed: make(chan dispatch.EventID, committedQueue),
		pushesDue: make(chan struct{}, 1), eventsDue: make(chan struct{}, 1), ready: newLanes(), closedPlatforms: map[dispatch.Platform]time.Time{},
	}
	r.metrics = newRelayMetrics(o.Metrics, r.throttle)
	return r
}

// Committed hands over what this process has committed, and has leased as it wrote it. It never blocks.
func (r *Relay) Committed(_ dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		to := r.committed
		if tellings := e.Deliveries(); len(tellings) > 0 && tellings[0].To == dispatch.ToClaimant {
			to = r.urgent
		}
		r.enqueue(to, e.ID)
	}
}

func (r *Relay) enqueue(to chan<- dispatch.EventID, event dispatch.EventID) {
	select {
	case to <- event:
	default:
		r.metrics.overflow.Inc()
	}
}

// Wake says that something may be due. It never blocks.
func (r *Relay) Wake() {
	wakeUp(r.eventsDue)
	wakeUp(r.pushesDue)
}

// Run sends until ctx ends, then lets the attempts under way end, and gives back what it has leased and not sent. It
// may be run again afterwards.
func (r *Relay) Run(ctx context.Context) {
	// What is under way when ctx ends is settled all the same.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.results = newResultWriter(r.Outbox, r.throttle, r.Log)
	judged := newVerdictWriter(r.Devices, r.Log, r.metrics)
	r.deadTokens = newDeadTokens(judged, r.throttle, r.Suspicion, r.Log, r.metrics)
	r.suspects = newSuspectQueue(r.Suspicion)
	var loops, writing, judging sync.WaitGroup
	writing.Go(func() { r.results.run(lasting) })
	judging.Go(func() { judged.run(lasting) })
	for range expanders {
		loops.Go(func() { r.expandCommitted(ctx, lasting, r.committed) })
	}
	loops.Go(func() { r.expandCommitted(ctx, lasting, r.urgent) })
	loops.Go(func() { r.expandDue(ctx, lasting) })
	loops.Go(func() { r.lease(ctx, lasting) })
	loops.Go(func() { r.send(ctx, lasting) })
	loops.Go(func() { r.sendSuspects(ctx, lasting) })
	loops.Go(func() { r.maintainTopics(ctx) })
	loops.Go(func() { r.watchBacklog(ctx) })
	loops.Wait()

	r.releaseAll(anyPush, 0)
	r.releaseSuspects()
	late := time.AfterFunc(r.Drain, stop)
	defer late.Stop()
	r.attempts.Wait() // attempts end with their context
	judged.finish()
	judging.Wait()
	r.results.finish()
	writing.Wait()
	r.releaseEvents()
}

func (r *Relay) releaseEvents() {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if err := r.Outbox.GiveBackEvents(ctx); err != nil {
		r.Log.Warn("events leased here are told of when the lease has ended", "error", err)
	}
}

// expandCommitted expands what this process has committed.
func (r *Relay) expandCommitted(ctx, lasting context.Context, fresh <-chan dispatch.EventID) {
	for {
		select {
		case event := <-fresh:
			r.expand(lasting, event, false)
		case <-ctx.Done():
			return
		}
	}
}

// releasePause is how often at most what failed is due again before its lease ends.
const releasePause = 5 * time.Second

// expandDue expands what is due: what another process left, and what failed here while the database was away.
func (r *Relay) expandDue(ctx, lasting context.Context) {
	var again time.Time
	for ctx.Err() == nil {
		leased, err := r.Outbox.LeaseEvents(ctx, eventBatch)
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("can't look for events to tell of", "error", err)
		}
		if err == nil && time.Since(again) >= releasePause && r.expandFailed.CompareAndSwap(true, false) {
			again = time.Now()
			r.releaseEvents()
			continue
		}
		for i, event := range leased {
			if ctx.Err() != nil && i > 0 {
				return // GiveBackEvents has the rest
			}
			r.expand(lasting, event, true)
		}
		if len(leased) < eventBatch {
			r.wait(ctx, r.eventsDue)
		}
	}
}

// expandTime bounds the expansion of one event, or of a part of one that many are told of.
const expandTime = 10 * time.Second

func (r *Relay) expand(ctx context.Context, event dispatch.EventID, late bool) {
	ctx, cancel := context.WithTimeout(ctx, expandTime)
	defer cancel()
	places := r.throttle.reserve(committedBatch, aheadCommitted, time.Now())
	told, err := r.Outbox.Expand(ctx, event, places)
	r.throttle.release(places - len(told.Pushes))
	switch {
	case errors.Is(err, dispatch.ErrNotLeased):
		return
	case err != nil:
		r.expandFailed.Store(true)
		r.Log.Error("an event could not be told of and is tried again", "event", event, "error", err)
		return
	}
	if late && r.Publish != nil {
		r.Publish(told.Dispatch, []dispatch.Event{told.Event})
	}
	r.metrics.countDropped("superseded", told.Dropped)
	overtakes := !told.Event.Type.IsOffer() && told.Event.Type != dispatch.EventCreated
	if overtakes {
		r.releaseSuperseded(&told.Dispatch)
	}
	r.ready.add(told.Pushes)
	if overtakes {
		r.leasing.Lock() // what is being leased may have been read before
		r.releaseSuperseded(&told.Dispatch)
		r.leasing.Unlock()
	}
	if told.More {
		r.enqueue(r.committed, event) // behind all that wait
	}
	if told.Left > 0 {
		wakeUp(r.pushesDue)
		if r.WakeOthers != nil {
			r.WakeOthers()
		}
	}
}

// releaseSuperseded gives back the offers of a dispatch that wait for the channel and are over. What tells so overtakes them: one
// that came after it would take its place on the phone.
func (r *Relay) releaseSuperseded(d *dispatch.Dispatch) {
	r.releaseAll(func(p *outbox.Push) bool {
		return p.Dispatch.ID == d.ID && p.Type.IsOffer() && d.Superseded(p.Type, p.Silent, p.Driver, p.Round)
	}, 0)
}

// lease keeps as many pushes ready as the channel takes.
func (r *Relay) lease(ctx, lasting context.Context) {
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
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("can't look for notifications to send", "error", err)
		}
		if leased < places {
			r.wait(ctx, r.pushesDue)
			continue
		}
		r.awaitRoom(ctx)
	}
}

// leaseTime bounds one lease. It does not end with the Relay: what was leased by then has to be given back.
const leaseTime = 10 * time.Second

func (r *Relay) leaseBatch(ctx context.Context, places int) (pushes []outbox.Push, dropped map[string]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	r.leasing.Lock()
	defer r.leasing.Unlock()
	pushes, dropped, err = r.Outbox.Lease(ctx, places)
	r.ready.add(pushes)
	return pushes, dropped, err
}

// awaitRoom waits until a lease is worth its transaction.
func (r *Relay) awaitRoom(ctx context.Context) {
	for ctx.Err() == nil && !r.throttle.worthLease(time.Now()) {
		r.wait(ctx, r.throttle.room)
	}
}

// wait waits for c, at most about as long as Poll says: not all processes at the same time.
func (r *Relay) wait(ctx context.Context, c <-chan struct{}) {
	t := time.NewTimer(r.Poll*3/4 + rand.N(r.Poll/2))
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
}

// wakeUp leaves a value in c, which has room for one, unless one is there.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

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
	// freshEvents bounds what this process has committed and not yet expanded. What is over is due when its lease ends.
	freshEvents = 4096
	// eventsAtOnce and pushesAtOnce bound one lease.
	eventsAtOnce = 32
	pushesAtOnce = 256
	// freshAtOnce is how many of an event's pushes go straight from its expansion to the push service.
	freshAtOnce = 64
	// expanders is how many events are expanded at a time, beside one that somebody is told of whose job it is.
	expanders = 2
)

// Relay sends what the outbox holds. Any number of processes may run one on the same outbox.
type Relay struct {
	RelayOptions
	channel *channel
	settler *settler
	tokens  *tokens
	aside   *aside
	metrics *relayMetrics
	// own are the events that somebody is told of whose job it is, and fresh are all others: what is committed here.
	own, fresh chan dispatch.EventID
	due        chan struct{} // notifications
	events     chan struct{}
	ready      *lanes
	leasing    sync.Mutex // held from a lease until what it has found is ready
	// platforms are closed until then, because the push service can't reach them.
	platformsMu sync.Mutex
	platforms   map[dispatch.Platform]time.Time
	// failed says that an event that is leased here could not be expanded.
	failed  atomic.Bool
	running sync.WaitGroup
}

// NewRelay returns a Relay; Run makes it work.
func NewRelay(o RelayOptions) *Relay {
	o.Poll, o.Attempt = cmp.Or(o.Poll, defaultPoll), cmp.Or(o.Attempt, defaultAttempt)
	o.Retry, o.Drain = cmp.Or(o.Retry, defaultRetry), cmp.Or(o.Drain, defaultDrain)
	o.Suspicion = cmp.Or(o.Suspicion, defaultSuspicion)
	w, p := defaultWidth, defaultPauses
	p.quota, p.first = cmp.Or(o.Quota, p.quota), cmp.Or(o.Pause, p.first)
	if o.Width > 0 {
		w.max, w.start = float64(o.Width), min(w.start, float64(o.Width))
	}
	r := &Relay{
		RelayOptions: o, channel: newChannel(w, p),
		own: make(chan dispatch.EventID, freshEvents), fresh: make(chan dispatch.EventID, freshEvents),
		due: make(chan struct{}, 1), events: make(chan struct{}, 1), ready: newLanes(), platforms: map[dispatch.Platform]time.Time{},
	}
	r.metrics = newRelayMetrics(o.Metrics, r.channel)
	return r
}

// Committed hands over what this process has committed, and has leased as it wrote it. It never blocks.
func (r *Relay) Committed(_ dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		to := r.fresh
		if tellings := e.Deliveries(); len(tellings) > 0 && tellings[0].To == dispatch.ToClaimant {
			to = r.own
		}
		r.toExpand(to, e.ID)
	}
}

func (r *Relay) toExpand(to chan<- dispatch.EventID, event dispatch.EventID) {
	select {
	case to <- event:
	default:
		r.metrics.overflow.Inc()
	}
}

// Wake says that something may be due. It never blocks.
func (r *Relay) Wake() {
	wakeUp(r.events)
	wakeUp(r.due)
}

// Run sends until ctx ends, then lets the attempts under way end, and gives back what it has leased and not sent. It
// may be run again afterwards.
func (r *Relay) Run(ctx context.Context) {
	// What is under way when ctx ends is settled all the same.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.settler = newSettler(r.Outbox, r.channel, r.Log)
	judged := newVerdicts(r.Devices, r.Log, r.metrics)
	r.tokens = newTokens(judged, r.channel, r.Suspicion, r.Log, r.metrics)
	r.aside = newAside(r.Suspicion)
	var loops, writing, judging sync.WaitGroup
	writing.Go(func() { r.settler.run(lasting) })
	judging.Go(func() { judged.run(lasting) })
	for range expanders {
		loops.Go(func() { r.expandFresh(ctx, lasting, r.fresh) })
	}
	loops.Go(func() { r.expandFresh(ctx, lasting, r.own) })
	loops.Go(func() { r.expandDue(ctx, lasting) })
	loops.Go(func() { r.lease(ctx, lasting) })
	loops.Go(func() { r.send(ctx, lasting) })
	loops.Go(func() { r.try(ctx, lasting) })
	loops.Go(func() { r.keepTopics(ctx) })
	loops.Go(func() { r.watchBacklog(ctx) })
	loops.Wait()

	r.giveBackAll(all, 0)
	r.leaveAside()
	late := time.AfterFunc(r.Drain, stop)
	defer late.Stop()
	r.running.Wait() // attempts end with their context
	judged.finish()
	judging.Wait()
	r.settler.finish()
	writing.Wait()
	r.giveBackEvents()
}

func (r *Relay) giveBackEvents() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if err := r.Outbox.GiveBackEvents(ctx); err != nil {
		r.Log.Warn("events leased here are told of when the lease has ended", "error", err)
	}
}

// expandFresh expands what this process has committed.
func (r *Relay) expandFresh(ctx, lasting context.Context, fresh <-chan dispatch.EventID) {
	for {
		select {
		case event := <-fresh:
			r.expand(lasting, event, false)
		case <-ctx.Done():
			return
		}
	}
}

// againPause is how often at most what failed is due again before its lease ends.
const againPause = 5 * time.Second

// expandDue expands what is due: what another process left, and what failed here while the database was away.
func (r *Relay) expandDue(ctx, lasting context.Context) {
	var again time.Time
	for ctx.Err() == nil {
		leased, err := r.Outbox.LeaseEvents(ctx, eventsAtOnce)
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("can't look for events to tell of", "error", err)
		}
		if err == nil && time.Since(again) >= againPause && r.failed.CompareAndSwap(true, false) {
			again = time.Now()
			r.giveBackEvents()
			continue
		}
		for i, event := range leased {
			if ctx.Err() != nil && i > 0 {
				return // GiveBackEvents has the rest
			}
			r.expand(lasting, event, true)
		}
		if len(leased) < eventsAtOnce {
			r.wait(ctx, r.events)
		}
	}
}

// expandTime bounds the expansion of one event, or of a part of one that many are told of.
const expandTime = 10 * time.Second

func (r *Relay) expand(ctx context.Context, event dispatch.EventID, late bool) {
	ctx, cancel := context.WithTimeout(ctx, expandTime)
	defer cancel()
	places := r.channel.reserve(freshAtOnce, aheadFresh, time.Now())
	told, err := r.Outbox.Expand(ctx, event, places)
	r.channel.release(places - len(told.Pushes))
	switch {
	case errors.Is(err, dispatch.ErrNotLeased):
		return
	case err != nil:
		r.failed.Store(true)
		r.Log.Error("an event could not be told of and is tried again", "event", event, "error", err)
		return
	}
	if late && r.Publish != nil {
		r.Publish(told.Dispatch, []dispatch.Event{told.Event})
	}
	r.metrics.dropped("superseded", told.Dropped)
	overtakes := !told.Event.Type.IsOffer() && told.Event.Type != dispatch.EventCreated
	if overtakes {
		r.overtake(&told.Dispatch)
	}
	r.ready.add(told.Pushes)
	if overtakes {
		r.leasing.Lock() // what is being leased may have been read before
		r.overtake(&told.Dispatch)
		r.leasing.Unlock()
	}
	if told.More {
		r.toExpand(r.fresh, event) // behind all that wait
	}
	if told.Left > 0 {
		wakeUp(r.due)
		if r.WakeOthers != nil {
			r.WakeOthers()
		}
	}
}

// overtake gives back the offers of a dispatch that wait for the channel and are over. What tells so overtakes them: one
// that came after it would take its place on the phone.
func (r *Relay) overtake(d *dispatch.Dispatch) {
	r.giveBackAll(func(p *outbox.Push) bool {
		return p.Dispatch.ID == d.ID && p.Type.IsOffer() && d.Superseded(p.Type, p.Silent, p.Driver, p.Round)
	}, 0)
}

// lease keeps as many pushes ready as the channel takes.
func (r *Relay) lease(ctx, lasting context.Context) {
	for ctx.Err() == nil {
		places := r.channel.reserve(pushesAtOnce, ahead, time.Now())
		if places == 0 {
			r.wait(ctx, r.channel.roomy)
			continue
		}
		pushes, dropped, err := r.leaseOnce(lasting, places)
		leased := len(pushes)
		for why, n := range dropped {
			leased += n
			r.metrics.dropped(why, n)
		}
		r.channel.release(places - len(pushes))
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("can't look for notifications to send", "error", err)
		}
		if leased < places {
			r.wait(ctx, r.due)
			continue
		}
		r.awaitRoom(ctx)
	}
}

// leaseTime bounds one lease. It does not end with the Relay: what was leased by then has to be given back.
const leaseTime = 10 * time.Second

func (r *Relay) leaseOnce(ctx context.Context, places int) (pushes []outbox.Push, dropped map[string]int, err error) {
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
	for ctx.Err() == nil && !r.channel.worthwhile(time.Now()) {
		r.wait(ctx, r.channel.roomy)
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

// Package stream is the live stream: every instance sends the events of dispatches to its connected drivers and admins as
// server-sent events. Redis carries the events from the instance that committed them to the others.
package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/notify/wakeup"
)

// Reasons why there is no stream, or no longer.
var (
	// ErrClosed says that the instance is going away.
	ErrClosed = errors.New("the live streams are closed")
	// ErrFull says that there are as many streams as the instance can have.
	ErrFull = errors.New("too many live streams")
	// ErrReplaced says that the caller has opened more streams than one may have: the oldest makes room.
	ErrReplaced = errors.New("a newer stream has taken the place")
	// ErrLagging says that the client has not kept up.
	ErrLagging = errors.New("the client does not keep up")
)

// Options are what a Hub stands on. What is zero has a default.
type Options struct {
	// Redis joins the instances; nil for one alone. It must heed contexts (ContextTimeoutEnabled). One of its connections
	// is always in use. A call that takes longer than its timeouts, or a second, counts as Redis being away.
	Redis redis.UniversalClient
	// OnWake is called after Wake, on this instance or another: there may be something due in the outbox. It must return at
	// once. Calls may be merged.
	OnWake  func()
	Metrics prometheus.Registerer
	Log     *slog.Logger
	Now     func() time.Time

	// Ring is how many messages are kept to resume from: 8,192. A stream that is further behind is cut.
	Ring int
	// Queue is how many events may be on their way to Redis: 4,096.
	Queue int
	// Streams, PerDriver and PerKey are how many streams there may be: 20,000, 8 and 64.
	Streams, PerDriver, PerKey int
	// Heartbeat is how often an idle stream is written to, give or take a sixth: 12 s.
	Heartbeat time.Duration
	// Lifetime is how long a stream lasts, give or take a sixth: 1 h. After it credentials are checked again.
	Lifetime time.Duration
}

// Hub tells the open streams what has happened, here and on the other instances. All instances tell the same messages
// in the same order under the same ids, so that a client may move from one to another.
//
// While Redis is away, an instance tells its own streams what it does itself. When Redis is back, or whenever something
// may have been missed, every stream is told to read again.
//
// Safe for concurrent use. Nothing is told unless Run is running.
type Hub struct {
	Options
	metrics       *hubMetrics
	queue         *queue
	bus           *bus          // nil without Redis
	batch         int           // how many messages are told at once
	loaded        chan struct{} // closed when Redis has been tried once
	wakeRequested wakeup.Signal // holds a value when a wake is

	mu      sync.RWMutex // guards what follows, and the streams' positions
	closed  bool
	ring    *ring
	streams []*Stream
	byOwner map[string][]*Stream // the oldest first
	ids     localIDs
}

// NewHub returns a hub that Run makes work.
func NewHub(o Options) *Hub {
	o.Ring, o.Queue = cmp.Or(o.Ring, 8192), cmp.Or(o.Queue, 4096)
	o.Streams, o.PerDriver, o.PerKey = cmp.Or(o.Streams, 20_000), cmp.Or(o.PerDriver, 8), cmp.Or(o.PerKey, 64)
	o.Heartbeat, o.Lifetime = cmp.Or(o.Heartbeat, 12*time.Second), cmp.Or(o.Lifetime, time.Hour)
	if o.OnWake == nil {
		o.OnWake = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hub{
		Options: o, metrics: newHubMetrics(o.Metrics), queue: newQueue(o.Queue), batch: max(1, min(256, o.Ring/4)),
		loaded: make(chan struct{}), wakeRequested: wakeup.New(), byOwner: map[string][]*Stream{},
		// Starting anywhere, an id is neither another process's nor one of Redis's, which count from 0.
		ids: localIDs{n: 1<<32 + rand.Uint64N(1<<32)},
	}
	h.ring = newRing(o.Ring, h.ids.next(o.Now()))
	if o.Redis == nil {
		close(h.loaded)
	} else {
		h.bus = &bus{client: o.Redis, origin: dispatch.Unique("", o.Now())}
	}
	return h
}

// localIDs makes ids in the form of Redis's that nobody else makes.
type localIDs struct{ ms, n uint64 }

func (l *localIDs) next(now time.Time) string {
	l.ms = max(l.ms, uint64(now.UnixMilli()))
	l.n++
	return strconv.FormatUint(l.ms, 10) + "-" + strconv.FormatUint(l.n, 10)
}

// Publish tells what has been committed: events, and the dispatch as they left it. It never waits. Events for which
// there is no room are counted, and every stream is told to read again. An event that is published again is told once.
func (h *Hub) Publish(d dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		h.enqueue(&entry{kind: kindEvent, event: newAnnouncement(d, e)})
	}
}

// DriverChanged makes the driver's open streams, here and elsewhere, go by v: duty, suspension, regions, vehicle. An
// older version than what a stream goes by changes nothing. It never waits.
func (h *Hub) DriverChanged(v dispatch.Driver) {
	h.enqueue(&entry{kind: kindDriver, driver: profileOf(v)})
}

func (h *Hub) enqueue(e *entry) {
	if !h.queue.push(e) {
		h.metrics.overflow.Inc()
	}
}

// Wake makes OnWake be called on every instance, soon. It never waits; calls within 5 ms are one.
func (h *Hub) Wake() { h.wakeRequested.Set() }

const wakeEvery = 5 * time.Millisecond

// Run tells what is published until ctx ends, then closes the hub and gives what is on its way to Redis one more
// second. It returns when everything that it started has ended.
func (h *Hub) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer h.Close()
	if h.bus != nil {
		running.Go(func() { h.follow(ctx) })
	}
	running.Go(func() { h.forwardWakes(ctx) })
	lasting := context.WithoutCancel(ctx) // what is on its way to Redis when ctx ends, nobody would send again
	for {
		select {
		case <-ctx.Done():
			h.drain(lasting)
			return
		case <-h.queue.ready:
			h.drain(lasting)
		}
	}
}

// drain tells what is in the queue, by way of Redis if it is there.
func (h *Hub) drain(ctx context.Context) {
	for {
		entries, apart := h.queue.next(h.batch)
		if len(entries) == 0 {
			return
		}
		switch {
		case apart:
			h.deliverLocally(entries)
		default:
			h.goLocal(h.bus.append(ctx, entries))
		}
	}
}

// goLocal makes the instance tell its streams by itself until follow has found Redis again. Without an error it does
// nothing.
func (h *Hub) goLocal(err error) {
	if err != nil && h.queue.enterLocal() {
		h.metrics.outages.Inc()
		h.Log.Warn("the live stream goes on without redis, on this instance only", "error", err)
	}
}

// deliverLocally tells this instance's streams. With Redis, entries stay in the queue for the others.
func (h *Hub) deliverLocally(entries []*entry) {
	h.mu.Lock()
	var messages []*message
	for _, e := range entries {
		switch {
		case e.delivered:
		case e.kind == kindEvent:
			messages = append(messages, newMessage(h.ids.next(h.Now()), e.event))
		case e.kind == kindDriver:
			h.updateDriver(e.driver)
		case e.kind == kindGap:
			messages = append(messages, resyncMessage(h.ids.next(h.Now())))
		}
	}
	h.deliver(messages)
	h.mu.Unlock()
	if h.bus == nil {
		h.queue.confirm(entries[len(entries)-1].n)
	} else {
		h.queue.markDelivered(entries)
	}
}

// forwardWakes passes wakes on, a few at a time.
func (h *Hub) forwardWakes(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-h.wakeRequested:
		}
		h.OnWake()
		if h.bus != nil && !h.queue.localOnly() {
			h.goLocal(h.bus.append(ctx, []*entry{{kind: kindWake}}))
		}
		pause.Reset(wakeEvery)
	}
}

// Close ends all streams and refuses new ones, so that a server can shut down. Publishing goes on until Run ends.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for len(h.streams) > 0 {
		h.remove(h.streams[len(h.streams)-1], ErrClosed)
	}
}

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

// Reasons why a stream could not be opened, or ended.
var (
	// ErrClosed says that the instance is shutting down.
	ErrClosed = errors.New("the live streams are closed")
	// ErrFull says that the instance has as many streams as it may have.
	ErrFull = errors.New("too many live streams")
	// ErrReplaced says that the caller opened more streams than one caller may have, which ends the oldest.
	ErrReplaced = errors.New("a newer stream has taken the place")
	// ErrLagging says that the client did not keep up.
	ErrLagging = errors.New("the client does not keep up")
)

// Options configure a Hub. No field is required: the defaults are no Redis, a function that does nothing, no metrics, a
// logger that discards, time.Now, and the numbers in the comments.
type Options struct {
	// Redis connects the instances; nil for a single one. The client must heed contexts (ContextTimeoutEnabled). The hub
	// always occupies one of its connections. A call that exceeds the client's timeouts or RedisTimeout counts as an outage.
	Redis redis.UniversalClient
	// Namespace begins the stream's name in Redis. The hubs with the same one deliver each other's events.
	Namespace string
	// RedisTimeout is how long Redis may take to answer: 1 s. A client that opens a stream waits no longer than that for the
	// messages to resume from.
	RedisTimeout time.Duration
	// OnWakeRelay is called after WakeRelays on any instance, as pushes may be due in the outbox. It must not block. One call may
	// stand for several wakes.
	OnWakeRelay func()
	Metrics     prometheus.Registerer
	Log         *slog.Logger
	Now         func() time.Time

	// RingSize is the number of messages kept for clients that resume: 8,192. A stream that lags further behind ends.
	RingSize int
	// Retention is how long Redis keeps messages: 1 h. An instance that starts fills its ring with them.
	Retention time.Duration
	// QueueSize is the number of events that may wait for Redis: 4,096.
	QueueSize int
	// MaxStreams, MaxPerDriver and MaxPerKey limit the number of open streams: 20,000, 8 and 64.
	MaxStreams, MaxPerDriver, MaxPerKey int
	// Heartbeat is the interval of writes to an idle stream, plus or minus a sixth: 12 s.
	Heartbeat time.Duration
	// Lifetime is how long a stream lasts, plus or minus a sixth: 1 h. The client's credentials are checked again after it.
	Lifetime time.Duration
}

// Hub delivers the events of all instances to the open streams of this one. All instances deliver the same messages in the
// same order with the same ids, so a client may resume on another instance.
//
// While Redis is unreachable the hub is in local-only mode: it delivers the events of its own instance. When Redis is
// back, or when messages may have been lost, every stream gets a resync: the client has to read its data again.
//
// A Hub is safe for concurrent use. It delivers only while Run is running.
type Hub struct {
	options       Options
	metrics       *hubMetrics
	queue         *queue
	bus           *bus          // nil without Redis
	batchSize     int           // how many entries are delivered at once
	loaded        chan struct{} // closed when Redis was tried once
	wakeRequested wakeup.Signal
	reloads       chan struct{}   // a place for each stream that loads its driver again
	ended         chan struct{}   // closed when the hub and all its streams are closed
	lasting       context.Context // of the streams on connections: its end closes these
	endLasting    context.CancelFunc
	mu            sync.RWMutex // guards what follows, and the streams' positions
	closed        bool
	opened        int // streams that are not closed
	ring          *ring
	streams       []*Stream
	byOwner       map[string][]*Stream // the oldest first
	ids           localIDs
}

// NewHub returns a hub. It delivers while Run is running.
func NewHub(o Options) *Hub {
	o.RingSize, o.QueueSize = cmp.Or(o.RingSize, 8192), cmp.Or(o.QueueSize, 4096)
	o.MaxStreams, o.MaxPerDriver, o.MaxPerKey = cmp.Or(o.MaxStreams, 20_000), cmp.Or(o.MaxPerDriver, 8), cmp.Or(o.MaxPerKey, 64)
	o.RedisTimeout, o.Retention = cmp.Or(o.RedisTimeout, time.Second), cmp.Or(o.Retention, time.Hour)
	o.Heartbeat, o.Lifetime = cmp.Or(o.Heartbeat, 12*time.Second), cmp.Or(o.Lifetime, time.Hour)
	if o.OnWakeRelay == nil {
		o.OnWakeRelay = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hub{
		options: o, metrics: newHubMetrics(o.Metrics), queue: newQueue(o.QueueSize), batchSize: max(1, min(256, o.RingSize/4)),
		loaded: make(chan struct{}), wakeRequested: wakeup.New(), byOwner: map[string][]*Stream{},
		ended: make(chan struct{}), reloads: make(chan struct{}, maxReloads),
		// A random start keeps the ids apart from those of other processes and of Redis, which counts from 0.
		ids: localIDs{n: 1<<32 + rand.Uint64N(1<<32)},
	}
	h.lasting, h.endLasting = context.WithCancel(context.Background())
	h.ring = newRing(o.RingSize, h.ids.next(o.Now()))
	if o.Redis == nil {
		close(h.loaded)
	} else {
		h.bus = &bus{client: o.Redis, key: o.Namespace + ":stream", origin: dispatch.NewUniqueID("", o.Now()), timeout: o.RedisTimeout}
	}
	return h
}

// localIDs makes ids in the form of Redis's, unique among all instances.
type localIDs struct{ ms, n uint64 }

func (l *localIDs) next(now time.Time) string {
	l.ms = max(l.ms, uint64(now.UnixMilli()))
	l.n++
	return strconv.FormatUint(l.ms, 10) + "-" + strconv.FormatUint(l.n, 10)
}

// Publish delivers committed events to the streams of all instances, with the dispatch as they left it. It never blocks. If
// there is no room for an event, it is counted, and every stream gets a resync. An event that is published twice is
// delivered once.
func (h *Hub) Publish(d dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		h.enqueue(&entry{kind: kindEvent, event: newAnnouncement(d, e)})
	}
}

// DriverChanged makes the driver's open streams on all instances filter by v: duty, suspension, regions, vehicle. It never
// blocks. An older version than the one that a stream has changes nothing.
func (h *Hub) DriverChanged(v dispatch.Driver) {
	h.enqueue(&entry{kind: kindDriver, driver: profileOf(v)})
}

func (h *Hub) enqueue(e *entry) {
	if !h.queue.push(e) {
		h.metrics.overflow.Inc()
	}
}

// WakeRelays makes every instance call its OnWakeRelay soon. It never blocks. Calls within 5 ms count as one.
func (h *Hub) WakeRelays() { h.wakeRequested.Set() }

const wakeEvery = 5 * time.Millisecond

// Run delivers published events until ctx ends. Then it closes the hub, and sends the events that still wait. It returns when all streams
// are closed and all goroutines of the hub have ended.
func (h *Hub) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer func() { <-h.ended }()
	defer h.Close()
	if h.bus != nil {
		running.Go(func() { h.follow(ctx) })
	}
	running.Go(func() { h.forwardWakes(ctx) })
	lasting := context.WithoutCancel(ctx) // nobody else would send the events that wait for Redis when ctx ends
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

// drain delivers the entries of the queue, through Redis or in local-only mode.
func (h *Hub) drain(ctx context.Context) {
	for {
		entries, local := h.queue.next(h.batchSize)
		switch {
		case len(entries) == 0:
			return
		case local:
			h.deliverLocally(entries)
		default:
			h.goLocal(h.bus.append(ctx, entries))
		}
	}
}

// goLocal enters local-only mode, which lasts until follow has reconnected to Redis. It does nothing if err is nil.
func (h *Hub) goLocal(err error) {
	if err != nil && h.queue.enterLocal() {
		h.metrics.outages.Inc()
		h.options.Log.Warn("live stream lost Redis; clients get the events of this instance only until Redis is back", "error", err)
	}
}

// Degraded reports whether clients get the events of this instance only, because Redis is unavailable.
func (h *Hub) Degraded() bool { return h.bus != nil && h.queue.localOnly() }

// deliverLocally delivers entries to this instance's streams. With Redis they stay in the queue for the others.
func (h *Hub) deliverLocally(entries []*entry) {
	h.mu.Lock()
	var messages []*message
	for _, e := range entries {
		switch {
		case e.delivered:
		case e.kind == kindEvent:
			messages = append(messages, newMessage(h.ids.next(h.options.Now()), e.event))
		case e.kind == kindDriver:
			h.updateDriver(e.driver)
		case e.kind == kindGap:
			messages = append(messages, resyncMessage(h.ids.next(h.options.Now())))
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

// forwardWakes calls OnWakeRelay and wakes the other instances, at most every wakeEvery.
func (h *Hub) forwardWakes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wakeRequested:
		}
		h.options.OnWakeRelay()
		if h.bus != nil && !h.queue.localOnly() {
			h.goLocal(h.bus.append(ctx, []*entry{{kind: kindWake}}))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wakeEvery):
		}
	}
}

// Close ends all streams and refuses new ones, so that a server can shut down. The hub publishes until Run ends.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for len(h.streams) > 0 {
		h.remove(h.streams[len(h.streams)-1], ErrClosed)
	}
	if h.opened == 0 {
		close(h.ended)
	}
}

// Shutdown closes the hub and waits until its streams have had their last messages and are closed. If ctx ends first, their connections are
// closed at once, and the error is the context's.
func (h *Hub) Shutdown(ctx context.Context) error {
	h.Close()
	select {
	case <-h.ended:
		return nil
	default:
	}
	select {
	case <-h.ended:
		return nil
	case <-ctx.Done():
		h.endLasting()
		<-h.ended
		return ctx.Err()
	}
}

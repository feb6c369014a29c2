package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/notify/wakeup"
)

// Stream is one client's place in what is told. It holds no messages of its own: a client that is slow costs no memory
// and delays nobody.
type Stream struct {
	hub    *Hub
	owner  string
	load   func(ctx context.Context) (dispatch.Driver, error) // nil for an admin
	wake   wakeup.Signal                                      // holds a value when there may be something to take
	done   chan struct{}                                      // closed when reason is set
	isNew  bool                                               // the client knows of nothing yet
	lastID string                                             // the id that the client knows

	// What follows is guarded by the hub. The stream's goroutine moves its position while it may read.
	driver      dispatch.Driver
	index       int
	started     bool
	position    uint64 // of the message that the stream is past
	needsResync bool   // the client's id is not one to resume from
	reason      error
}

// reloadTimeout bounds how long an open stream waits for its driver to be read again.
const reloadTimeout = 2 * time.Second

func driverOwner(id dispatch.DriverID) string { return "driver " + string(id) }

// Driver opens a stream for the driver whom load returns, after the message with the id lastEventID, if there is one.
// load is called once now, and again by Serve when changes to the driver may have been missed. ErrFull, ErrClosed, or
// load's error. The caller closes the stream.
func (h *Hub) Driver(ctx context.Context, id dispatch.DriverID, lastEventID string,
	load func(ctx context.Context) (dispatch.Driver, error)) (*Stream, error) {
	// Opened first, so that no change falls between the reading and the opening.
	s, err := h.open(ctx, driverOwner(id), h.PerDriver, load)
	if err != nil {
		return nil, err
	}
	v, err := load(ctx)
	if err != nil {
		s.Close()
		return nil, err
	}
	h.catchUp(ctx, lastEventID)
	s.start(v, lastEventID)
	return s, nil
}

// Admin opens a stream of everything for the key, after the message with the id lastEventID, if there is one. ErrFull or
// ErrClosed. The caller closes the stream.
func (h *Hub) Admin(ctx context.Context, key, lastEventID string) (*Stream, error) {
	s, err := h.open(ctx, "key "+key, h.PerKey, nil)
	if err != nil {
		return nil, err
	}
	h.catchUp(ctx, lastEventID)
	s.start(dispatch.Driver{}, lastEventID)
	return s, nil
}

// openTimeout is how long a stream may wait at a start for what there is to resume from.
const openTimeout = time.Second

func (h *Hub) open(ctx context.Context, owner string, most int, load func(context.Context) (dispatch.Driver, error)) (*Stream, error) {
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	select {
	case <-h.loaded:
	case <-bounded.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if owned := h.byOwner[owner]; len(owned) >= most {
		h.metrics.replaced.Inc()
		h.remove(owned[0], ErrReplaced)
	} else if len(h.streams) >= h.Streams {
		return nil, ErrFull
	}
	s := &Stream{
		hub: h, owner: owner, load: load, index: len(h.streams),
		wake: wakeup.New(), done: make(chan struct{}),
	}
	h.streams = append(h.streams, s)
	h.byOwner[owner] = append(h.byOwner[owner], s)
	s.gauge().Inc()
	return s, nil
}

// catchUpInterval is how often is looked whether this instance has caught up with another one.
const catchUpInterval = 2 * time.Millisecond

// catchUp waits, for a moment, until this instance has read what the client has heard from another one, which was quicker.
func (h *Hub) catchUp(ctx context.Context, id string) {
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	tick := time.NewTicker(catchUpInterval)
	defer tick.Stop()
	for h.bus != nil && !h.queue.localOnly() && h.behind(id) {
		select {
		case <-tick.C:
		case <-bounded.Done():
			return
		}
	}
}

// behind reports whether the id is one that this instance may yet read.
func (h *Hub) behind(id string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, known := h.ring.find(id)
	return !known && later(id, h.ring.at(h.ring.head).id)
}

// later reports whether a comes after b, both of them identifiers as Redis makes them: milliseconds-number.
func later(a, b string) bool {
	ms, n, ok := parts(a)
	otherMS, otherN, otherOK := parts(b)
	return ok && otherOK && (ms > otherMS || ms == otherMS && n > otherN)
}

func parts(id string) (ms, n uint64, ok bool) {
	first, second, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(first, 10, 64)
	n, err2 := strconv.ParseUint(second, 10, 64)
	return ms, n, err == nil && err2 == nil
}

// start makes the stream hear what comes after lastEventID.
func (s *Stream) start(v dispatch.Driver, lastEventID string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if v.Version >= s.driver.Version {
		s.driver = v
	}
	s.started, s.lastID, s.isNew = true, lastEventID, lastEventID == ""
	position, known := s.hub.ring.find(lastEventID)
	if !known {
		position, s.needsResync = s.hub.ring.head, !s.isNew
	}
	s.position = position
}

// Close ends the stream. Closing it again does nothing.
func (s *Stream) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.remove(s, context.Canceled)
}

func (s *Stream) gauge() prometheus.Gauge {
	if s.load == nil {
		return s.hub.metrics.admins
	}
	return s.hub.metrics.drivers
}

// frameOf returns what the client is told of m, nil if nothing.
func (s *Stream) frameOf(m *message, now time.Time) []byte {
	if s.load == nil {
		return m.forAdmin
	}
	return m.forDriver(&s.driver, now)
}

// maxBatch is how many messages are written at once.
const maxBatch = 64

// batch is what a stream has to write.
type batch struct {
	frames [][]byte
	id     string // the client will know everything up to it
	resync bool
}

// nextBatch moves the stream past what it returns, and past what its client does not hear.
func (s *Stream) nextBatch() batch {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	r, now := s.hub.ring, s.hub.Now()
	if s.needsResync {
		s.needsResync, s.position = false, r.head // the client reads everything, as it is now
		id := r.at(r.head).id
		return batch{frames: [][]byte{resyncFrame(id)}, id: id, resync: true}
	}
	var t batch
	if s.position+1 >= r.tail {
		for s.position < r.head && len(t.frames) < maxBatch {
			s.position++
			m := r.at(s.position)
			if f := s.frameOf(m, now); f != nil {
				t.frames, t.id = append(t.frames, f), m.id
				t.resync = t.resync || m.resync
			}
		}
	}
	return t
}

// resumeID returns the id to resume from of a client who has been told everything there was for it.
func (s *Stream) resumeID() string {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	if s.position < s.hub.ring.tail {
		return s.lastID
	}
	return s.hub.ring.at(s.position).id
}

// Serve writes to the client what it is to be told until the stream is over: nil at the end of its time, else ErrClosed,
// ErrReplaced, ErrLagging, the context's or write's error. Each call of write is to be on its way to the client when it
// returns; what it is given must not be changed.
//
// The client always knows an id to resume from: the newest there is goes with the first write, and with a heartbeat.
func (s *Stream) Serve(ctx context.Context, write func(frames [][]byte) error) error {
	end := time.NewTimer(jittered(s.hub.Lifetime))
	defer end.Stop()
	beat := time.NewTimer(jittered(s.hub.Heartbeat))
	defer beat.Stop()
	if err := s.write(write, [][]byte{s.greeting()}); err != nil {
		return err
	}
	for {
		select {
		case <-s.done:
			return s.finish(write, s.reason)
		case <-end.C:
			return s.finish(write, nil)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if t := s.nextBatch(); len(t.frames) > 0 {
			if err := s.deliver(ctx, write, t); err != nil {
				return err
			}
			beat.Reset(jittered(s.hub.Heartbeat))
			continue
		}
		select {
		case <-s.wake:
		case <-beat.C:
			if err := s.write(write, [][]byte{s.heartbeat()}); err != nil {
				return err
			}
			beat.Reset(jittered(s.hub.Heartbeat))
		case <-s.done:
			return s.finish(write, s.reason)
		case <-end.C:
			return s.finish(write, nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// jittered is d give or take a sixth, so that not everybody comes at once.
func jittered(d time.Duration) time.Duration { return d - d/6 + rand.N(d/3+1) }

func (s *Stream) write(write func([][]byte) error, frames [][]byte) error {
	err := write(frames)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.hub.metrics.stalled.Inc()
	}
	return err
}

func (s *Stream) deliver(ctx context.Context, write func([][]byte) error, t batch) error {
	if err := s.write(write, t.frames); err != nil {
		return err
	}
	s.lastID = t.id
	s.hub.metrics.delivered.Add(float64(len(t.frames)))
	if !t.resync {
		return nil
	}
	s.hub.metrics.resyncs.Inc()
	s.reload(ctx)
	return nil
}

// reload makes up for changes to the driver that were lost with what a resync stands for. What it goes by stays if that
// is not possible, until the stream ends.
func (s *Stream) reload(ctx context.Context) {
	if s.load == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	v, err := s.load(ctx)
	if err != nil {
		return
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.updateDriver(profileOf(v))
}

// minRetry and retrySpread are how long a client is asked to wait before it connects again, in milliseconds.
const (
	minRetry    = 1000
	retrySpread = 4000
)

// retry asks the client to wait a while before it connects again, not all of them the same.
func retry() string { return "retry: " + strconv.Itoa(minRetry+rand.IntN(retrySpread)) + "\n" }

func (s *Stream) greeting() []byte {
	g := retry()
	if s.isNew {
		s.lastID = s.resumeID()
		g += "id: " + s.lastID + "\n"
	}
	return []byte(g + "\n")
}

// heartbeat is a comment. A client that hears little is told how far it is, so that it need not read everything again
// only because much has happened that it does not hear of.
func (s *Stream) heartbeat() []byte {
	id := s.resumeID()
	if id == s.lastID {
		return []byte(":\n\n")
	}
	s.lastID = id
	return []byte(":\nid: " + id + "\n\n")
}

// finish says why, after what there still is to tell: where it was told on this instance alone, nobody else can. An
// instance that goes away asks its clients to connect again, by name: to them it is no failure.
func (s *Stream) finish(write func([][]byte) error, reason error) error {
	bye := ": the stream has lasted long enough\n\n"
	if reason != nil {
		bye = ": " + reason.Error() + "\n\n"
	}
	if errors.Is(reason, ErrClosed) {
		bye = ": " + reason.Error() + "\n" + retry() + "event: reconnect\ndata: {}\n\n"
	}
	t := s.nextBatch()
	if err := s.write(write, append(t.frames, []byte(bye))); err != nil && reason == nil {
		return err
	}
	s.hub.metrics.delivered.Add(float64(len(t.frames)))
	return reason
}

package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/notify/wakeup"
)

// Stream is one client's position in the ring. It holds no messages of its own, so a slow client costs no memory and
// delays no other.
type Stream struct {
	hub    *Hub
	owner  string
	load   func(ctx context.Context) (dispatch.Driver, error) // nil for an admin
	wake   wakeup.Signal                                      // set when there may be a batch, a heartbeat is due, or the stream ends
	lastID string                                             // the last id that the client got
	isNew  bool                                               // the client came without an id

	// The hub's mutex guards what follows. The stream's goroutine moves position while it holds the read lock.
	profile     profile // of the driver
	index       int
	position    uint64 // of the last message that the stream is done with
	reason      error
	started     bool
	needsResync bool // the client cannot resume from its id
	closed      bool
}

const (
	// reloadTimeout bounds how long an open stream waits for its driver, once it is its turn to load it again.
	reloadTimeout = 2 * time.Second
	// maxReloads is how many streams load their drivers at once. After an outage of Redis all streams do, and while a stream waits for the
	// database it takes much more memory.
	maxReloads = 64
)

func driverOwner(id dispatch.DriverID) string { return "driver " + string(id) }

// OpenDriver opens a stream for the driver that load returns. With a lastEventID it resumes after that message. OpenDriver calls
// load once, and Serve calls it again when changes to the driver may have been lost. The error is ErrFull, ErrClosed, or
// load's. The caller closes the stream.
func (h *Hub) OpenDriver(ctx context.Context, id dispatch.DriverID, lastEventID string,
	load func(ctx context.Context) (dispatch.Driver, error)) (*Stream, error) {
	// Opened before the load, so that no change is lost between the two.
	s, err := h.open(ctx, driverOwner(id), h.options.MaxPerDriver, load)
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

// OpenAdmin opens a stream of all events for the key. With a lastEventID it resumes after that message. The error is ErrFull or
// ErrClosed. The caller closes the stream.
func (h *Hub) OpenAdmin(ctx context.Context, key, lastEventID string) (*Stream, error) {
	s, err := h.open(ctx, "key "+key, h.options.MaxPerKey, nil)
	if err != nil {
		return nil, err
	}
	h.catchUp(ctx, lastEventID)
	s.start(dispatch.Driver{}, lastEventID)
	return s, nil
}

func (h *Hub) open(ctx context.Context, owner string, most int, load func(context.Context) (dispatch.Driver, error)) (*Stream, error) {
	bounded, cancel := context.WithTimeout(ctx, h.options.RedisTimeout)
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
	} else if len(h.streams) >= h.options.MaxStreams {
		return nil, ErrFull
	}
	s := &Stream{
		hub: h, owner: owner, load: load, index: len(h.streams),
		wake: wakeup.New(),
	}
	h.streams = append(h.streams, s)
	h.byOwner[owner] = append(h.byOwner[owner], s)
	h.opened++
	s.gauge().Inc()
	return s, nil
}

// catchUpInterval is how often catchUp checks.
const catchUpInterval = 2 * time.Millisecond

// catchUp waits until this instance has read the entry that the client got from a faster one, at most for RedisTimeout.
func (h *Hub) catchUp(ctx context.Context, id string) {
	bounded, cancel := context.WithTimeout(ctx, h.options.RedisTimeout)
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

// behind reports whether the id is newer than the ring, so that this instance may read it yet.
func (h *Hub) behind(id string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, known := h.ring.find(id)
	return !known && before(h.ring.at(h.ring.head).id, id)
}

// start sets the stream's position to lastEventID, or to the newest message.
func (s *Stream) start(v dispatch.Driver, lastEventID string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if v.Version >= s.profile.Version {
		s.profile = *profileOf(v)
	}
	s.started, s.lastID, s.isNew = true, lastEventID, lastEventID == ""
	position, known := s.hub.ring.find(lastEventID)
	if !known {
		position, s.needsResync = s.hub.ring.head, !s.isNew
	}
	s.position = position
}

// errGone says that the client has closed the connection.
var errGone = errors.New("the client is gone")

// end ends the stream for the reason, unless it has one.
func (s *Stream) end(reason error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.remove(s, reason)
}

// Close ends the stream. A second call does nothing.
func (s *Stream) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.remove(s, context.Canceled)
	if s.closed {
		return
	}
	s.closed = true
	if s.hub.opened--; s.hub.opened == 0 && s.hub.closed {
		close(s.hub.ended)
	}
}

func (s *Stream) gauge() prometheus.Gauge {
	if s.load == nil {
		return s.hub.metrics.admins
	}
	return s.hub.metrics.drivers
}

// frameOf returns the frame of m that the client gets, nil if none.
func (s *Stream) frameOf(m *message, now time.Time) []byte {
	if s.load == nil {
		return m.forAdmin
	}
	v := s.profile.driver()
	return m.forDriver(&v, now)
}

// maxBatch is how many messages one write has at most.
const maxBatch = 64

// batch is the content of one write.
type batch struct {
	frames [][]byte
	id     string // of the last message
	resync bool
	reason error // the stream's, if it has ended
}

// nextBatch returns the next frames for the client, and moves the stream past them.
func (s *Stream) nextBatch() batch {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	r, now := s.hub.ring, s.hub.options.Now()
	if s.needsResync {
		s.needsResync, s.position = false, r.head // the client will read everything as it is now
		id := r.at(r.head).id
		return batch{frames: [][]byte{resyncFrame(id)}, id: id, resync: true, reason: s.reason}
	}
	t := batch{reason: s.reason}
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

// resumeID returns the id from which a client can resume that got everything up to the stream's position.
func (s *Stream) resumeID() string {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	if s.position < s.hub.ring.tail {
		return s.lastID
	}
	return s.hub.ring.at(s.position).id
}

// Serve writes messages to the client until the stream ends. It returns nil at the end of the stream's lifetime, and
// otherwise ErrClosed, ErrReplaced, ErrLagging, the context's error or write's. Write must flush, and must not change the
// frames.
//
// The client always has an id to resume from: the first write carries the newest one, and so do heartbeats.
func (s *Stream) Serve(ctx context.Context, write func(frames [][]byte) error) error {
	defer context.AfterFunc(ctx, func() { s.end(errGone) })()
	if err := s.serve(ctx, write); !errors.Is(err, errGone) {
		return err
	}
	return ctx.Err()
}

// serve is Serve, but that only the stream's end ends it, not ctx's. An idle stream waits for wake alone, whatever may happen: another
// channel, of a timer or a context, would take some hundred bytes of each stream.
func (s *Stream) serve(ctx context.Context, write func(frames [][]byte) error) error {
	if err := s.write(write, [][]byte{s.greeting()}); err != nil {
		return err
	}
	now := time.Now()
	end := now.Add(jittered(s.hub.options.Lifetime))
	due := s.nextBeat(now, end)
	timer := time.AfterFunc(due.Sub(now), s.wake.Set)
	defer timer.Stop()
	for {
		t := s.nextBatch()
		now = time.Now()
		switch {
		case t.reason != nil || !now.Before(end):
			return s.finish(write, t)
		case len(t.frames) > 0:
			if err := s.deliver(ctx, write, t); err != nil {
				return err
			}
		case !now.Before(due):
			if err := s.write(write, [][]byte{s.heartbeat()}); err != nil {
				return err
			}
		default:
			<-s.wake
			continue
		}
		now = time.Now()
		due = s.nextBeat(now, end)
		timer.Reset(due.Sub(now))
	}
}

// nextBeat is when an idle stream has its next heartbeat, or its end.
func (s *Stream) nextBeat(now, end time.Time) time.Time {
	if due := now.Add(jittered(s.hub.options.Heartbeat)); due.Before(end) {
		return due
	}
	return end
}

// jittered returns d plus or minus a sixth, so that clients do not come at the same time.
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

// reload loads the driver after a resync, as changes to it may have been lost too. If that fails, the stream keeps the
// driver that it has.
func (s *Stream) reload(ctx context.Context) {
	if s.load == nil {
		return
	}
	select {
	case s.hub.reloads <- struct{}{}:
		defer func() { <-s.hub.reloads }()
	case <-ctx.Done():
		return
	}
	if s.ended() {
		return // while it waited for its turn
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

func (s *Stream) ended() bool {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	return s.reason != nil
}

// A client is asked to wait from minRetry to minRetry+retrySpread milliseconds before it reconnects.
const (
	minRetry    = 1000
	retrySpread = 4000
	// replacedRetry is how long a client waits whose stream made room for a newer one.
	replacedRetry = 60_000
)

// retry is the field that asks the client to wait before it reconnects.
func retry() string { return "retry: " + strconv.Itoa(minRetry+rand.IntN(retrySpread)) + "\n" }

func (s *Stream) greeting() []byte {
	g := retry()
	if s.isNew {
		s.lastID = s.resumeID()
		g += "id: " + s.lastID + "\n"
	}
	return []byte(g + "\n")
}

// heartbeat is a comment. It carries a new id if the stream has moved past messages that the client does not get, so that
// the client can still resume after many of them.
func (s *Stream) heartbeat() []byte {
	id := s.resumeID()
	if id == s.lastID {
		return []byte(":\n\n")
	}
	s.lastID = id
	return []byte(":\nid: " + id + "\n\n")
}

// finish writes the last batch and the reason for the end, unless the client is gone. In local-only mode no other instance has that
// batch. An instance that shuts down sends an event "reconnect", so that clients do not report a failure. A stream that makes room for a
// newer one sends an event "replaced", so that its client waits.
func (s *Stream) finish(write func([][]byte) error, t batch) error {
	reason := t.reason
	if errors.Is(reason, errGone) {
		return reason
	}
	bye := ": the stream has lasted long enough\n\n"
	if reason != nil {
		bye = ": " + reason.Error() + "\n\n"
	}
	switch {
	case errors.Is(reason, ErrReplaced): // at once, it would end another stream of its owner, which would come back, and so on
		bye = ": " + reason.Error() + "\nretry: " + strconv.Itoa(replacedRetry) + "\nevent: replaced\ndata: {}\n\n"
	case errors.Is(reason, ErrClosed):
		bye = ": " + reason.Error() + "\n" + retry() + "event: reconnect\ndata: {}\n\n"
	}
	if err := s.write(write, append(t.frames, []byte(bye))); err != nil && reason == nil {
		return err
	}
	s.hub.metrics.delivered.Add(float64(len(t.frames)))
	return reason
}

package stream

import (
	"context"
	"errors"
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

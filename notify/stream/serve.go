package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

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

const (
	// reloadTimeout bounds how long an open stream waits for its driver, once it is its turn to load it again.
	reloadTimeout = 2 * time.Second
	// maxReloads is how many streams load their drivers at once. After an outage of Redis all streams do, and while a stream waits for the
	// database it takes much more memory.
	maxReloads = 64
)

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
	// replacedRetry is how long a client waits before it opens a stream again that the server ended for a newer one of the same owner.
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
	case errors.Is(reason, ErrReplaced):
		// A client that came back at once would end another stream of its owner, whose client would come back, and so on.
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

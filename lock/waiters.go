package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	minBackoff = 10 * time.Millisecond
	// maxBackoff bounds how long a released name stays free when no Watcher announces the release.
	maxBackoff = 100 * time.Millisecond
	// maxWatchedBackoff applies with a Watcher, for names that end without an announcement.
	maxWatchedBackoff = time.Second
)

// waiters are the goroutines of this process that wait for one name. One of them at a time asks the server, so that a
// crowd costs the server as much as a single waiter.
type waiters struct {
	token   chan struct{} // holds a value while one of them asks
	count   int           // guarded by Locker.mu
	lastErr error         // the latest answer of the server; guarded by Locker.mu
}

// wait asks until the name is acquired, hold.Wait is over, or ctx ends.
func (l *Locker) wait(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	waitCtx, stop := context.WithTimeoutCause(ctx, hold.Wait, errWaitTimeout)
	defer stop()
	w := l.addWaiter(name)
	defer l.removeWaiter(name, w)
	select {
	case w.token <- struct{}{}:
		defer func() { <-w.token }()
	case <-waitCtx.Done():
		return nil, l.waitError(waitCtx, w)
	}
	b := backoff{name: name, pause: minBackoff}
	defer b.close()
	for {
		lease, err := l.try(waitCtx, parent, name, hold)
		if lease != nil || errors.Is(err, ErrInvalid) {
			return lease, err
		}
		// A request that was canceled by the end of this wait says nothing about the server to the next waiter.
		if end, _ := waitCtx.Deadline(); errors.Is(err, ErrHeld) || waitCtx.Err() == nil && time.Now().Before(end) {
			l.mu.Lock()
			w.lastErr = err
			l.mu.Unlock()
		}
		if !b.sleep(waitCtx, l.strategy, err) {
			return nil, l.waitError(waitCtx, w)
		}
	}
}

var errWaitTimeout = errors.New("lock: the wait for the name timed out")

// waitError returns the error of a wait that ended without a lease: the latest answer of the server, and the cause if the
// caller's context ended.
func (l *Locker) waitError(waitCtx context.Context, w *waiters) error {
	l.mu.Lock()
	err := w.lastErr
	l.mu.Unlock()
	if err == nil {
		err = ErrUnavailable // the server has not answered anybody
	}
	if cause := context.Cause(waitCtx); !errors.Is(cause, errWaitTimeout) && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func (l *Locker) addWaiter(name string) *waiters {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[name]
	if w == nil {
		w = &waiters{token: make(chan struct{}, 1)}
		l.waiters[name] = w
	}
	w.count++
	return w
}

func (l *Locker) removeWaiter(name string, w *waiters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.count--; w.count == 0 {
		delete(l.waiters, name)
	}
}

// backoff times a waiter's attempts.
type backoff struct {
	name     string
	pause    time.Duration
	released <-chan struct{} // nil until a watch has begun
	stop     func()
}

// sleep returns when it is time to ask again. It reports false if ctx ended. A watch begins only after the name was
// refused as held, so that an attempt which does not wait costs one command.
func (b *backoff) sleep(ctx context.Context, strategy Strategy, lastErr error) bool {
	longest := maxBackoff
	if watcher, ok := strategy.(Watcher); ok && errors.Is(lastErr, ErrHeld) {
		if b.released == nil {
			b.released, b.stop, _ = watcher.Watch(ctx, b.name) // without a watch, the pauses remain
		}
		longest = maxWatchedBackoff
	}
	pause := b.pause/2 + rand.N(b.pause/2+1)
	b.pause = min(2*b.pause, longest)
	var held *HeldError
	if errors.As(lastErr, &held) && held.Remaining > 0 {
		// A lease that is not renewed is free at its end, which may be earlier than the next attempt.
		pause = min(pause, held.Remaining+time.Millisecond+rand.N(minBackoff))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-b.released:
		return ctx.Err() == nil
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *backoff) close() {
	if b.stop != nil {
		b.stop()
	}
}

// watchers are the channels to notify when a name is released, by name. Each has room for one value.
type watchers map[string]map[chan struct{}]bool

// add returns a new channel for name, and whether it is the only one.
func (w watchers) add(name string) (released chan struct{}, first bool) {
	if first = w[name] == nil; first {
		w[name] = map[chan struct{}]bool{}
	}
	released = make(chan struct{}, 1)
	w[name][released] = true
	return released, first
}

// remove reports whether it removed the last channel for name.
func (w watchers) remove(name string, released chan struct{}) (last bool) {
	delete(w[name], released)
	if last = len(w[name]) == 0; last {
		delete(w, name)
	}
	return last
}

func (w watchers) notifyAll(name string) {
	for released := range w[name] {
		notify(released)
	}
}

func notify(released chan<- struct{}) {
	select {
	case released <- struct{}{}:
	default: // a value is waiting already
	}
}

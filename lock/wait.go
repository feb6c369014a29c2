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
	// maxBackoff is how long a name that was handed over, a lead above all, may be nobody's where no Watcher tells.
	maxBackoff = 100 * time.Millisecond
	// maxWatchedBackoff is for what a Watcher does not tell.
	maxWatchedBackoff = time.Second
)

// waiters is who of this process asks for a name that several wait for: one at a time, so that a crowd costs the server
// no more than one.
type waiters struct {
	token   chan struct{} // has room for the one whose turn it is
	count   int           // guarded by Locker.mu
	lastErr error         // what the last one was told; guarded by Locker.mu
}

// wait asks until the name is acquired, hold.Wait is over, or ctx ends.
func (l *Locker) wait(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	patience, stop := context.WithTimeoutCause(ctx, hold.Wait, errWaitTimeout)
	defer stop()
	t := l.addWaiter(name)
	defer l.removeWaiter(name, t)
	select {
	case t.token <- struct{}{}:
		defer func() { <-t.token }()
	case <-patience.Done():
		return nil, l.waitError(patience, t)
	}
	w := backoff{name: name, pause: minBackoff}
	defer w.close()
	for {
		lease, err := l.try(patience, parent, name, hold)
		if lease != nil || errors.Is(err, ErrInvalid) {
			return lease, err
		}
		// Cut off by the end of one's own patience, a request says nothing about the server to those behind.
		if end, _ := patience.Deadline(); errors.Is(err, ErrHeld) || patience.Err() == nil && time.Now().Before(end) {
			l.mu.Lock()
			t.lastErr = err
			l.mu.Unlock()
		}
		if !w.sleep(patience, l.strategy, err) {
			return nil, l.waitError(patience, t)
		}
	}
}

var errWaitTimeout = errors.New("lock: waited long enough")

// waitError is what whoever waited in vain is told: the last that was heard, and the caller's own reason to stop.
func (l *Locker) waitError(patience context.Context, t *waiters) error {
	l.mu.Lock()
	err := t.lastErr
	l.mu.Unlock()
	if err == nil {
		err = ErrUnavailable // nothing was heard at all
	}
	if cause := context.Cause(patience); !errors.Is(cause, errWaitTimeout) && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func (l *Locker) addWaiter(name string) *waiters {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.waiters[name]
	if t == nil {
		t = &waiters{token: make(chan struct{}, 1)}
		l.waiters[name] = t
	}
	t.count++
	return t
}

func (l *Locker) removeWaiter(name string, t *waiters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.count--; t.count == 0 {
		delete(l.waiters, name)
	}
}

// backoff is the pauses between the attempts of one who waits.
type backoff struct {
	name     string
	pause    time.Duration
	released <-chan struct{}
	stop     func()
}

// sleep returns when it is time to ask again; false when patience has ended. Only who was told that the name is held
// begins a watch: whoever does not wait, or is served at once, costs one command.
func (w *backoff) sleep(patience context.Context, strategy Strategy, last error) bool {
	longest := maxBackoff
	if watcher, ok := strategy.(Watcher); ok && errors.Is(last, ErrHeld) {
		if w.released == nil {
			w.released, w.stop, _ = watcher.Watch(patience, w.name) // without it, there are the pauses
		}
		longest = maxWatchedBackoff
	}
	pause := w.pause/2 + rand.N(w.pause/2+1)
	w.pause = min(2*w.pause, longest)
	var held *HeldError
	if errors.As(last, &held) && held.Left > 0 {
		// Whoever holds by a lease that is not renewed is gone at its end, and not a pause later.
		pause = min(pause, held.Left+time.Millisecond+rand.N(minBackoff))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-w.released:
		return patience.Err() == nil
	case <-timer.C:
		return true
	case <-patience.Done():
		return false
	}
}

func (w *backoff) close() {
	if w.stop != nil {
		w.stop()
	}
}

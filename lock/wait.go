package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 10 * time.Millisecond
	// lastPause is how long a name that was handed over, a lead above all, may be nobody's where no Watcher tells.
	lastPause = 100 * time.Millisecond
	// watchedPause is for what a Watcher does not tell.
	watchedPause = time.Second
)

// turn is who of this process asks for a name that several wait for: one at a time, so that a crowd costs the server
// no more than one.
type turn struct {
	asking  chan struct{} // has room for the one whose turn it is
	waiting int           // guarded by Locker.mu
	last    error         // what the last one was told; guarded by Locker.mu
}

// wait asks until the name is acquired, hold.Wait is over, or ctx ends.
func (l *Locker) wait(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	patience, stop := context.WithTimeoutCause(ctx, hold.Wait, errWaited)
	defer stop()
	t := l.join(name)
	defer l.leave(name, t)
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-patience.Done():
		return nil, l.waited(patience, t)
	}
	w := watch{name: name, pause: firstPause}
	defer w.end()
	for {
		lease, err := l.try(patience, parent, name, hold)
		if lease != nil || errors.Is(err, ErrInvalid) {
			return lease, err
		}
		// Cut off by the end of one's own patience, a request says nothing about the server to those behind.
		if end, _ := patience.Deadline(); errors.Is(err, ErrHeld) || patience.Err() == nil && time.Now().Before(end) {
			l.mu.Lock()
			t.last = err
			l.mu.Unlock()
		}
		if !w.next(patience, l.strategy, err) {
			return nil, l.waited(patience, t)
		}
	}
}

var errWaited = errors.New("lock: waited long enough")

// waited is what whoever waited in vain is told: the last that was heard, and the caller's own reason to stop.
func (l *Locker) waited(patience context.Context, t *turn) error {
	l.mu.Lock()
	err := t.last
	l.mu.Unlock()
	if err == nil {
		err = ErrUnavailable // nothing was heard at all
	}
	if cause := context.Cause(patience); !errors.Is(cause, errWaited) && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func (l *Locker) join(name string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[name]
	if t == nil {
		t = &turn{asking: make(chan struct{}, 1)}
		l.turns[name] = t
	}
	t.waiting++
	return t
}

func (l *Locker) leave(name string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		delete(l.turns, name)
	}
}

// watch is the pauses between the attempts of one who waits.
type watch struct {
	name  string
	pause time.Duration
	freed <-chan struct{}
	stop  func()
}

// next returns when it is time to ask again; false when patience has ended. Only who was told that the name is held
// begins a watch: whoever does not wait, or is served at once, costs one command.
func (w *watch) next(patience context.Context, strategy Strategy, last error) bool {
	longest := lastPause
	if watcher, ok := strategy.(Watcher); ok && errors.Is(last, ErrHeld) {
		if w.freed == nil {
			w.freed, w.stop, _ = watcher.Watch(patience, w.name) // without it, there are the pauses
		}
		longest = watchedPause
	}
	pause := w.pause/2 + rand.N(w.pause/2+1)
	w.pause = min(2*w.pause, longest)
	var held *HeldError
	if errors.As(last, &held) && held.Left > 0 {
		// Whoever holds by a lease that is not renewed is gone at its end, and not a pause later.
		pause = min(pause, held.Left+time.Millisecond+rand.N(firstPause))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-w.freed:
		return patience.Err() == nil
	case <-timer.C:
		return true
	case <-patience.Done():
		return false
	}
}

func (w *watch) end() {
	if w.stop != nil {
		w.stop()
	}
}

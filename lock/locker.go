package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Options of a Locker. The zero value is usable.
type Options struct {
	// Who tells an operator which process holds a name; the host's name and the process's id if empty. It identifies
	// nobody: every acquisition has an owner of its own.
	Who string
	// Timeout bounds each command to the server; a second if 0. It should be well below the TTLs.
	Timeout time.Duration
	Log     *slog.Logger // none if nil
	Metrics *Metrics     // none if nil
}

// Locker holds names by a strategy. Safe for concurrent use.
type Locker struct {
	strategy Strategy
	instance string
	timeout  time.Duration
	log      *slog.Logger
	metrics  *Metrics
	started  time.Time

	orphans orphans

	mu         sync.Mutex
	waiters    map[string]*waiters
	lastWarned map[string]time.Time // that a name can't be had, when
}

// New returns a Locker that holds names by strategy. Close ends it.
func New(strategy Strategy, o Options) *Locker {
	l := &Locker{
		strategy: strategy, instance: o.Who, timeout: cmp.Or(o.Timeout, time.Second), log: o.Log, metrics: o.Metrics,
		started: time.Now(), waiters: map[string]*waiters{}, lastWarned: map[string]time.Time{},
	}
	l.orphans.timeout = l.timeout
	l.orphans.ctx, l.orphans.cancel = context.WithCancel(context.Background())
	if l.instance == "" {
		host, _ := os.Hostname()
		l.instance = fmt.Sprintf("%.40s:%d", host, os.Getpid())
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.metrics == nil {
		l.metrics = NewMetrics(nil)
	}
	return l
}

// Close gives up what acquisitions and releases without an answer may have left on the server: it ends by itself. What
// is held stays held until it is released or lost; acquiring goes on to work.
func (l *Locker) Close() {
	l.orphans.close()
}

// Acquire takes name, at once or within hold.Wait. A HeldError says who has it, ErrUnavailable that nobody can tell,
// ErrInvalid that the name or the hold can't be; when ctx ended the wait, the error is also the cause of that.
// Whatever the error, nothing stays behind on the server that would keep others waiting, unless it can't be reached
// for the whole of the TTL.
//
// The lease has ctx's values and does not end with it. The caller must release it.
func (l *Locker) Acquire(ctx context.Context, name string, hold Hold) (*Lease, error) {
	if err := hold.validate(); err != nil {
		return nil, err
	}
	return l.acquire(ctx, context.WithoutCancel(ctx), name, hold)
}

// Do runs work while it holds name. The context that work gets ends with ctx, and when the lease is lost: its cause is
// then one of the errors that are ErrLost. Work should stop at once and write nothing more.
//
// Do returns the errors of Acquire, or else that of work, with the reason if the lease was lost before work returned.
// The name is released also when ctx has ended or work panics.
func (l *Locker) Do(ctx context.Context, name string, hold Hold, work func(ctx context.Context) error) error {
	if err := hold.validate(); err != nil {
		return err
	}
	return l.do(ctx, name, hold, func(ctx context.Context, _ *Lease) error { return work(ctx) })
}

func (l *Locker) do(ctx context.Context, name string, hold Hold, work func(context.Context, *Lease) error) (err error) {
	lease, err := l.acquire(ctx, ctx, name, hold)
	if err != nil {
		return err
	}
	defer func() {
		// A release that got no answer does not undo the work, which was done while the lease could be trusted.
		if lost := lease.Release(ctx); errors.Is(lost, ErrLost) {
			err = errors.Join(lost, err)
		}
	}()
	return work(context.WithValue(lease.Context(), leaseKey{}, lease), lease)
}

type leaseKey struct{}

// FromContext returns the lease that the context of Do or Campaign is for, or nil: for its Fence and Beat.
func FromContext(ctx context.Context) *Lease {
	lease, _ := ctx.Value(leaseKey{}).(*Lease)
	return lease
}

// acquire is Acquire without a look at the hold. The lease ends with parent.
func (l *Locker) acquire(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if hold.Wait > 0 {
		return l.wait(ctx, parent, name, hold)
	}
	return l.try(ctx, parent, name, hold)
}

// try asks the strategy once.
func (l *Locker) try(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	owner := l.instance + "/" + rand.Text()
	bounded, cancel := context.WithTimeout(ctx, min(l.timeout, hold.TTL))
	defer cancel()
	sent := time.Now()
	grant, err := l.strategy.Acquire(bounded, name, owner, hold.TTL)
	if err == nil && time.Since(sent) >= hold.TTL-safetyMargin(hold.TTL) {
		err = fmt.Errorf("%w: the answer came too late", ErrUnavailable)
	}
	// One that its own patience has cut short says nothing about the server.
	cut := errors.Is(context.Cause(ctx), errWaitTimeout) && time.Since(sent) < min(l.timeout, hold.TTL)/2
	if err == nil || !cut {
		l.metrics.attempt(err)
	}
	if err == nil {
		if l.log.Enabled(ctx, slog.LevelDebug) {
			l.log.Debug("lock acquired", "name", name, "owner", owner, "fence", grant.Fence())
		}
		return newLease(parent, l, grant, name, owner, hold, sent), nil
	}
	if grant != nil {
		l.orphans.release(grant, sent.Add(hold.TTL), false)
	}
	if errors.Is(err, ErrUnavailable) && !cut {
		l.warn(name, err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

const (
	// warnInterval is how often it is said that a name can't be had: whoever waits asks again and again.
	warnInterval = 10 * time.Second
	// maxWarned bounds the names for which that is remembered.
	maxWarned = 1000
)

func (l *Locker) warn(name string, err error) {
	now := time.Now()
	l.mu.Lock()
	last, said := l.lastWarned[name]
	said = said && now.Sub(last) < warnInterval
	if !said {
		if len(l.lastWarned) >= maxWarned {
			clear(l.lastWarned)
		}
		l.lastWarned[name] = now
	}
	l.mu.Unlock()
	if !said {
		l.log.Warn("lock unavailable", "name", name, "error", err)
	}
}

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
	// Instance names this process to operators, as the first part of each lease's owner. The default is the host's name and the
	// process's id.
	Instance string
	// Timeout bounds each request to the server. It should be well below the TTLs. The default is a second.
	Timeout time.Duration
	Log     *slog.Logger // optional
	Metrics *Metrics     // optional
}

// Locker acquires names by a strategy. It is safe for concurrent use.
type Locker struct {
	strategy Strategy
	instance string
	timeout  time.Duration
	log      *slog.Logger
	metrics  *Metrics
	started  time.Time

	orphans orphans

	mu      sync.Mutex
	waiters map[string]*waiters
	away    map[string]time.Time // since when the server gives no answer about a name
}

// New returns a Locker that acquires names by strategy. It must be closed.
func New(strategy Strategy, o Options) *Locker {
	l := &Locker{
		strategy: strategy, instance: o.Instance, timeout: cmp.Or(o.Timeout, time.Second), log: o.Log, metrics: o.Metrics,
		started: time.Now(), waiters: map[string]*waiters{}, away: map[string]time.Time{},
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

// Close stops the background releases of unanswered requests; what they left on the server expires. Leases stay valid
// until they are released or lost, and Acquire continues to work.
func (l *Locker) Close() {
	l.orphans.close()
}

// Acquire acquires name, at once or within hold.Wait. It returns a HeldError if another owner has the name, ErrUnavailable
// if the server does not answer, and ErrInvalid if the name or the hold is not valid. If ctx ended the wait, the error also
// wraps ctx's cause. A failed Acquire leaves nothing on the server that would block other processes, unless the server
// can't be reached until the TTL is over.
//
// The lease has ctx's values but does not end with ctx. The caller must release it.
func (l *Locker) Acquire(ctx context.Context, name string, hold Hold) (*Lease, error) {
	if err := hold.validate(); err != nil {
		return nil, err
	}
	return l.acquire(ctx, context.WithoutCancel(ctx), name, hold)
}

// Do runs work while it holds name. The context of work ends with ctx, or when the lease is lost; its cause is then an
// ErrLost, and work should stop at once and write nothing more.
//
// Do returns the errors of Acquire, or the error of work, joined with the ErrLost if the lease was lost, or may have been lost, before work
// returned. It releases the name also if ctx has ended or work panics.
//
// If ctx is of work under a lease of this Locker with the name, Do runs work under that lease, and hold does not count.
func (l *Locker) Do(ctx context.Context, name string, hold Hold, work func(ctx context.Context) error) error {
	if err := hold.validate(); err != nil {
		return err
	}
	if outer := leaseOf(ctx, name); outer != nil && outer.locker == l {
		return work(ctx)
	}
	return l.do(ctx, name, hold, func(ctx context.Context, _ *Lease) error { return work(ctx) })
}

func (l *Locker) do(ctx context.Context, name string, hold Hold, work func(context.Context, *Lease) error) (err error) {
	lease, err := l.acquire(ctx, ctx, name, hold)
	if err != nil {
		return err
	}
	defer func() {
		// ErrUnavailable alone is no error of Do: the work was done while the lease was valid.
		if lost := lease.Release(ctx); errors.Is(lost, ErrLost) {
			err = errors.Join(lost, err)
		}
	}()
	return work(withLease(lease.Context(), lease), lease)
}

// leases are those of a context: the latest, and the ones around it.
type leases struct {
	lease *Lease
	outer *leases
}

type leasesKey struct{}

func leasesOf(ctx context.Context) *leases {
	all, _ := ctx.Value(leasesKey{}).(*leases)
	return all
}

func withLease(ctx context.Context, lease *Lease) context.Context {
	return context.WithValue(ctx, leasesKey{}, &leases{lease, leasesOf(ctx)})
}

// leaseOf returns the lease of the name that ctx is under and that has not ended, or nil.
func leaseOf(ctx context.Context, name string) *Lease {
	for l := leasesOf(ctx); l != nil; l = l.outer {
		if l.lease.name == name && l.lease.ctx.Err() == nil {
			return l.lease
		}
	}
	return nil
}

// FromContext returns the latest lease of a context of Do, Campaign or Bind, or nil.
func FromContext(ctx context.Context) *Lease {
	if all := leasesOf(ctx); all != nil {
		return all.lease
	}
	return nil
}

// AssertHeld returns ErrNotHeld unless ctx is of a Do, Campaign or Bind under a lease of the name that has not ended. Work that must not
// run without its lock calls it first. locktest.Held makes such a context for tests of the work.
func AssertHeld(ctx context.Context, name string) error {
	if leaseOf(ctx, name) == nil {
		return fmt.Errorf("%w: %s", ErrNotHeld, name)
	}
	return nil
}

// acquire is Acquire for a hold that was validated. The lease ends with parent.
func (l *Locker) acquire(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if hold.Wait > 0 {
		return l.wait(ctx, parent, name, hold)
	}
	return l.try(ctx, parent, name, hold)
}

// try makes one attempt.
func (l *Locker) try(ctx, parent context.Context, name string, hold Hold) (*Lease, error) {
	owner := l.instance + "/" + rand.Text()
	bounded, cancel := context.WithTimeout(ctx, min(l.timeout, hold.TTL))
	defer cancel()
	sent := time.Now()
	grant, err := l.strategy.Acquire(bounded, name, owner, hold.TTL)
	if err == nil && time.Since(sent) >= hold.TTL-safetyMargin(hold.TTL) {
		err = fmt.Errorf("%w: the answer came after the lease had to end", ErrUnavailable)
	}
	// A request that was canceled by the end of hold.Wait says nothing about the server.
	timedOut := errors.Is(context.Cause(ctx), errWaitTimeout) && time.Since(sent) < min(l.timeout, hold.TTL)/2
	if err == nil || !timedOut {
		l.metrics.attempt(err)
		l.report(name, err)
	}
	if err == nil {
		if l.log.Enabled(ctx, slog.LevelDebug) {
			l.log.Debug("lock acquired", "name", name, "owner", owner, "fence", grant.Fence(), "locked_until", sent.Add(hold.TTL))
		}
		return newLease(parent, l, grant, name, owner, hold, sent), nil
	}
	if errors.Is(err, ErrHeld) {
		l.log.Debug("lock not acquired, because another owner holds it", "name", name, "error", err)
	}
	if grant != nil {
		l.orphans.release(grant, sent.Add(hold.TTL), false)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return nil, err
}

// maxAway bounds the names in away.
const maxAway = 1000

// report logs the first of an outage's errors, which leave it unknown whether name is held, and that an attempt is answered again.
func (l *Locker) report(name string, err error) {
	l.mu.Lock()
	since, away := l.away[name]
	unknown := errors.Is(err, ErrUnavailable)
	switch {
	case unknown && !away:
		if len(l.away) >= maxAway {
			clear(l.away)
		}
		l.away[name] = time.Now()
	case !unknown && away:
		delete(l.away, name)
	}
	l.mu.Unlock()
	switch {
	case unknown && !away:
		l.log.Warn("lock unavailable; it is not known whether it is held until an attempt is answered", "name", name, "error", err)
	case !unknown && away:
		l.log.Warn("lock available again", "name", name, "outage", time.Since(since))
	}
}

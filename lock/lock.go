package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrHeld means that the name has another owner. A [HeldError] names it.
	ErrHeld = errors.New("lock: held")
	// ErrUnavailable means that the server gave no answer that counts, so that it is unknown whether the name is held.
	ErrUnavailable = errors.New("lock: unavailable")
	// ErrLost means that the lease has ended without a release. The five errors below say why; each of them is ErrLost.
	ErrLost = errors.New("lock: lost")

	// ErrExpired means that the lease's time was over, or that the server does not know the lease any more.
	ErrExpired = fmt.Errorf("%w: expired", ErrLost)
	// ErrStolen means that another owner has the name.
	ErrStolen = fmt.Errorf("%w: stolen", ErrLost)
	// ErrUnreachable means that renewals failed until the lease was about to expire.
	ErrUnreachable = fmt.Errorf("%w: unreachable", ErrLost)
	// ErrMaxHold means that the name was held for as long as [Hold.AtMost] allows.
	ErrMaxHold = fmt.Errorf("%w: held for too long", ErrLost)
	// ErrStalled means that the work did not call [Lease.Heartbeat] in time.
	ErrStalled = fmt.Errorf("%w: no progress", ErrLost)

	// ErrNotHeld means that a context is not of work that holds the name, or that the lease has ended.
	ErrNotHeld = errors.New("lock: not held")
	// ErrInvalid means that a name or a hold is not valid. Nothing was sent to the server.
	ErrInvalid = errors.New("lock: invalid")
	// ErrFenced means that a newer lease has written already, so a write under this lease must not happen.
	ErrFenced = errors.New("lock: fenced off by a newer lease")
)

// HeldError is ErrHeld with the owner and the time that its lease still has.
type HeldError struct {
	Owner     string        // "" if unknown
	Remaining time.Duration // the lease may be renewed or released earlier; 0 if unknown
}

func (e *HeldError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "another owner"
	}
	if e.Remaining > 0 {
		return fmt.Sprintf("lock: held by %s for %s", owner, e.Remaining.Round(time.Millisecond))
	}
	return "lock: held by " + owner
}

// Unwrap makes every HeldError an ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Strategy is an algorithm that grants a name to one owner at a time. The server's clock ends a grant. A Strategy must be
// safe for concurrent use.
type Strategy interface {
	// Acquire acquires name for ttl without waiting. It returns a HeldError if the name is held, ErrUnavailable if the
	// server does not answer, and ErrInvalid if the strategy can't hold such a name or ttl. owner is unique to the call.
	//
	// With ErrUnavailable the name may have been acquired nevertheless. Acquire may then also return a grant, which is only
	// for Release.
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error)
}

// Grant is a name that was acquired. It lasts until its ttl is over or it is released. It is not safe for concurrent use.
type Grant interface {
	// Fence is larger than that of every earlier grant of the name, also after a restart or a flush of the server.
	Fence() int64
	// Extend makes the grant last for ttl from now. It returns ErrLost if the grant does not hold the name any more, and
	// ErrUnavailable if the server does not answer. It may be repeated.
	Extend(ctx context.Context, ttl time.Duration) error
	// Release frees the name after keep, or at once if keep is 0. It returns ErrLost if the grant did not hold the name any
	// more, and ErrUnavailable if the server does not answer. It may be repeated.
	Release(ctx context.Context, keep time.Duration) error
}

// Watcher is implemented by a Strategy that announces releases, so that waiters need not poll. A grant that expires is not
// announced.
type Watcher interface {
	// Watch returns a channel that receives a value when the watch has begun, and after each release of name until stop is
	// called.
	Watch(ctx context.Context, name string) (released <-chan struct{}, stop func(), err error)
}

// Admin is a Strategy's interface for operators.
type Admin interface {
	// List returns the holders of all names that are held, ordered by name.
	List(ctx context.Context) ([]Holder, error)
	// Show returns the holder of name; its Owner is "" if the name is free.
	Show(ctx context.Context, name string) (Holder, error)
	// Break frees name and returns the former holder. Once it has returned, another process can acquire the name. It raises
	// the fence first: the Fence that it returns is larger than that of every earlier grant and smaller than that of every
	// later grant.
	Break(ctx context.Context, name string) (Holder, error)
}

// Holder describes the holder of a name.
type Holder struct {
	Name      string
	Owner     string        // "" if the name is free
	Remaining time.Duration // until the grant expires; 0 if it ends with the holder's session
	Fence     int64
}

// MaxNameLength is the largest length of a name in bytes, which is that of ShedLock's table.
const MaxNameLength = 64

// checkName refuses names that a server would truncate, case-fold, or read as part of its own syntax.
func checkName(name string) error {
	if name == "" || len(name) > MaxNameLength {
		return fmt.Errorf("%w: a name has 1 to %d bytes, not %d", ErrInvalid, MaxNameLength, len(name))
	}
	invalid := func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }
	if strings.ContainsFunc(name, invalid) {
		return fmt.Errorf("%w: the name %q must be printable ASCII without spaces and braces", ErrInvalid, name)
	}
	return nil
}

// unavailable returns ErrUnavailable with err, and with the cause of the caller's context if that has ended.
func unavailable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, cause, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// sleep waits for d. It returns the context's error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// detach returns a context with ctx's deadline that is not canceled with ctx.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if end, bounded := ctx.Deadline(); bounded {
		return context.WithDeadline(detached, end)
	}
	return detached, func() {}
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrHeld says that the name has an owner. A [HeldError] says who.
	ErrHeld = errors.New("lock: held")
	// ErrUnavailable says that nobody can tell whether the name has an owner.
	ErrUnavailable = errors.New("lock: unavailable")
	// ErrLost says that the lease is no longer the caller's. The five below say why; each of them is ErrLost.
	ErrLost = errors.New("lock: lost")

	// ErrExpired says that the lease's time was over, or that the server has no trace of it any more.
	ErrExpired = fmt.Errorf("%w: expired", ErrLost)
	// ErrStolen says that somebody else has the name.
	ErrStolen = fmt.Errorf("%w: stolen", ErrLost)
	// ErrUnreachable says that renewals failed until the lease could no longer be trusted.
	ErrUnreachable = fmt.Errorf("%w: unreachable", ErrLost)
	// ErrMaxHold says that the name was held for as long as [Hold.AtMost] allows.
	ErrMaxHold = fmt.Errorf("%w: held for too long", ErrLost)
	// ErrStalled says that the work did not call [Lease.Beat] in time.
	ErrStalled = fmt.Errorf("%w: no progress", ErrLost)

	// ErrInvalid says that a name or a hold makes no sense. Nothing was sent.
	ErrInvalid = errors.New("lock: invalid")
	// ErrFenced says that a newer lease has been in use, so that a write under this one must not happen.
	ErrFenced = errors.New("lock: fenced off by a newer lease")
)

// HeldError is ErrHeld with who has the name, and for how long still.
type HeldError struct {
	Owner string        // "" if the server does not say
	Left  time.Duration // unless renewed or released; 0 if the server does not say
}

func (e *HeldError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "another"
	}
	if e.Left > 0 {
		return fmt.Sprintf("lock: held by %s for %s", owner, e.Left.Round(time.Millisecond))
	}
	return "lock: held by " + owner
}

// Unwrap makes every HeldError an ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Strategy is one way to have a name owned once. It keeps no time of its own: the server's clock ends a lease.
// Safe for concurrent use.
type Strategy interface {
	// Acquire takes name for ttl at once or not at all: a HeldError says who has it, ErrUnavailable that nobody can
	// tell. owner is unique to the call. A name or ttl that the strategy can't keep is ErrInvalid.
	//
	// After ErrUnavailable the name may have been taken all the same; a grant that comes with that error is for
	// Release only.
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error)
}

// Grant is a name that was acquired, until its ttl is over or it is released. One goroutine at a time may use it.
type Grant interface {
	// Fence is larger than that of every earlier grant of the name, after a restart or a flush of the server too.
	Fence() int64
	// Extend moves the end to ttl from now. ErrLost if the name is no longer the grant's, ErrUnavailable if nobody can
	// tell. Repeating it does no harm.
	Extend(ctx context.Context, ttl time.Duration) error
	// Release frees the name after keep, at once if keep is 0. ErrLost if the name was no longer the grant's,
	// ErrUnavailable if nobody can tell. Repeating it does no harm.
	Release(ctx context.Context, keep time.Duration) error
}

// Watcher is a Strategy that tells at once when a name is released, so that whoever waits need not ask again and again.
// An end that nobody announces, such as an expired lease, it does not tell.
type Watcher interface {
	// Watch returns a channel that has a value when the watch has begun and after each release of name from then on, until
	// stop is called.
	Watch(ctx context.Context, name string) (freed <-chan struct{}, stop func(), err error)
}

// Registry is what an operator sees of a strategy, and does to it.
type Registry interface {
	// List returns the names that are held, in order.
	List(ctx context.Context) ([]Holder, error)
	// Show returns who has name; the Owner is "" if nobody has.
	Show(ctx context.Context, name string) (Holder, error)
	// Break takes the name away from whoever has it, and returns whom. It moves the fence first: the Holder's Fence is
	// larger than any granted so far, and smaller than any granted from now on.
	Break(ctx context.Context, name string) (Holder, error)
}

// Holder is who has a name.
type Holder struct {
	Name  string
	Owner string        // "" if nobody has it
	Left  time.Duration // until it ends, unless renewed; 0 if it ends with the holder's session
	Fence int64
}

// MaxName is how many bytes a name may have; ShedLock's table holds as many.
const MaxName = 64

// checkName refuses what some strategy would cut, fold or take for something else.
func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: a name has 1 to %d bytes, not %d", ErrInvalid, MaxName, len(name))
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }
	if strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%w: the name %q has something other than printable ASCII, or a space or a brace", ErrInvalid, name)
	}
	return nil
}

// unavailable is ErrUnavailable with its reason, the end of the caller's context included.
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

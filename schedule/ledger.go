package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
)

// ledgerLock is a lock.Strategy that holds a job's name by its run in the ledger: while a run is under way nobody else
// begins one. So it is package lock that keeps a run alive, and that ends the work before another may take it over.
type ledgerLock struct{ Ledger }

// attempt is one instance's part in a run, and its lock.Grant. It goes to Acquire with the context.
type attempt struct {
	ledger Ledger
	due    func(cronjob.State, time.Time) time.Time
	job    string
	owner  string
	run    cronjob.Run
	end    *cronjob.End // nil for a run that another is to take over
	left   bool         // the work did not stop
}

type attemptKey struct{}

// Acquire implements lock.Strategy. Besides, dispatch.ErrNothingDue.
func (l ledgerLock) Acquire(ctx context.Context, job, owner string, term time.Duration) (lock.Grant, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, fmt.Errorf("%w: no attempt", lock.ErrInvalid)
	}
	a.ledger, a.job, a.owner = l.Ledger, job, owner
	var running *cronjob.RunningError
	var err error
	a.run, err = l.BeginRun(ctx, job, owner, term, a.due)
	switch {
	case err == nil:
		return a, nil
	case errors.As(err, &running):
		return nil, &lock.HeldError{Owner: running.Owner, Left: running.Left}
	case errors.Is(err, dispatch.ErrUnknown):
		return a, fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
	case errors.Is(err, dispatch.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
	}
	return nil, err
}

// Fence implements lock.Grant.
func (a *attempt) Fence() int64 { return a.run.Fence }

// Extend implements lock.Grant.
func (a *attempt) Extend(ctx context.Context, term time.Duration) error {
	return asLock(a.ledger.ExtendRun(ctx, a.run, term))
}

// Release implements lock.Grant. It writes how the run ended, or has it taken over: at once, or, because its work is still
// at it, when its time is over.
func (a *attempt) Release(ctx context.Context, _ time.Duration) error {
	switch {
	case a.end != nil:
		return asLock(a.ledger.EndRun(ctx, a.run, *a.end))
	case a.left:
		return nil
	}
	return asLock(a.ledger.InterruptRun(ctx, a.job, a.owner))
}

func asLock(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dispatch.ErrNotLeased):
		return fmt.Errorf("%w: %w", lock.ErrStolen, err)
	}
	return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
}

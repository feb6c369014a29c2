package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

// ledgerLock is a lock.Strategy that holds a job's name by its run in the ledger: while one run is under way, no other
// begins. So package lock extends the run, and cancels the work before another instance may take the run over.
type ledgerLock struct{ ledger }

// attempt is one instance's part in a run. It reaches Acquire in the context, and is the lock.Grant that Acquire returns.
type attempt struct {
	ledger    ledger
	due       func(cronjob.JobState, time.Time) time.Time
	run       cronjob.Run
	end       cronjob.Outcome
	abandoned bool // the work has not returned
}

type attemptKey struct{}

// Acquire implements lock.Strategy. It also returns cronjob.ErrNotDue and cronjob.ErrNotFound.
func (l ledgerLock) Acquire(ctx context.Context, job, owner string, term time.Duration) (lock.Grant, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, fmt.Errorf("%w: no attempt", lock.ErrInvalid)
	}
	a.ledger = l.ledger
	a.end.Status = cronjob.Interrupted // unless the work says more
	var running *cronjob.RunningError
	var err error
	a.run, err = l.BeginRun(ctx, job, owner, term, a.due)
	switch {
	case err == nil:
		return a, nil
	case errors.As(err, &running):
		return nil, &lock.HeldError{Owner: running.Owner, Remaining: running.Remaining}
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
	return asLock(a.ledger.RenewRun(ctx, a.run, term))
}

// Release implements lock.Grant. It writes how the run ended. A run that was interrupted may be taken over at once, or, if
// its work has not returned, when its term is over.
func (a *attempt) Release(ctx context.Context, _ time.Duration) error {
	if a.abandoned && a.end.Status == cronjob.Interrupted {
		return nil
	}
	return asLock(a.ledger.EndRun(ctx, a.run, a.end))
}

// asLock turns an error of the ledger into one of package lock.
func asLock(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dispatch.ErrNotLeased):
		return fmt.Errorf("%w: %w", lock.ErrStolen, err)
	}
	return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
}

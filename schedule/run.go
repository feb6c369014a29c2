package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

var errAbandoned = errors.New("the work was abandoned because it did not return")

// runDue begins the run that is due, performs it, and records how it ended. It reports whether there was one. ctx ends
// with the job's lock.
func (j *job) runDue(ctx context.Context) (ran bool) {
	a := &attempt{due: j.due}
	err := j.s.runs.Do(context.WithValue(ctx, attemptKey{}, a), j.Name, j.runHold, func(ctx context.Context) error {
		ran = true
		j.unblocked()
		j.perform(ctx, a)
		return nil
	})
	switch {
	case ran || ctx.Err() != nil:
	case errors.Is(err, lock.ErrHeld):
		j.unblocked()
		j.metrics.skipped("held")
	case errors.Is(err, cronjob.ErrNotDue): // it has run since the ledger was read
		j.unblocked()
	default:
		j.blocked("unavailable", "the ledger is unavailable", err)
	}
	return ran
}

func (j *job) perform(ctx context.Context, a *attempt) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.maxRun, lock.ErrMaxHold)
	defer cancel()
	began := time.Now()
	log := j.s.Log.With("job", j.Name, "slot", a.run.Slot, "attempt", a.run.Attempt)
	result, err := j.call(ctx, a.run)
	took := time.Since(began)
	a.end, a.abandoned = j.endOf(ctx, result, err), errors.Is(err, errAbandoned)
	j.metrics.ran(a.end.Status, took)
	switch a.end.Status {
	case cronjob.Succeeded:
		log.Debug("job succeeded", "took", took, "result", result)
	case cronjob.Failed:
		log.Error("job failed; it runs again at its next slot", "took", took, "error", a.end.Error)
	default:
		log.Warn("job interrupted; an instance will take the run over", "took", took, "cause", context.Cause(ctx), "error", err)
	}
}

// endOf returns how a run ended whose work returned result and err.
func (j *job) endOf(ctx context.Context, result string, err error) cronjob.Outcome {
	switch {
	case err == nil:
		return cronjob.Outcome{Status: cronjob.Succeeded, Result: result}
	case ctx.Err() == nil || j.timedOut(context.Cause(ctx)):
		return cronjob.Outcome{Status: cronjob.Failed, Result: result, Error: err.Error()}
	}
	return cronjob.Outcome{Status: cronjob.Interrupted}
}

// timedOut reports whether a run's context ended, with that cause, because the run took too long.
func (j *job) timedOut(cause error) bool {
	return errors.Is(cause, lock.ErrMaxHold) || j.Hold.RenewEvery == 0 && errors.Is(cause, lock.ErrExpired)
}

// call does the work of a run. Work that does not return within GracePeriod after its context has ended is abandoned.
func (j *job) call(ctx context.Context, run cronjob.Run) (string, error) {
	type returned struct {
		result string
		err    error
	}
	done := make(chan returned, 1)
	go func() {
		r := returned{err: errors.New("the work called runtime.Goexit")}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.result, r.err = j.Work(ctx, run)
	}()
	select {
	case r := <-done:
		return r.result, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(j.s.GracePeriod)
	defer grace.Stop()
	select {
	case r := <-done:
		if r.err != nil && j.timedOut(context.Cause(ctx)) {
			r.err = fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
		}
		return r.result, r.err
	case <-grace.C:
	}
	j.stuck.Add(1)
	go func() {
		<-done
		j.stuck.Add(-1)
	}()
	return "", fmt.Errorf("%w: %w within %s", context.Cause(ctx), errAbandoned, j.s.GracePeriod)
}

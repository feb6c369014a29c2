package schedule

import (
	"context"
	"slices"
	"time"

	"firsttap/cronjob"
)

// checkLedger has watch read the ledger now.
func (s *Scheduler) checkLedger() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// watch wakes jobs that have no timer for their next run: a missed slot, a run to take over, or a requested run. It reads the ledger only
// if there may be such a job, so that an idle instance sends one statement for each poll.
func (s *Scheduler) watch(ctx context.Context) {
	tick := time.NewTicker(s.PollInterval)
	defer tick.Stop()
	for {
		must := false
		select {
		case <-tick.C:
		case <-s.check:
			must = true
		case <-ctx.Done():
			return
		}
		if must || s.mayRun(ctx) || time.Since(s.readAt) >= maxReadingAge {
			s.readLedger(ctx)
		}
	}
}

// ledgerTimeout bounds a poll, and a reading or writing of the ledger here.
const ledgerTimeout = 5 * time.Second

// maxReadingAge is how old a reading of the ledger may be. After a failover, an older ledger is noticed by then.
const maxReadingAge = 10 * time.Second

// readLedger reads the ledger, which enters the jobs that it does not know, and wakes the jobs whose runs may begin. It reports whether it
// succeeded.
func (s *Scheduler) readLedger(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	sent := s.Now()
	states, now, err := s.Ledger.JobStates(bounded, s.names)
	if err != nil {
		if !s.unread && ctx.Err() == nil {
			s.Log.Warn("job ledger not read; until it is, no missed or requested run begins, and after a start no run at all", "error", err)
		}
		s.unread = true
		return false
	}
	if s.unread {
		s.Log.Warn("job ledger read again; jobs run")
	}
	s.clock.sync(now, sent)
	s.states, s.readAt, s.unread = states, time.Now(), false
	for _, j := range s.jobs {
		state := states[j.Name]
		j.metrics.seen(state)
		if !j.toRun(state, now) {
			j.unanswered.Store(false)
			continue
		}
		select {
		case j.wake <- struct{}{}:
		default: // it has been asked already
		}
	}
	return true
}

// mayRun looks what is due. It reports whether a run may have been requested or left by an instance that died, or whether, by the last
// reading of the ledger, a run is under way or a slot was missed.
func (s *Scheduler) mayRun(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	sent := s.Now()
	open, now, err := s.Ledger.NextOpenRun(ctx, s.names)
	for _, j := range s.jobs {
		j.askDemand(ctx, err)
	}
	if err != nil {
		return true // the ledger may be readable all the same
	}
	s.clock.sync(now, sent)
	return !open.IsZero() && !open.After(now) || slices.ContainsFunc(s.jobs, func(j *job) bool {
		state := s.states[j.Name]
		return len(state.Unfinished) > 0 || j.toRun(state, now)
	})
}

// toRun reports whether a run of the job may begin, or is to be given up, on any instance.
func (j *job) toRun(state cronjob.JobState, now time.Time) bool {
	_, lost, err := state.Next(now, j.dueBy(state, now, now)) // the job's own timer begins a slot early
	return err == nil || len(lost) > 0
}

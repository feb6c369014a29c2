package schedule

import (
	"context"
	"time"

	"firsttap/dispatch/cronjob"
)

// checkLedger has watch read the ledger now.
func (s *Scheduler) checkLedger() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// watch wakes the jobs that are due by the database's clock. It reads the ledger only if there may be such a job, so that an idle instance
// sends one statement for each poll.
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
// succeeded. If not, it wakes those that are due by the last reading: they report that they do not run.
func (s *Scheduler) readLedger(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	states, now, err := s.Ledger.JobStates(bounded, s.names)
	switch {
	case err == nil:
		if s.unread {
			s.Log.Warn("job ledger read again; jobs run")
		}
		s.heard()
		s.states, s.statesAt, s.readAt = states, now, time.Now()
		for _, j := range s.jobs {
			j.metrics.seen(states[j.Name], now)
		}
	case !s.unread && ctx.Err() == nil:
		s.Log.Warn("job ledger not read; until it is, no missed or requested run begins, and after a start no run at all", "error", err)
	}
	s.unread = err != nil
	if s.states == nil {
		return false
	}
	now = s.statesAt.Add(time.Since(s.readAt))
	for _, j := range s.jobs {
		if !j.toRun(s.states[j.Name], now) {
			j.unanswered.Store(false)
			continue
		}
		select {
		case j.wake <- struct{}{}:
		default: // it has been asked already
		}
	}
	return err == nil
}

// mayRun looks what is due. It reports whether a run may have been requested or left by an instance that died, or whether, by the last
// reading of the ledger, a run is under way or a slot was missed.
func (s *Scheduler) mayRun(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	open, now, err := s.Ledger.NextOpenRun(ctx, s.names)
	for _, j := range s.jobs {
		j.askDemand(ctx, err)
	}
	if err != nil {
		return true // the ledger may be readable all the same
	}
	s.heard()
	may := !open.IsZero() && !open.After(now)
	for _, j := range s.jobs {
		state := s.states[j.Name]
		if len(state.Unfinished) > 0 || j.toRun(state, now) {
			may = true
		} else if j.Demand != nil && state.Slot != nil {
			j.metrics.idled()
		}
	}
	return may
}

// toRun reports whether a run of the job may begin, or is to be given up, on any instance.
func (j *job) toRun(state cronjob.JobState, now time.Time) bool {
	_, lost, err := state.Next(now, j.due(state, now))
	return err == nil || len(lost) > 0
}

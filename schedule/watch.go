package schedule

import (
	"context"
	"log/slog"
	"slices"
	"sync"
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

// watch wakes jobs that have no timer for their next run: a missed slot, a run to take over, or a requested run.
func (s *Scheduler) watch(ctx context.Context) {
	tick := time.NewTicker(s.PollInterval)
	defer tick.Stop()
	for {
		checked := false
		select {
		case <-tick.C:
			s.skips.write(ctx, s.Ledger, s.Log)
		case <-s.check:
			checked = true
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.PollInterval)
			s.skips.write(last, s.Ledger, s.Log)
			cancel()
			return
		}
		s.catchUp(ctx, checked)
	}
}

// ledgerTimeout bounds a look, and a reading or writing of the ledger here.
const ledgerTimeout = 5 * time.Second

// maxReadingAge is how old a reading of the ledger may be. After a failover, an older ledger is noticed by then.
const maxReadingAge = 10 * time.Second

// catchUp wakes the jobs whose runs may begin. Unless it must read the ledger, it does so only if there may be such a job.
func (s *Scheduler) catchUp(ctx context.Context, must bool) {
	if !must && !s.mayRun(ctx) && time.Since(s.readAt) < maxReadingAge {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	sent := s.Now()
	states, now, err := s.Ledger.JobStates(ctx, s.names)
	if err != nil {
		if !s.unread && ctx.Err() == nil {
			s.Log.Warn("job ledger not read; missed and requested runs begin after the next successful read", "error", err)
		}
		s.unread = true
		return
	}
	s.clock.sync(now, sent)
	s.heard()
	s.states, s.readAt, s.unread = states, time.Now(), false
	if len(states) < len(s.names) { // after a failover, the database may lack the rows of new jobs
		s.registerAgain(ctx)
	}
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
}

func (s *Scheduler) registerAgain(ctx context.Context) {
	if _, err := s.Ledger.RegisterJobs(ctx, s.names); err != nil {
		s.Log.Warn("jobs that the ledger lacks not registered; they do not run until a retry succeeds", "error", err)
		return
	}
	s.Log.Warn("the ledger lacked some of this instance's jobs; they are registered again", "jobs", s.names)
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
	s.heard()
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

// skips holds the slots that this instance skipped because another ran them, until the ledger has counted them.
type skips struct {
	mu   sync.Mutex
	last map[string]time.Time // the latest slot by job, skipped or run
	todo []skip

	failing bool // the last try to count some has failed; only write uses it
}

type skip struct {
	job   string
	slot  time.Time
	tries int
}

const (
	// maxSkips bounds what is kept while the database is away.
	maxSkips = 1000
	// skipTries is how often a slot's run is looked for: its instance may be about to begin it.
	skipTries = 5
)

// add counts each slot once, and none that this instance has run. It reports whether it counted this one.
func (k *skips) add(job string, slot time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := k.advance(job, slot)
	if counts && len(k.todo) < maxSkips {
		k.todo = append(k.todo, skip{job: job, slot: slot})
	}
	return counts
}

// ran records that this instance runs the slot.
func (k *skips) ran(job string, slot time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(job, slot)
	k.todo = slices.DeleteFunc(k.todo, func(one skip) bool { return one.job == job && one.slot.Equal(slot) })
}

// advance reports whether the slot is later than every one before.
func (k *skips) advance(job string, slot time.Time) bool {
	if k.last == nil {
		k.last = map[string]time.Time{}
	}
	later := slot.After(k.last[job])
	if later {
		k.last[job] = slot
	}
	return later
}

// write counts the skips in the ledger, and keeps those whose run was not found or could not be counted.
func (k *skips) write(ctx context.Context, ledger RunStore, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	k.mu.Lock()
	todo := k.todo
	k.todo = nil
	k.mu.Unlock()
	var again []skip
	failed := k.failing && len(todo) == 0
	for i, one := range todo {
		found, err := ledger.CountSkippedRun(ctx, one.job, one.slot)
		if err != nil {
			if failed = true; !k.failing {
				log.Warn("skipped runs not counted in the ledger; they are counted when it answers again", "runs", len(todo)-i, "error", err)
			}
			again = append(again, todo[i:]...)
			break
		}
		if one.tries++; !found && one.tries < skipTries {
			again = append(again, one)
		}
	}
	k.failing = failed
	k.mu.Lock()
	k.todo = append(again, k.todo...)
	k.mu.Unlock()
}

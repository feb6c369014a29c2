package schedule

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"firsttap/cronjob"
)

// look has the ledger looked at now.
func (s *Scheduler) look() {
	select {
	case s.looking <- struct{}{}:
	default:
	}
}

// watch runs what nobody does: slots that were missed, runs whose instance has died, and what somebody has asked for.
func (s *Scheduler) watch(ctx context.Context) {
	tick := time.NewTicker(s.Look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.skips.write(ctx, s.Ledger, s.Log)
		case <-s.looking:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Look)
			s.skips.write(last, s.Ledger, s.Log)
			cancel()
			return
		}
		s.catchUp(ctx)
	}
}

// lookTime is how long the ledger is waited for.
const lookTime = 5 * time.Second

func (s *Scheduler) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	sent := s.Now()
	states, now, err := s.Ledger.JobStates(ctx, s.names)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Warn("the ledger of the jobs can't be read", "error", err)
		}
		return
	}
	s.clock.set(now, sent)
	for _, j := range s.jobs {
		state := states[j.Name]
		j.metrics.seen(state)
		if j.toRun(state, now) {
			_ = j.cron.RunNow() // or the next time
		}
	}
}

// toRun reports whether something of the job is to be run, or given up, by whoever comes first.
func (j *job) toRun(state cronjob.State, now time.Time) bool {
	_, lost, err := state.Next(now, j.dueBy(state, now, now)) // before its time, the job's own timer sees to it
	return err == nil || len(lost) > 0
}

// skips are slots that this instance has left to others, until that is written.
type skips struct {
	mu   sync.Mutex
	last map[string]time.Time // by job
	todo []skip
}

type skip struct {
	job   string
	slot  time.Time
	tries int
}

const (
	// mostSkips bounds what is to be written while the database is away.
	mostSkips = 1000
	// skipTries is how often the slot is looked for: whoever runs it may be about to begin.
	skipTries = 5
)

// add counts a slot once, and none that this instance has run. It reports whether it did.
func (k *skips) add(job string, slot time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := k.passed(job, slot)
	if counts && len(k.todo) < mostSkips {
		k.todo = append(k.todo, skip{job: job, slot: slot})
	}
	return counts
}

// ran says that this instance runs the slot.
func (k *skips) ran(job string, slot time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passed(job, slot)
	k.todo = slices.DeleteFunc(k.todo, func(one skip) bool { return one.job == job && one.slot.Equal(slot) })
}

// passed reports whether the slot is later than any before.
func (k *skips) passed(job string, slot time.Time) bool {
	if k.last == nil {
		k.last = map[string]time.Time{}
	}
	later := slot.After(k.last[job])
	if later {
		k.last[job] = slot
	}
	return later
}

func (k *skips) write(ctx context.Context, ledger Ledger, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	k.mu.Lock()
	todo := k.todo
	k.todo = nil
	k.mu.Unlock()
	var again []skip
	for i, one := range todo {
		found, err := ledger.SkipRun(ctx, one.job, one.slot)
		if err != nil {
			log.Warn("who skipped runs was not written yet", "runs", len(todo)-i, "error", err)
			again = append(again, todo[i:]...)
			break
		}
		if one.tries++; !found && one.tries < skipTries {
			again = append(again, one)
		}
	}
	k.mu.Lock()
	k.todo = append(again, k.todo...)
	k.mu.Unlock()
}

package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
)

// Jobs returns the jobs as they stand, by name. dispatch.ErrUnavailable. That nobody can tell who holds a lock is said in
// the job.
func (s *Scheduler) Jobs(ctx context.Context) ([]cronjob.Job, error) {
	states, now, err := s.Ledger.JobStates(ctx, s.names)
	if err != nil {
		return nil, err
	}
	locks := make([]string, len(s.jobs))
	for i, j := range s.jobs {
		locks[i] = j.lockName()
	}
	shown := s.show(ctx, locks)
	found := make([]cronjob.Job, len(s.jobs))
	for i, j := range s.jobs {
		found[i] = describe(j, states[j.Name], now)
		switch l := shown[locks[i]]; {
		case l.err != nil:
			found[i].LockProblem = l.err.Error()
		case l.Owner != "":
			found[i].Holder = &cronjob.Holder{Owner: l.Owner, Left: l.Left}
		}
		if found[i].Last, err = s.Ledger.LastRun(ctx, j.Name); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b cronjob.Job) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

func describe(j *job, state cronjob.State, now time.Time) cronjob.Job {
	d := cronjob.Job{State: state, Schedule: j.When.String(), Zone: j.s.Zone, OnLeader: j.OnLeader}
	d.Name = j.Name
	for i := range d.Open {
		d.Open[i] = d.Open[i].At(now)
	}
	if next := j.When.next(state, now, 0); next.After(now) {
		d.NextAt = &next
	}
	return d
}

// Held returns which of the jobs' locks, the leader's and the Others somebody has, by name. dispatch.ErrUnavailable where
// nobody can tell of one of them.
//
// It asks for each by its name, and not for the list of all: for that a Redis goes through every key it has.
func (s *Scheduler) Held(ctx context.Context) ([]cronjob.HeldLock, error) {
	names := slices.Concat(s.names, []string{leadName}, s.Others)
	slices.Sort(names)
	shown := s.show(ctx, names)
	var held []cronjob.HeldLock
	for _, name := range names {
		switch l := shown[name]; {
		case l.err != nil:
			return nil, fmt.Errorf("%w: %w", dispatch.ErrUnavailable, l.err)
		case l.Owner != "":
			held = append(held, cronjob.HeldLock{Name: name, Holder: cronjob.Holder{Owner: l.Owner, Left: l.Left}, Fence: l.Fence})
		}
	}
	return held, nil
}

// holderTime is how long who holds the locks is asked for.
const holderTime = time.Second

// shownLock is who holds a lock, or why nobody can tell.
type shownLock struct {
	lock.Holder
	err error
}

// show asks who holds each of the names, once and all at once: a server that is away is waited for once, not for each.
func (s *Scheduler) show(ctx context.Context, names []string) map[string]shownLock {
	ctx, cancel := context.WithTimeout(ctx, holderTime)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	shown := map[string]shownLock{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		asking.Go(func() {
			h, err := s.Locks.Show(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			shown[name] = shownLock{h, err}
		})
	}
	asking.Wait()
	return shown
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
// dispatch.ErrJobNotFound, dispatch.ErrBadCursor.
func (s *Scheduler) Runs(ctx context.Context, name string, page dispatch.Page) ([]cronjob.Run, string, error) {
	if !slices.Contains(s.names, name) {
		return nil, "", cronjob.ErrNotFound
	}
	return s.Ledger.Runs(ctx, name, page)
}

// RunNow asks for a run of the job besides those of the schedule, by whichever instance comes first, as soon as none is
// under way. The run that was asked for before and has not begun is the same. dispatch.ErrJobNotFound.
func (s *Scheduler) RunNow(ctx context.Context, name, actor string) (cronjob.Run, error) {
	if !slices.Contains(s.names, name) {
		return cronjob.Run{}, cronjob.ErrNotFound
	}
	run, err := s.Ledger.RequestRun(ctx, name, actor)
	if err == nil {
		s.look()
	}
	return run, err
}

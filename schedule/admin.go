package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

// Jobs returns the state of the jobs, ordered by name; dispatch.ErrUnavailable. A job whose lock is unavailable has a
// LockProblem.
func (s *Scheduler) Jobs(ctx context.Context) ([]cronjob.Job, error) {
	states, now, err := s.Ledger.JobStates(ctx, s.names)
	if err != nil {
		return nil, err
	}
	locks := make([]string, len(s.jobs))
	for i, j := range s.jobs {
		locks[i] = j.LockName()
	}
	shown := s.show(ctx, locks)
	found := make([]cronjob.Job, len(s.jobs))
	for i, j := range s.jobs {
		found[i] = view(j, states[j.Name], now)
		switch l := shown[locks[i]]; {
		case l.err != nil:
			found[i].LockProblem = l.err.Error()
		case l.Owner != "":
			found[i].Holder = &cronjob.Holder{Owner: l.Owner, Remaining: l.Remaining}
		}
		// At most one run is under way and one is requested, so the latest that has ended is among the first three.
		runs, _, err := s.Ledger.Runs(ctx, j.Name, dispatch.Page{Limit: 3})
		if err != nil {
			return nil, err
		}
		if k := slices.IndexFunc(runs, func(r cronjob.Run) bool { return r.EndedAt != nil }); k >= 0 {
			found[i].Last = &runs[k]
		}
	}
	slices.SortFunc(found, func(a, b cronjob.Job) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

func view(j *job, state cronjob.JobState, now time.Time) cronjob.Job {
	d := cronjob.Job{
		JobState: state, Schedule: j.When.String(), Off: j.Off, Zone: j.s.Zone, OnLeader: j.OnLeader,
		AtMost: j.maxRun, AtLeast: j.Hold.AtLeast,
	}
	switch {
	case j.OnLeader:
		d.Lease = j.s.LeaderLease
	case j.Hold.RenewEvery > 0:
		d.Lease = j.Hold.TTL
	}
	d.Name = j.Name
	for i := range d.Unfinished {
		d.Unfinished[i] = d.Unfinished[i].At(now)
	}
	if next := j.When.next(state, now, 0); next.After(now) && !j.Off {
		d.NextAt = &next
	}
	if j.Off && len(state.Unfinished) == 0 {
		d.Blocked = nil // it is not to run
	}
	return d
}

// HeldLocks returns those of the jobs' locks, the leader's and the OtherLocks that are held, ordered by name. dispatch.ErrUnavailable
// if one of them is unavailable.
//
// It asks for each lock by name, and not for a list: for a list Redis would go through all its keys.
func (s *Scheduler) HeldLocks(ctx context.Context) ([]cronjob.HeldLock, error) {
	names := slices.Concat(s.names, []string{leaderLock}, s.OtherLocks)
	slices.Sort(names)
	shown := s.show(ctx, names)
	var held []cronjob.HeldLock
	for _, name := range names {
		switch l := shown[name]; {
		case l.err != nil:
			return nil, fmt.Errorf("%w: %w", dispatch.ErrUnavailable, l.err)
		case l.Owner != "":
			holder := cronjob.Holder{Owner: l.Owner, Remaining: l.Remaining}
			held = append(held, cronjob.HeldLock{Name: name, Holder: holder, Fence: l.Fence})
		}
	}
	return held, nil
}

// showTimeout bounds the questions for the holders of all locks.
const showTimeout = time.Second

// shownLock is a lock's holder, or the reason why it is not known.
type shownLock struct {
	lock.Holder
	err error
}

// show looks up the holders of all names concurrently, so that an unavailable server delays the call only once.
func (s *Scheduler) show(ctx context.Context, names []string) map[string]shownLock {
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
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
// cronjob.ErrNotFound, dispatch.ErrBadCursor.
func (s *Scheduler) Runs(ctx context.Context, name string, page dispatch.Page) ([]cronjob.Run, string, error) {
	if !slices.Contains(s.names, name) {
		return nil, "", cronjob.ErrNotFound
	}
	return s.Ledger.Runs(ctx, name, page)
}

// RunNow requests a run of the job besides those of the schedule. Any instance may run it, as soon as no other run of the
// job is under way. A run that was requested before and has not begun is returned instead of another. cronjob.ErrNotFound;
// dispatch.ErrUnavailable also if no instance has registered the job yet.
func (s *Scheduler) RunNow(ctx context.Context, name, actor string) (cronjob.Run, error) {
	if !slices.Contains(s.names, name) {
		return cronjob.Run{}, cronjob.ErrNotFound
	}
	run, err := s.Ledger.RequestRun(ctx, name, actor)
	if errors.Is(err, cronjob.ErrNotFound) {
		return run, fmt.Errorf("%w: no instance has registered the job yet", dispatch.ErrUnavailable)
	}
	if err == nil {
		s.checkLedger()
	}
	return run, err
}

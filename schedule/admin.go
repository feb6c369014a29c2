package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"firsttap/dispatch"
)

// Jobs returns the jobs as they stand, by name. dispatch.ErrUnavailable. That nobody can tell who holds a lock is said in
// the job.
func (s *Scheduler) Jobs(ctx context.Context) ([]dispatch.Job, error) {
	states, now, err := s.Ledger.JobStates(ctx, s.names)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, holderTime)
	defer cancel()
	found := make([]dispatch.Job, len(s.jobs))
	for i, j := range s.jobs {
		found[i] = describe(j, states[j.Name], now)
		s.showHolder(asking, j, &found[i])
		if found[i].Last, err = s.Ledger.LastRun(ctx, j.Name); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b dispatch.Job) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

func describe(j *job, state dispatch.JobState, now time.Time) dispatch.Job {
	d := dispatch.Job{JobState: state, Schedule: j.When.String(), Zone: j.s.Zone, OnLeader: j.OnLeader}
	d.Name = j.Name
	for i := range d.Open {
		d.Open[i] = d.Open[i].At(now)
	}
	if next := j.When.next(state, now, 0); next.After(now) {
		d.NextAt = &next
	}
	return d
}

// holderTime is how long who holds the jobs' locks is asked for.
const holderTime = time.Second

func (s *Scheduler) showHolder(ctx context.Context, j *job, d *dispatch.Job) {
	name := j.Name
	if j.OnLeader {
		name = leadName
	}
	switch h, err := s.Locks.Show(ctx, name); {
	case err != nil:
		d.LockProblem = err.Error()
	case h.Owner != "":
		d.Holder = &dispatch.JobHolder{Owner: h.Owner, Left: h.Left}
	}
}

// Held returns the locks that somebody has, by name: the jobs', the leader's, and what else goes by them.
// dispatch.ErrUnavailable where nobody can tell.
func (s *Scheduler) Held(ctx context.Context) ([]dispatch.HeldLock, error) {
	asking, cancel := context.WithTimeout(ctx, holderTime)
	defer cancel()
	holders, err := s.Locks.List(asking)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
	}
	held := make([]dispatch.HeldLock, len(holders))
	for i, h := range holders {
		held[i] = dispatch.HeldLock{Name: h.Name, JobHolder: dispatch.JobHolder{Owner: h.Owner, Left: h.Left}, Fence: h.Fence}
	}
	return held, nil
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
// dispatch.ErrJobNotFound, dispatch.ErrBadCursor.
func (s *Scheduler) Runs(ctx context.Context, name string, page dispatch.Page) ([]dispatch.JobRun, string, error) {
	if !slices.Contains(s.names, name) {
		return nil, "", dispatch.ErrJobNotFound
	}
	return s.Ledger.Runs(ctx, name, page)
}

// RunNow asks for a run of the job besides those of the schedule, by whichever instance comes first, as soon as none is
// under way. The run that was asked for before and has not begun is the same. dispatch.ErrJobNotFound.
func (s *Scheduler) RunNow(ctx context.Context, name, actor string) (dispatch.JobRun, error) {
	if !slices.Contains(s.names, name) {
		return dispatch.JobRun{}, dispatch.ErrJobNotFound
	}
	run, err := s.Ledger.RequestRun(ctx, name, actor)
	if err == nil {
		s.look()
	}
	return run, err
}

// Package cronjob defines scheduled jobs and their runs, and decides which run is next. The ledger of the runs is in package
// repository, the scheduler in package schedule.
package cronjob

import (
	"errors"
	"fmt"
	"time"
)

// Why no run of a job begins.
var (
	ErrNotFound = errors.New("no such job")
	ErrRunning  = errors.New("the job is running")
	ErrNotDue   = errors.New("the job is not due")
)

// Status is the state of a run of a scheduled job.
type Status string

// A run is QUEUED from its request until it begins, RUNNING while an instance performs it, and then SUCCEEDED or FAILED. It
// is INTERRUPTED while no instance performs it although it has not ended: the next instance takes it over.
const (
	Queued      Status = "QUEUED"
	Running     Status = "RUNNING"
	Interrupted Status = "INTERRUPTED"
	Succeeded   Status = "SUCCEEDED"
	Failed      Status = "FAILED"
)

// Run is the run of one slot of a scheduled job. It stays the same run when it is taken over.
type Run struct {
	Job    string
	Slot   time.Time // when it was scheduled for, or requested; unique for the job
	Status Status
	// Attempt counts the instances that have begun the run, without those that released it when they stopped.
	Attempt int
	Owner   string // the latest attempt, as instance/id; "" before the first
	// Fence grows with each attempt at a run of the job.
	Fence       int64
	RequestedBy string // the API key that requested it; "" for the schedule
	BeganAt     *time.Time
	EndedAt     *time.Time
	LeasedUntil *time.Time // when it may be taken over, unless it is extended
	Result      string
	Error       string
}

// JobState is what the ledger knows of a scheduled job.
type JobState struct {
	Name         string
	RegisteredAt time.Time
	Slot         *time.Time // the last one that was begun on schedule
	EndedAt      *time.Time // when the last run ended
	SucceededAt  *time.Time
	Blocked      *BlockReport
	Unfinished   []Run // the runs that have not ended, the oldest first
}

// Job is a scheduled job as operators see it.
type Job struct {
	JobState
	Schedule string // a cron expression with seconds, or words
	Off      bool   // the instance that tells this does not run it at its times
	Zone     *time.Location
	OnLeader bool // it runs under the leader's lock
	// Lease is how long its lock lasts without a renewal, 0 if it is not renewed. It is held for AtMost at most, and for AtLeast at least.
	Lease, AtMost, AtLeast time.Duration
	NextAt                 *time.Time // its next slot, if that is still to come
	Holder                 *Holder    // of its lock; nil if it is free
	// LockProblem says why the lock's holder is not known.
	LockProblem string
	Last        *Run // the latest that has ended
}

// Holder is the holder of a job's lock.
type Holder struct {
	Owner     string
	Remaining time.Duration // until the lock expires, unless it is renewed; 0 if it ends with the holder's session
}

// HeldLock is a lock of the scheduled jobs that is held.
type HeldLock struct {
	Holder
	Name  string
	Fence int64
}

// BlockReport says why a job does not run.
type BlockReport struct {
	Since  time.Time
	By     string // the instance that reported it last
	Reason string
}

// Outcome is how an attempt at a run ended.
type Outcome struct {
	Status Status // SUCCEEDED, FAILED, or INTERRUPTED if another instance is to take the run over
	Result string
	Error  string
}

// RunningError is ErrRunning with the run's owner.
type RunningError struct {
	Owner     string
	Remaining time.Duration // until the run may be taken over, unless it is extended
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("the job is running on %s; its lease lasts for another %s", e.Owner, e.Remaining.Round(time.Millisecond))
}

// Unwrap makes every RunningError an ErrRunning.
func (e *RunningError) Unwrap() error { return ErrRunning }

// MaxAttempts is how many instances may begin the same run. Then it fails, because the run itself may crash its instance.
const MaxAttempts = 3

// MaxClockSkew bounds how far the clock of a database that takes over may be behind its predecessor's. A job waits for times that are
// ahead by less, so that it runs once for each slot.
const MaxClockSkew = time.Minute

// ForgetFuture forgets the times that are ahead of now by more than MaxClockSkew: a clock was wrong, and the job would wait until then.
func (s *JobState) ForgetFuture(now time.Time) {
	ahead := func(at *time.Time) bool { return at != nil && at.After(now.Add(MaxClockSkew)) }
	if ahead(&s.RegisteredAt) {
		s.RegisteredAt = now.Add(-MaxClockSkew)
	}
	for _, at := range []**time.Time{&s.Slot, &s.EndedAt, &s.SucceededAt} {
		if ahead(*at) {
			*at = nil
		}
	}
}

// Next decides which run of the job begins now: the oldest that was interrupted or requested, or else a new run of the slot
// due, which is the zero time if no slot is due. A new run has no Status yet. lost holds the runs that have reached MaxAttempts
// and must be failed. Next returns ErrRunning while a run is under way, and ErrNotDue if no run can begin.
func (s *JobState) Next(now, due time.Time) (next Run, lost []Run, err error) {
	for _, r := range s.Unfinished {
		if r.Status == Running && now.Before(*r.LeasedUntil) {
			return Run{}, nil, &RunningError{Owner: r.Owner, Remaining: r.LeasedUntil.Sub(now)}
		}
	}
	for _, r := range s.Unfinished {
		if r.Status == Running && r.Attempt >= MaxAttempts {
			lost = append(lost, r)
			continue
		}
		return r, lost, nil
	}
	if due.IsZero() {
		return Run{}, lost, ErrNotDue
	}
	return Run{Job: s.Name, Slot: due}, lost, nil
}

// At returns the run with its status at now: INTERRUPTED if its lease has expired.
func (r Run) At(now time.Time) Run {
	if r.Status == Running && !now.Before(*r.LeasedUntil) {
		r.Status = Interrupted
	}
	return r
}

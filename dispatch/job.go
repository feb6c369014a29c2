package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// What a scheduled job is told that is not to run now.
var (
	ErrJobNotFound = errors.New("no such job")
	ErrRunning     = errors.New("the job is running")
	ErrNothingDue  = errors.New("the job is not due")
)

// RunStatus is where a run of a scheduled job stands.
type RunStatus string

// A run is QUEUED when somebody has asked for it, RUNNING until it SUCCEEDED or FAILED, and INTERRUPTED while nobody is at
// it although it has not ended: whoever comes first takes it over.
const (
	RunQueued      RunStatus = "QUEUED"
	RunRunning     RunStatus = "RUNNING"
	RunInterrupted RunStatus = "INTERRUPTED"
	RunSucceeded   RunStatus = "SUCCEEDED"
	RunFailed      RunStatus = "FAILED"
)

// JobRun is what became of one slot of a scheduled job: one run, however often it was taken over.
type JobRun struct {
	Job    string
	Slot   time.Time // when it was to run, or was asked for; unique for the job
	Status RunStatus
	// Attempt counts the instances that have begun it, but for those that gave it back.
	Attempt int
	Owner   string // instance/attempt: who has begun it last; "" if nobody
	// Fence is larger than that of every earlier run of the job.
	Fence       int64
	RequestedBy string // the API key that asked for it; "" for the schedule
	BeganAt     *time.Time
	EndedAt     *time.Time
	AliveUntil  *time.Time // unless it is heard of before, it is taken over then
	Result      string
	Error       string
	Skipped     int // instances that left it to another
}

// JobState is what is remembered of a scheduled job between its runs.
type JobState struct {
	Name         string
	RegisteredAt time.Time  // when it was first heard of
	Slot         *time.Time // the last that was begun on schedule
	EndedAt      *time.Time // the last run
	SucceededAt  *time.Time
	Blocked      *JobBlock
	Open         []JobRun // that have not ended, the oldest first
}

// Job is a scheduled job as operators see it.
type Job struct {
	JobState
	Schedule string // a cron expression with seconds, or words
	Zone     *time.Location
	OnLeader bool       // is run by the leader, whose lock it is then
	NextAt   *time.Time // the next of its times that is still to come
	Holder   *JobHolder // of its lock; nil if nobody
	// LockProblem says why nobody can tell who holds the lock.
	LockProblem string
	Last        *JobRun // that has ended
}

// JobHolder is who holds a job's lock, and for how long unless it is renewed; 0 if that ends with its session.
type JobHolder struct {
	Owner string
	Left  time.Duration
}

// HeldLock is a lock of the scheduled jobs that somebody has.
type HeldLock struct {
	JobHolder
	Name  string
	Fence int64
}

// JobBlock says that a job does not run because nobody can tell who holds its lock.
type JobBlock struct {
	Since  time.Time
	By     string // the instance that tried last
	Reason string
}

// RunEnd is how a run ended.
type RunEnd struct {
	Status RunStatus // SUCCEEDED or FAILED
	Result string
	Error  string
}

// RunningError is ErrRunning with who is at it, and for how long still unless more is heard.
type RunningError struct {
	Owner string
	Left  time.Duration
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("%s is at it, for %s at least", e.Owner, e.Left.Round(time.Millisecond))
}

// Unwrap makes every RunningError an ErrRunning.
func (e *RunningError) Unwrap() error { return ErrRunning }

// MaxAttempts is how many instances may begin the same run: one that kills whoever runs it is given up then.
const MaxAttempts = 3

// Next decides what of the job is to run now: a run that was interrupted, one that somebody has asked for, or else that of
// the slot due, the zero time if there is none. A slot's has no Status yet. lost are the runs to be given up. ErrRunning
// while an instance is at it, ErrNothingDue.
func (s *JobState) Next(now, due time.Time) (next JobRun, lost []JobRun, err error) {
	for _, r := range s.Open {
		if r.Status == RunRunning && now.Before(*r.AliveUntil) {
			return JobRun{}, nil, &RunningError{Owner: r.Owner, Left: r.AliveUntil.Sub(now)}
		}
	}
	for _, r := range s.Open {
		if r.Status == RunRunning && r.Attempt >= MaxAttempts {
			lost = append(lost, r)
			continue
		}
		return r, lost, nil
	}
	if due.IsZero() {
		return JobRun{}, lost, ErrNothingDue
	}
	return JobRun{Job: s.Name, Slot: due}, lost, nil
}

// At returns the run as it stands at that time: one that nobody has been heard of is INTERRUPTED.
func (r JobRun) At(now time.Time) JobRun {
	if r.Status == RunRunning && !now.Before(*r.AliveUntil) {
		r.Status = RunInterrupted
	}
	return r
}

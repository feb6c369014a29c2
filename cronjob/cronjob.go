package cronjob

import (
	"errors"
	"fmt"
	"time"
)

// What a scheduled job is told that is not to run now.
var (
	ErrNotFound = errors.New("no such job")
	ErrRunning  = errors.New("the job is running")
	ErrNotDue   = errors.New("the job is not due")
)

// Status is where a run of a scheduled job stands.
type Status string

// A run is QUEUED when somebody has asked for it, RUNNING until it SUCCEEDED or FAILED, and INTERRUPTED while nobody is at
// it although it has not ended: whoever comes first takes it over.
const (
	Queued      Status = "QUEUED"
	Running     Status = "RUNNING"
	Interrupted Status = "INTERRUPTED"
	Succeeded   Status = "SUCCEEDED"
	Failed      Status = "FAILED"
)

// Run is what became of one slot of a scheduled job: one run, however often it was taken over.
type Run struct {
	Job    string
	Slot   time.Time // when it was to run, or was asked for; unique for the job
	Status Status
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

// State is what is remembered of a scheduled job between its runs.
type State struct {
	Name         string
	RegisteredAt time.Time  // when it was first heard of
	Slot         *time.Time // the last that was begun on schedule
	EndedAt      *time.Time // the last run
	SucceededAt  *time.Time
	Blocked      *Block
	Open         []Run // that have not ended, the oldest first
}

// Job is a scheduled job as operators see it.
type Job struct {
	State
	Schedule string // a cron expression with seconds, or words
	Zone     *time.Location
	OnLeader bool       // is run by the leader, whose lock it is then
	NextAt   *time.Time // the next of its times that is still to come
	Holder   *Holder    // of its lock; nil if nobody
	// LockProblem says why nobody can tell who holds the lock.
	LockProblem string
	Last        *Run // that has ended
}

// Holder is who holds a job's lock, and for how long unless it is renewed; 0 if that ends with its session.
type Holder struct {
	Owner string
	Left  time.Duration
}

// HeldLock is a lock of the scheduled jobs that somebody has.
type HeldLock struct {
	Holder
	Name  string
	Fence int64
}

// Block says that a job does not run because nobody can tell who holds its lock.
type Block struct {
	Since  time.Time
	By     string // the instance that tried last
	Reason string
}

// End is how a run ended.
type End struct {
	Status Status // SUCCEEDED or FAILED
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
func (s *State) Next(now, due time.Time) (next Run, lost []Run, err error) {
	for _, r := range s.Open {
		if r.Status == Running && now.Before(*r.AliveUntil) {
			return Run{}, nil, &RunningError{Owner: r.Owner, Left: r.AliveUntil.Sub(now)}
		}
	}
	for _, r := range s.Open {
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

// At returns the run as it stands at that time: one that nobody has been heard of is INTERRUPTED.
func (r Run) At(now time.Time) Run {
	if r.Status == Running && !now.Before(*r.AliveUntil) {
		r.Status = Interrupted
	}
	return r
}

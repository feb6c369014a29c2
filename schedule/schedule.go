// Package schedule runs jobs at their times, each time once, on one of any number of instances.
//
// The time is the database's. Each time of a job is a slot. The ledger of runs decides: it is a table with one row for a
// job and a slot. An instance that wants to run a slot begins its run there, extends it while it works, and writes how it
// ended. A run that is not extended in time is taken over by another instance. The job's lock, held by any strategy, comes
// before that: it turns away instances that come too late, and it cancels the work when it is lost. If a lock has two
// holders, because Redis was flushed or each process has a lock in its own memory, one of them begins the run and the other
// finds it begun.
//
// So one run of a job is under way at a time, and a slot that has ended does not run again. The scheduler can't stop an
// instance that was suspended and whose run another instance has taken over. The database must reject the writes of such an
// instance: by a condition on the row, by the run's fence, or because they are committed together with the end of the run
// (ConcludeRun of repository/runs).
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/lock"
)

// Job is work that is done once for each of its times.
type Job struct {
	Name string // also its lock's name
	When When
	// Off leaves out the slots: this instance begins no run but those that were requested, or that another has left.
	Off bool
	// Hold says how the job's lock is held. A run may last for its AtMost or, without renewal, for nine tenths of its TTL.
	// Heartbeat and Wait must be 0.
	Hold lock.Hold
	// OnLeader makes the job run on the leader, which is elected for all such jobs, instead of under its own lock. Hold then
	// says how long a run may take, and after what time another instance takes it over.
	OnLeader bool
	// MaxDelay is how long after its time a slot may begin: after downtime, the missed slots that are not older run one
	// after the other. 0 means until the next slot. The limit does not apply to a run that is taken over.
	MaxDelay time.Duration
	// Demand, if not nil, returns from what time on there is work, by the database's clock; the zero time for none. It is called every
	// PollInterval. A slot before that time is passed over, without a lock and a run, if the job's last slot is less than MaxIdle before;
	// others begin at the next poll. The job must be a Cron or an Every.
	Demand  func(ctx context.Context) (time.Time, error)
	MaxIdle time.Duration
	// Work does a run. Its context ends, with a lock.ErrLost for a cause, when the lock or the run is lost; it also ends when
	// the run has taken too long, and when the process stops. Work should then return at once. lock.FromContext returns the
	// lease of the run; lock.Fences refuses a write under its fence once a later run of the job has written under its own.
	// The result is for operators.
	Work func(ctx context.Context, run cronjob.Run) (result string, err error)
}

// LockName is the name of the lock that the job runs under.
func (j Job) LockName() string {
	if j.OnLeader {
		return leaderLock
	}
	return j.Name
}

// RunStore is the ledger of runs; see runs.Runs.
type RunStore interface {
	ledger
	ledgerReader
	ledgerAdmin
}

// ledger is where runs begin and end.
type ledger interface {
	BeginRun(ctx context.Context, job, owner string, term time.Duration,
		due func(cronjob.JobState, time.Time) time.Time) (cronjob.Run, error)
	RenewRun(ctx context.Context, run cronjob.Run, term time.Duration) error
	EndRun(ctx context.Context, run cronjob.Run, end cronjob.Outcome) error
}

// ledgerReader tells which runs may begin, and is told why one does not.
type ledgerReader interface {
	JobStates(ctx context.Context, names []string) (map[string]cronjob.JobState, time.Time, error)
	NextOpenRun(ctx context.Context, jobs []string) (open, now time.Time, err error)
	BlockJob(ctx context.Context, job, by, reason string) error
}

// ledgerAdmin is what operators see and ask for.
type ledgerAdmin interface {
	RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error)
	Runs(ctx context.Context, job string, page dispatch.Page) ([]cronjob.Run, string, error)
}

// Strategy holds the jobs' locks, and shows their holders.
type Strategy interface {
	lock.Strategy
	lock.Admin
}

// Options configure a Scheduler.
type Options struct {
	Jobs       []Job
	Ledger     RunStore
	Locks      Strategy
	OtherLocks []string              // names of other locks on Locks that HeldLocks returns with the jobs'
	Zone       *time.Location        // of the cron expressions; UTC if nil
	Instance   string                // names this instance to operators, in at most 60 bytes; need not be unique
	Log        *slog.Logger          // none if nil
	Metrics    prometheus.Registerer // none if nil
	// LockMetrics are of the jobs' locks; none if nil.
	LockMetrics *lock.Metrics
	// PollInterval is how often the Scheduler looks for slots that are due, requested runs and runs to take over; a second if 0.
	PollInterval time.Duration
	// LeaderLease is how long the lead is kept after a run, and for a leader that has died; 3 s if 0.
	LeaderLease time.Duration
	// GracePeriod is how long work may take to return after its context has ended, before it is abandoned; 5 s if 0.
	GracePeriod time.Duration
}

const (
	defaultLook  = time.Second
	defaultGrace = 5 * time.Second
	// maxInstanceName bounds an instance's name: the ledger's column for the owner also holds the id of the attempt.
	maxInstanceName = 60
)

// Scheduler runs jobs while Run does. Its other methods may be called from any goroutine, at any time.
type Scheduler struct {
	Options
	jobs    []*job
	names   []string
	locker  *lock.Locker // of the jobs' names
	runs    *lock.Locker // of the runs in the ledger
	leader  *lock.Leader
	follows atomic.Pointer[error]     // why this instance does not lead; nil while it does
	heardAt atomic.Pointer[time.Time] // when the ledger last answered
	check   chan struct{}             // asks watch to read the ledger; has room for one request
	vectors *vectors
	// states are the jobs' as they were last read in the ledger, at statesAt of its clock and readAt of this process's.
	states   map[string]cronjob.JobState
	statesAt time.Time
	readAt   time.Time
	unread   bool // the last try to read them failed
}

// New returns a Scheduler of the jobs, or an error that lists what is wrong with them.
func New(o Options) (*Scheduler, error) {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	o.PollInterval, o.GracePeriod = cmp.Or(o.PollInterval, defaultLook), cmp.Or(o.GracePeriod, defaultGrace)
	o.LeaderLease = cmp.Or(o.LeaderLease, defaultLease)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{Options: o, check: make(chan struct{}, 1), vectors: newVectors(o.Metrics)}
	s.locker = lock.New(o.Locks, lock.Options{Instance: o.Instance, Log: o.Log, Metrics: o.LockMetrics})
	s.runs = lock.New(ledgerLock{o.Ledger}, lock.Options{Instance: o.Instance, Log: o.Log})
	s.leader = s.locker.Leader(leaderLock, leaderWait, o.LeaderLease)
	s.follow(nil)
	var problems []error
	if len(o.Instance) > maxInstanceName {
		problems = append(problems, fmt.Errorf("the instance's name is longer than %d bytes: %q", maxInstanceName, o.Instance))
	}
	for _, j := range o.Jobs {
		added, err := newJob(s, j)
		if err != nil {
			problems = append(problems, fmt.Errorf("job %q: %w", j.Name, err))
			continue
		}
		s.jobs, s.names = append(s.jobs, added), append(s.names, j.Name)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return s, nil
}

// Blocked reports whether a job that is due does not run here because its lock gives no answer.
func (s *Scheduler) Blocked() bool {
	return slices.ContainsFunc(s.jobs, func(j *job) bool { return j.unanswered.Load() })
}

// Run runs the jobs until ctx ends. Then it cancels the runs under way and waits for them; other instances take over those
// that were not finished. It may be called once.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.locker.Close()
	defer s.runs.Close()
	for !s.readLedger(ctx) {
		if !pause(ctx, s.PollInterval) {
			return
		}
	}
	var loops sync.WaitGroup
	for _, j := range s.jobs {
		loops.Go(func() { j.loop(ctx) })
	}
	loops.Go(func() { s.campaign(ctx) })
	loops.Go(func() { s.watch(ctx) })
	loops.Wait()
	s.resign()
}

// pause waits for d. It is false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Package schedule runs jobs at their times, each time once, on one of any number of instances.
//
// The time is the database's. A job's time is a slot, and what decides is the ledger of runs, a table in which a job and a
// slot are there once: an instance that wants to run a slot begins it there, keeps saying that it is at it, and writes how
// it ended. A run of which nothing is heard is taken over. The job's lock, held by whatever strategy, comes before that: it
// sheds those who come too late, and ends the work when it is lost. Should the lock have two holders, because Redis was
// flushed or each process has a memory of its own, one of them begins the run and the other finds it begun.
//
// So of a job there is one run at a time, and a slot that has ended is not begun again. What an instance does that was
// overtaken without noticing (it was stopped, or suspended) is not the schedule's to prevent: what it writes does, by a
// condition of its own, by the run's fence, or by being committed together with the end of the run (repository's Conclude).
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/prometheus/client_golang/prometheus"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
)

// Job is work that is done once for each of its times.
type Job struct {
	Name string // as a lock's
	When When
	// Hold is how the job's lock is held and, by its AtMost or else its TTL, how long a run may take. It has no Beat and
	// no Wait.
	Hold lock.Hold
	// OnLeader has the job run by the leader, who is elected for all such jobs, instead of under a lock of its own. Hold
	// then says how long a run may take, and how soon it is taken over.
	OnLeader bool
	// Late is how late a slot may begin, because nobody could run it in time: after downtime, those that are not older are
	// made up for, one after the other. 0 is until the next slot. What has begun is taken over however late it is.
	Late time.Duration
	// Work does what is to be done for one slot. Its context ends when the lock or the run is lost, with a lock.ErrLost for
	// a cause, when it has taken too long, and when the process is to stop; it should then return at once. lock.FromContext
	// returns the lease of the run, whose Fence refuses what was overtaken. The result is for operators.
	Work func(ctx context.Context, run cronjob.Run) (result string, err error)
}

// lockName is the lock that the job runs under.
func (j Job) lockName() string {
	if j.OnLeader {
		return leadName
	}
	return j.Name
}

// HeldBy returns the names of the jobs that run under the lock of that name: a job's own, or the leader's.
func HeldBy(jobs []Job, lock string) (names []string) {
	for _, j := range jobs {
		if j.lockName() == lock {
			names = append(names, j.Name)
		}
	}
	return names
}

// Ledger is where runs are kept; see repository.Store.
type Ledger interface {
	RegisterJobs(ctx context.Context, names []string) (time.Time, error)
	JobStates(ctx context.Context, names []string) (map[string]cronjob.State, time.Time, error)
	BeginRun(ctx context.Context, job, owner string, term time.Duration,
		due func(cronjob.State, time.Time) time.Time) (cronjob.Run, error)
	ExtendRun(ctx context.Context, run cronjob.Run, term time.Duration) error
	EndRun(ctx context.Context, run cronjob.Run, end cronjob.End) error
	InterruptRun(ctx context.Context, job, owner string) error
	SkipRun(ctx context.Context, job string, slot time.Time) (bool, error)
	BlockJob(ctx context.Context, job, by, reason string) error
	RequestRun(ctx context.Context, job, actor string) (cronjob.Run, error)
	LastRun(ctx context.Context, job string) (*cronjob.Run, error)
	Runs(ctx context.Context, job string, page dispatch.Page) ([]cronjob.Run, string, error)
}

// Strategy holds the jobs' locks, and says who has them.
type Strategy interface {
	lock.Strategy
	lock.Registry
}

// Options are what a Scheduler stands on.
type Options struct {
	Jobs    []Job
	Ledger  Ledger
	Locks   Strategy
	Others  []string              // names that others than jobs hold on Locks, which operators see with the jobs'
	Zone    *time.Location        // of the cron expressions; UTC if nil
	Who     string                // names this instance to operators, in 60 bytes at most; need not be unique
	Log     *slog.Logger          // none if nil
	Metrics prometheus.Registerer // none if nil
	// LockMetrics are of the jobs' locks; none if nil.
	LockMetrics *lock.Metrics
	// Look is how often the ledger is looked at for what is to be made up for or taken over; a second if 0.
	Look time.Duration
	// Now is this process's clock, time.Now if nil. It need not be right.
	Now func() time.Time
	// Grace is how long work may take to return when it is told to stop, before it is left behind; 5 s if 0.
	Grace time.Duration
}

const (
	defaultLook  = time.Second
	defaultGrace = 5 * time.Second
	// leadName is the lock of the leader, who is waited for, and whose lead lasts, as gocron's users are used to.
	leadName  = "jobs"
	leadWait  = time.Second
	leadLease = 3 * time.Second
	// longestWho leaves room for what makes an owner of it.
	longestWho = 60
)

// Scheduler runs jobs. Run makes it work; the rest may be called from any goroutine, also when it does not run.
type Scheduler struct {
	Options
	jobs    []*job
	names   []string
	locker  *lock.Locker // of the jobs' names
	runs    *lock.Locker // of their runs
	leader  *lock.Leader
	follows atomic.Pointer[error] // why this instance does not lead; nil when it does
	clock   *clock
	looking chan struct{} // has room for a wish to look at once
	skips   skips
	vectors *vectors
}

// New returns a Scheduler of the jobs, or an error that says what of them makes no sense.
func New(o Options) (*Scheduler, error) {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	o.Look, o.Grace = cmp.Or(o.Look, defaultLook), cmp.Or(o.Grace, defaultGrace)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{Options: o, clock: newClock(o.Now), looking: make(chan struct{}, 1), vectors: newVectors(o.Metrics)}
	s.locker = lock.New(o.Locks, lock.Options{Who: o.Who, Log: o.Log, Metrics: o.LockMetrics})
	s.runs = lock.New(ledgerLock{o.Ledger}, lock.Options{Who: o.Who, Log: o.Log})
	s.leader = s.locker.Leader(leadName, leadWait, leadLease)
	s.follow(nil)
	var problems []error
	if len(o.Who) > longestWho {
		problems = append(problems, fmt.Errorf("an instance's name has up to %d bytes: %q", longestWho, o.Who))
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

// Run runs the jobs until ctx ends. Then it tells the work under way to stop, waits for it, and has others take over what
// was not finished. It runs once.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.locker.Close()
	defer s.runs.Close()
	if !s.register(ctx) {
		return nil
	}
	cron, err := gocron.NewScheduler(gocron.WithClock(s.clock), gocron.WithLocation(s.Zone))
	if err != nil {
		return err
	}
	for _, j := range s.jobs {
		err = errors.Join(err, j.add(ctx, cron))
	}
	if err != nil {
		return errors.Join(err, cron.Shutdown())
	}
	cron.Start() // and then what asks it to run something: before its start, gocron would wait for itself
	var loops sync.WaitGroup
	loops.Go(func() { s.lead(ctx) })
	loops.Go(func() { s.watch(ctx) })
	<-ctx.Done()
	for _, j := range s.jobs {
		j.busy.Lock() // when the work has ended, for which gocron would wait in a busy loop; and none begins
	}
	err = cron.Shutdown()
	loops.Wait()
	s.resign()
	return err
}

// register makes the jobs known to the ledger, and the database's time known here, as soon as the database is there.
func (s *Scheduler) register(ctx context.Context) bool {
	for {
		sent := s.Now()
		now, err := s.Ledger.RegisterJobs(ctx, s.names)
		if err == nil {
			s.clock.set(now, sent)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.Log.Warn("no job runs yet: the database can't be asked", "error", err)
		if !pause(ctx, s.Look) {
			return false
		}
	}
}

// pause is false when ctx has ended.
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

// lead has this instance lead whenever nobody else does.
func (s *Scheduler) lead(ctx context.Context) {
	led := false
	for _, j := range s.jobs {
		led = led || j.OnLeader
	}
	var said time.Time
	for led && ctx.Err() == nil {
		err := s.leader.Campaign(ctx, func(leading context.Context) error {
			s.Log.Info("this instance leads the jobs")
			s.follows.Store(nil)
			s.look()
			<-leading.Done()
			return nil
		})
		s.follow(err)
		switch {
		case errors.Is(err, lock.ErrHeld) || ctx.Err() != nil:
		case errors.Is(err, lock.ErrLost):
			s.Log.Warn("this instance leads the jobs no longer", "error", err)
		default:
			if time.Since(said) >= sayEvery {
				said = time.Now()
				s.Log.Warn("nobody can tell who leads the jobs", "error", err)
			}
			pause(ctx, s.Look)
		}
	}
}

// follow says that this instance does not lead: another does, unless err is that nobody can tell.
func (s *Scheduler) follow(err error) {
	if !errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrUnavailable) {
		err = &lock.HeldError{}
	}
	s.follows.Store(&err)
}

// resign lets another instance lead at once, now that nothing runs here.
func (s *Scheduler) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	if err := s.leader.Resign(ctx); err != nil {
		s.Log.Warn("another instance leads the jobs when the lead has ended", "error", err)
	}
}

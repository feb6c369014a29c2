package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"firsttap/config"
	"firsttap/lock"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/schedule"
)

const (
	// jobLockTimeout bounds a command of a job's lock, which may be slower than a tap's.
	jobLockTimeout = time.Second
	// nodeTimeout is what a server of a quorum that is away costs at most.
	nodeTimeout = 250 * time.Millisecond
	// sessionTTL is how long a database keeps the session, and with it the locks, of a holder that it does not hear from:
	// no job's lock may have a longer TTL.
	sessionTTL = time.Minute
	// jobLockConns is how many of the jobs may have a session of their own at a time.
	jobLockConns  = 16
	jobKeysPrefix = "job-lock"
	jobKeysEnv    = "firsttap"
)

// jobLocks are the locks of the scheduled jobs, with the fences that go with them.
type jobLocks struct {
	strategy schedule.Strategy
	fences   *lock.Fences
	metrics  *lock.Metrics // nil where nobody looks
	closers  []func() error
}

// openJobLocks opens what FIRSTTAP_JOB_LOCK names. It does not connect.
func openJobLocks(c config.Config) (l *jobLocks, err error) {
	db, dialect, err := repository.OpenPool(c.DatabaseURL, jobLockConns)
	if err != nil {
		return nil, err
	}
	l = &jobLocks{fences: lock.NewFences(db, lock.Dialect(dialect)), closers: []func() error{db.Close}}
	if err := l.open(c, db, lock.Dialect(dialect)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *jobLocks) open(c config.Config, db *sql.DB, dialect lock.Dialect) (err error) {
	switch c.JobLock {
	case "memory":
		l.strategy = lock.NewMemory()
	case "table":
		l.strategy = lock.NewTable(db, dialect)
	case "redis":
		l.strategy, err = l.redis(c.RedisURL, jobLockTimeout)
	case "quorum":
		nodes := make([]*lock.Redis, len(c.QuorumURLs))
		for i, url := range c.QuorumURLs {
			if nodes[i], err = l.redis(url, nodeTimeout); err != nil {
				return err
			}
		}
		l.strategy, err = lock.NewQuorum(nodes...)
	case "named", "rows":
		config, err := repository.MySQLConfig(c.DatabaseURL)
		if err != nil {
			return err
		}
		sessions, err := lock.OpenSessions(config, sessionTTL, jobLockConns)
		if err != nil {
			return err
		}
		l.closers = append(l.closers, sessions.Close)
		if l.strategy = sessions.Named(); c.JobLock == "rows" {
			l.strategy = sessions.Rows()
		}
	}
	return err
}

func (l *jobLocks) redis(url string, timeout time.Duration) (*lock.Redis, error) {
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, client.Close)
	return lock.NewRedis(client, lock.ShedLock(jobKeysPrefix, jobKeysEnv)), nil
}

// Close ends the connections, and with them the locks that are bound to one.
func (l *jobLocks) Close() error {
	var errs []error
	for _, c := range l.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// lockCommand does what an operator asks of the jobs' locks: ls, show NAME, release NAME.
func lockCommand(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	asked := strings.Join(args, " ")
	if len(args) == 0 || (asked != "ls") != (len(args) == 2 && (args[0] == "show" || args[0] == "release")) {
		return errors.New("lock takes ls, show NAME or release NAME")
	}
	if c.JobLock == "memory" {
		return errors.New("FIRSTTAP_JOB_LOCK is memory: such locks can't be seen from outside the process that holds them")
	}
	locks, err := openJobLocks(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch args[0] {
	case "ls":
		holders, err := locks.strategy.List(ctx)
		if err == nil {
			printHolders(stdout, holders)
		}
		return err
	case "show":
		h, err := locks.strategy.Show(ctx, args[1])
		if err == nil {
			showHolder(stdout, h)
		}
		return err
	}
	jobs := schedule.HeldBy(schedule.FirstTap(nil, 0), args[1])
	if len(jobs) == 0 {
		return locks.release(ctx, args[1], stdout)
	}
	store, err := open(ctx, c, log)
	if err != nil {
		return fmt.Errorf("nothing was released: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return locks.releaseJobs(ctx, args[1], jobs, store, stdout)
}

// release takes a lock that is not a job's away from its holder. It raises the fence first: what the holder writes under
// [lock.Fences] is refused before anybody else can have the name.
func (l *jobLocks) release(ctx context.Context, name string, stdout io.Writer) error {
	h, err := l.strategy.Show(ctx, name)
	if err != nil {
		return err
	}
	if h.Owner == "" {
		showHolder(stdout, h)
		return nil
	}
	if h.Fence > 0 {
		if err := l.fences.Raise(ctx, name, h.Fence+1); err != nil {
			return fmt.Errorf("nothing was released: %w", err)
		}
	}
	broken, err := l.strategy.Break(ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s taken from %s; its fence was %d, the next is above %d\n", name, h.Owner, h.Fence, broken.Fence)
	return nil
}

// releaseJobs takes the lock of jobs away from its holder, and their runs from their owners. What fences a job is its run
// in the ledger, not the lock: once releaseJobs has returned, no owner can conclude a run that it had begun before.
//
// The lock goes first. Otherwise its holder could begin another run between the two steps.
func (l *jobLocks) releaseJobs(ctx context.Context, name string, jobs []string, store *repository.Store, stdout io.Writer) error {
	h, err := l.strategy.Show(ctx, name)
	if err != nil {
		return err
	}
	if h.Owner == "" {
		showHolder(stdout, h)
	} else {
		if _, err := l.strategy.Break(ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s taken from %s\n", name, h.Owner)
	}
	runs, err := store.InterruptRuns(ctx, jobs)
	if err != nil {
		return fmt.Errorf("a run under way may still be concluded; repeat the command: %w", err)
	}
	for _, run := range runs {
		fmt.Fprintf(stdout, "run of %s at %s taken from %s\n", run.Job, run.Slot.Format(time.RFC3339Nano), run.Owner)
	}
	return nil
}

func printHolders(stdout io.Writer, holders []lock.Holder) {
	if len(holders) == 0 {
		fmt.Fprintln(stdout, "nothing is held")
		return
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tHOLDER\tLEFT\tFENCE")
	for _, h := range holders {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", h.Name, h.Owner, left(h), h.Fence)
	}
	w.Flush()
}

func showHolder(stdout io.Writer, h lock.Holder) {
	if h.Owner == "" {
		fmt.Fprintf(stdout, "nobody has %s\n", h.Name)
		return
	}
	fmt.Fprintf(stdout, "%s is held by %s\nends in %s unless renewed\nfence %d\n", h.Name, h.Owner, left(h), h.Fence)
}

func left(h lock.Holder) string {
	if h.Left == 0 {
		return "the holder's session"
	}
	return h.Left.Round(time.Millisecond).String()
}

package app

import (
	"database/sql"
	"errors"
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

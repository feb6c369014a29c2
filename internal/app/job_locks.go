package app

import (
	"cmp"
	"database/sql"
	"errors"
	"time"

	"firsttap/internal/config"
	"firsttap/internal/redisclient"
	"firsttap/lock"
	"firsttap/repository/database"
	"firsttap/schedule"
)

const (
	// jobLockTimeout bounds a Redis command of a job's lock. It may be slower than that of a tap.
	jobLockTimeout = time.Second
	// nodeTimeout bounds the wait for one server of a quorum.
	nodeTimeout = 250 * time.Millisecond
	// sessionTTL is the longest TTL of a job's lock that a session of the database holds, unless a setting has a longer one.
	sessionTTL = time.Minute
	// jobLockConns bounds how many jobs hold a session at the same time.
	jobLockConns = 16
	// jobKeysPrefix is what the keys of all installations' locks begin with; see lock.ShedLockKeys.
	jobKeysPrefix = "job-lock"
)

// jobLocks are the locks of the scheduled jobs, and their fences.
type jobLocks struct {
	strategy schedule.Strategy
	fences   *lock.Fences
	metrics  *lock.Metrics
	closers  []func() error
}

// inSessions reports whether sessions of the database hold locks of that kind.
func inSessions(jobLock string) bool { return jobLock == "named" || jobLock == "rows" }

// openJobLocks opens what FIRSTTAP_JOB_LOCK names. It does not connect.
func openJobLocks(c config.Config, metrics *lock.Metrics) (l *jobLocks, err error) {
	db, dialect, err := database.OpenPool(c.DatabaseURL, jobLockConns)
	if err != nil {
		return nil, err
	}
	l = &jobLocks{fences: lock.NewFences(db, lock.Dialect(dialect)), metrics: metrics, closers: []func() error{db.Close}}
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
		l.strategy, err = l.redis(c, c.RedisURL, cmp.Or(c.Timeouts.JobLock, jobLockTimeout))
	case "quorum":
		nodes := make([]*lock.Redis, len(c.QuorumURLs))
		for i, url := range c.QuorumURLs {
			if nodes[i], err = l.redis(c, url, cmp.Or(c.Timeouts.JobLock, nodeTimeout)); err != nil {
				return err
			}
		}
		l.strategy, err = lock.NewQuorum(nodes...)
	case "named", "rows":
		config, err := database.MySQLConfig(c.DatabaseURL)
		if err != nil {
			return err
		}
		longest := max(sessionTTL, c.LockLease)
		for _, j := range c.Jobs {
			longest = max(longest, j.AtMost)
		}
		sessions, err := lock.OpenSessions(config, longest, jobLockConns)
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

func (l *jobLocks) redis(c config.Config, url string, timeout time.Duration) (*lock.Redis, error) {
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, client.Close)
	return lock.NewRedis(client, lock.ShedLockKeys(jobKeysPrefix, c.Namespace)), nil
}

// Close ends the connections, and with them the locks that are bound to a session.
func (l *jobLocks) Close() error {
	var errs []error
	for _, c := range l.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

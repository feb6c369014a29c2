package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/config"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/schedule"
)

// openSchedule returns what runs the jobs, each on one instance at a time. Where this one has not their role, it only shows them, and
// passes on what is requested.
func (i *instance) openSchedule() (*schedule.Scheduler, error) {
	jobs, err := jobsOf(i.store, i.config)
	if err != nil {
		return nil, err
	}
	var others []string
	if i.config.Push.Leader {
		others = append(others, relayName)
	}
	options := schedule.Options{
		Jobs: jobs, Ledger: i.store.Runs, Locks: i.locks.strategy, OtherLocks: others, LeaderLease: i.config.LockLease,
		Zone: i.config.Push.Zone, Instance: instanceName(), Log: i.log, LockMetrics: i.locks.metrics,
	}
	if !i.config.Has(config.RoleJobs) {
		return schedule.New(options)
	}
	options.Metrics = i.telemetry
	s, err := schedule.New(options)
	if err == nil {
		i.work.Go(func() { s.Run(i.work.ctx) })
	}
	return s, err
}

const (
	// expireIdle and remindIdle are the times without a run when nothing is due.
	expireIdle     = 2 * time.Minute
	remindIdle     = 10 * time.Minute
	retentionDelay = 5 * time.Minute
	// batchSize is how many rows a job changes at a time.
	batchSize = 200
	// retentionTime bounds a run of the retention. The next run deletes what is left.
	retentionTime = 29 * time.Minute
	// overdueAfter is how long after the end of its work an open dispatch is closed.
	overdueAfter = 24 * time.Hour
	// maxSupplyDelay is how long after its minute the supply may still be counted.
	maxSupplyDelay = time.Minute
)

// scheduledJobs returns the jobs of this service, before FIRSTTAP_JOBS changes them. Only their Demand and Work use the store. A driver is
// reminded of work RemindBefore it starts, or never if that is 0.
func scheduledJobs(store *repository.Store, c config.Config) []schedule.Job {
	remindBefore := c.Push.RemindBefore
	lease := func(usual time.Duration) time.Duration { return cmp.Or(c.LockLease, usual) }
	return []schedule.Job{{
		Name: "expire-offers", When: schedule.Cron("*/5 * * * * *"), Hold: lock.Renewed(lease(10*time.Second), 2*time.Minute),
		Demand: func(ctx context.Context) (time.Time, error) {
			expiry, _, err := store.Due.Next(ctx)
			return expiry, err
		},
		MaxIdle: expireIdle,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inBatches(ctx, store.Due.ExpireOffers)
			return fmt.Sprintf("%d offers ended", n), err
		},
	}, {
		Name: "remind", When: schedule.Cron("0 * * * * *"), Hold: lock.Expected(10 * time.Second),
		Demand:  func(ctx context.Context) (time.Time, error) { return nextReminder(ctx, store, remindBefore) },
		MaxIdle: remindIdle,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inBatches(ctx, func(ctx context.Context, limit int) (int, error) {
				return store.Due.WriteReminders(ctx, remindBefore, limit)
			})
			return fmt.Sprintf("%d drivers reminded", n), err
		},
	}, {
		Name: "nightly", When: schedule.Cron("0 0 4 * * *"), MaxDelay: 12 * time.Hour,
		Hold: lock.Renewed(lease(10*time.Second), time.Hour), OnLeader: true,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) { return nightly(ctx, store) },
	}, {
		Name: "supply", When: schedule.Cron("0 * * * * *"), Hold: lock.Between(50*time.Second, 55*time.Second),
		Work: func(ctx context.Context, run cronjob.Run) (string, error) { return supply(ctx, store, run) },
	}, {
		Name: "retention", When: schedule.After(retentionDelay), Hold: lock.Renewed(lease(30*time.Second), retentionTime+time.Minute),
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) { return retain(ctx, store.Cleaner.Prune) },
	}}
}

// nextReminder returns when the driver of the next work may have to be reminded, the zero time for never.
func nextReminder(ctx context.Context, store *repository.Store, before time.Duration) (time.Time, error) {
	_, starts, err := store.Due.Next(ctx)
	if err != nil || starts.IsZero() || before == 0 {
		return time.Time{}, err
	}
	return starts.Add(-before), nil
}

func nightly(ctx context.Context, store *repository.Store) (string, error) {
	closed, problem := inBatches(ctx, func(ctx context.Context, limit int) (int, error) {
		return store.Due.CloseOverdue(ctx, overdueAfter, limit)
	})
	topics, err := store.Topics.ScheduleTopicCleanup(ctx)
	return fmt.Sprintf("%d dispatches closed, %d topics to unsubscribe", closed, topics), errors.Join(problem, err)
}

// supply skips a slot that is older than maxSupplyDelay, because it counts the drivers and dispatches of the present.
func supply(ctx context.Context, store *repository.Store, run cronjob.Run) (string, error) {
	if late := run.BeganAt.Sub(run.Slot); late > maxSupplyDelay {
		return fmt.Sprintf("skipped: the run began %s late", late.Round(time.Second)), nil
	}
	n, err := store.Board.RecordSupply(ctx, run)
	return fmt.Sprintf("%d regions", n), err
}

// retain prunes for retentionTime at most, and has succeeded although more is left to be deleted then.
func retain(ctx context.Context, prune func(context.Context) (int, error)) (string, error) {
	part, cancel := context.WithTimeout(ctx, retentionTime)
	defer cancel()
	n, err := prune(part)
	if part.Err() != nil && ctx.Err() == nil {
		return fmt.Sprintf("%d rows deleted; the next run deletes more", n), nil
	}
	return fmt.Sprintf("%d rows deleted", n), err
}

// inBatches calls batch until it has changed fewer than batchSize rows.
func inBatches(ctx context.Context, batch func(ctx context.Context, limit int) (int, error)) (total int, err error) {
	for {
		n, err := batch(ctx, batchSize)
		total += n
		if err != nil || n < batchSize {
			return total, err
		}
	}
}

package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
)

// JobStores are what FirstTap's jobs do.
type JobStores struct {
	Due       DueStore
	Topics    TopicStore
	Supply    SupplyStore
	Retention RetentionStore
}

// DueStore changes dispatches when their time has come, at most so many at a time.
type DueStore interface {
	// Next returns when the next offer ends and when the next accepted work starts, zero times for none.
	Next(ctx context.Context) (expiry, work time.Time, err error)
	ExpireOffers(ctx context.Context, limit int) (int, error)
	WriteReminders(ctx context.Context, before time.Duration, limit int) (int, error)
	CloseOverdue(ctx context.Context, after time.Duration, limit int) (int, error)
}

// TopicStore has the members of ended topics unsubscribed.
type TopicStore interface {
	ScheduleTopicCleanup(ctx context.Context) (int, error)
}

// SupplyStore records how many drivers and dispatches there are.
type SupplyStore interface {
	RecordSupply(ctx context.Context, run cronjob.Run) (int, error)
}

// RetentionStore deletes what is too old.
type RetentionStore interface {
	Prune(ctx context.Context) (int, error)
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

// Jobs returns the jobs of FirstTap. A driver is reminded of work remindBefore it starts, or never if that is 0.
func Jobs(work JobStores, remindBefore time.Duration) []Job {
	return []Job{{
		Name: "expire-offers", When: Cron("*/5 * * * * *"), Hold: lock.Renewed(10*time.Second, 2*time.Minute),
		Demand: func(ctx context.Context) (time.Time, error) {
			expiry, _, err := work.Due.Next(ctx)
			return expiry, err
		},
		MaxIdle: expireIdle,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inBatches(ctx, work.Due.ExpireOffers)
			return fmt.Sprintf("%d offers ended", n), err
		},
	}, {
		Name: "remind", When: Cron("0 * * * * *"), Hold: lock.Expected(10 * time.Second),
		Demand:  func(ctx context.Context) (time.Time, error) { return nextReminder(ctx, work, remindBefore) },
		MaxIdle: remindIdle,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inBatches(ctx, func(ctx context.Context, limit int) (int, error) {
				return work.Due.WriteReminders(ctx, remindBefore, limit)
			})
			return fmt.Sprintf("%d drivers reminded", n), err
		},
	}, {
		Name: "nightly", When: Cron("0 0 4 * * *"), Hold: lock.Renewed(10*time.Second, time.Hour), OnLeader: true, MaxDelay: 12 * time.Hour,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) { return nightly(ctx, work) },
	}, {
		Name: "supply", When: Cron("0 * * * * *"), Hold: lock.Between(50*time.Second, 55*time.Second),
		Work: func(ctx context.Context, run cronjob.Run) (string, error) { return supply(ctx, work, run) },
	}, {
		Name: "retention", When: After(retentionDelay), Hold: lock.Renewed(30*time.Second, retentionTime+time.Minute),
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			part, cancel := context.WithTimeout(ctx, retentionTime)
			defer cancel()
			n, err := work.Retention.Prune(part)
			if part.Err() != nil && ctx.Err() == nil {
				return fmt.Sprintf("%d rows deleted; the next run deletes more", n), nil
			}
			return fmt.Sprintf("%d rows deleted", n), err
		},
	}}
}

// nextReminder returns when the driver of the next work may have to be reminded, the zero time for never.
func nextReminder(ctx context.Context, work JobStores, before time.Duration) (time.Time, error) {
	_, starts, err := work.Due.Next(ctx)
	if err != nil || starts.IsZero() || before == 0 {
		return time.Time{}, err
	}
	return starts.Add(-before), nil
}

func nightly(ctx context.Context, work JobStores) (string, error) {
	closed, problem := inBatches(ctx, func(ctx context.Context, limit int) (int, error) {
		return work.Due.CloseOverdue(ctx, overdueAfter, limit)
	})
	topics, err := work.Topics.ScheduleTopicCleanup(ctx)
	return fmt.Sprintf("%d dispatches closed, %d topics to unsubscribe", closed, topics), errors.Join(problem, err)
}

// supply skips a slot that is older than maxSupplyDelay, because it counts the drivers and dispatches of the present.
func supply(ctx context.Context, work JobStores, run cronjob.Run) (string, error) {
	if late := run.BeganAt.Sub(run.Slot); late > maxSupplyDelay {
		return fmt.Sprintf("skipped: the run began %s late", late.Round(time.Second)), nil
	}
	n, err := work.Supply.RecordSupply(ctx, run)
	return fmt.Sprintf("%d regions", n), err
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

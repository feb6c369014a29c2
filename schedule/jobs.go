package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
)

// Work is what FirstTap's jobs do, up to limit at a time; see repository.Store.
type Work interface {
	ExpireOffers(ctx context.Context, limit int) (int, error)
	Remind(ctx context.Context, before time.Duration, limit int) (int, error)
	CloseOverdue(ctx context.Context, after time.Duration, limit int) (int, error)
	ReleaseTopics(ctx context.Context) (int, error)
	TakeSupply(ctx context.Context, run cronjob.Run) (int, error)
	Prune(ctx context.Context, limit int) (int, error)
}

const (
	// atOnce is how much a job does before it looks again.
	atOnce = 200
	// overdueAfter is how long after the end of its work a dispatch is closed that nobody has closed.
	overdueAfter = 24 * time.Hour
	// supplyLate is how late the supply of a minute may still be counted.
	supplyLate = time.Minute
)

// FirstTap returns the jobs of FirstTap. remindBefore is how long before the work starts its driver is reminded; 0 for
// never.
func FirstTap(work Work, remindBefore time.Duration) []Job {
	return []Job{{
		Name: "expire-offers", When: Cron("*/5 * * * * *"), Hold: lock.Renewed(10*time.Second, 2*time.Minute),
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inParts(ctx, work.ExpireOffers)
			return fmt.Sprintf("%d offers ended", n), err
		},
	}, {
		Name: "remind", When: Cron("0 * * * * *"), Hold: lock.Expected(10 * time.Second),
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inParts(ctx, func(ctx context.Context, limit int) (int, error) { return work.Remind(ctx, remindBefore, limit) })
			return fmt.Sprintf("%d drivers reminded", n), err
		},
	}, {
		Name: "nightly", When: Cron("0 0 4 * * *"), Hold: lock.Renewed(10*time.Second, time.Hour), OnLeader: true, Late: 12 * time.Hour,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) { return nightly(ctx, work) },
	}, {
		Name: "supply", When: Cron("0 * * * * *"), Hold: lock.Between(50*time.Second, 55*time.Second),
		Work: func(ctx context.Context, run cronjob.Run) (string, error) { return supply(ctx, work, run) },
	}, {
		Name: "retention", When: After(time.Minute), Hold: lock.Renewed(30*time.Second, 10*time.Minute),
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			n, err := inParts(ctx, work.Prune)
			return fmt.Sprintf("%d rows deleted", n), err
		},
	}}
}

func nightly(ctx context.Context, work Work) (string, error) {
	closed, problem := inParts(ctx, func(ctx context.Context, limit int) (int, error) { return work.CloseOverdue(ctx, overdueAfter, limit) })
	topics, err := work.ReleaseTopics(ctx)
	return fmt.Sprintf("%d dispatches closed, %d topics to unsubscribe", closed, topics), errors.Join(problem, err)
}

// supply leaves out a minute that is long over: what is counted is what there is now.
func supply(ctx context.Context, work Work, run cronjob.Run) (string, error) {
	if late := run.BeganAt.Sub(run.Slot); late > supplyLate {
		return fmt.Sprintf("left out: %s too late", late.Round(time.Second)), nil
	}
	n, err := work.TakeSupply(ctx, run)
	return fmt.Sprintf("%d regions", n), err
}

// inParts does a part at a time until there is no more to do.
func inParts(ctx context.Context, part func(ctx context.Context, limit int) (int, error)) (total int, err error) {
	for {
		n, err := part(ctx, atOnce)
		total += n
		if err != nil || n < atOnce {
			return total, err
		}
	}
}

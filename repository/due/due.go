package due

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/poll"
)

// Due changes dispatches when their time has come. It is safe for concurrent use.
type Due struct {
	db         *database.DB
	poll       *poll.Poll
	dispatches *dispatches.Dispatches
}

// New returns what is due in a database.
func New(db *database.DB, p *poll.Poll, d *dispatches.Dispatches) *Due { return &Due{db, p, d} }

// Next returns when the next offer ends and when the next accepted work starts, by the database's clock and as known about a second ago; a
// zero time if there is none. ErrUnavailable.
func (s *Due) Next(ctx context.Context) (expiry, work time.Time, err error) {
	w, err := s.poll.Waiting(ctx, poll.MaxAge, nil)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return w.Expiry, w.Work, nil
}

// change is a change of the dispatches d for which where is true. They are changed in the order of the columns.
type change struct {
	where, order string
	args         []any
	do           func(d *dispatch.Dispatch, now time.Time) []dispatch.Event
}

// ExpireOffers ends up to limit offers whose window has passed, the earliest first, and returns how many. Several instances
// together end an offer once; an offer that is extended, accepted or canceled meanwhile stays as it is. It goes on after the
// error of one offer, which the next call tries again, and joins the errors, which are those of Update.
func (s *Due) ExpireOffers(ctx context.Context, limit int) (int, error) {
	return s.update(ctx, limit, change{
		where: "status = 'PENDING' AND expires_at <= {now}", order: "expires_at",
		do: func(d *dispatch.Dispatch, now time.Time) []dispatch.Event { return d.Expire(now) },
	})
}

// WriteReminders writes up to limit reminders of accepted work that starts within before, the next first, and returns how many. It
// writes one reminder in each round of a dispatch, also with several instances together, and none for work that was
// accepted within before of its start. Its errors are those of ExpireOffers.
func (s *Due) WriteReminders(ctx context.Context, before time.Duration, limit int) (int, error) {
	us := before.Microseconds()
	return s.update(ctx, limit, change{
		// COUNT, because a server may execute NOT EXISTS by listing all reminders ever written.
		where: "status = 'ACCEPTED' AND work_starts_at > {now} AND work_starts_at <= {now} + ? AND accepted_at < work_starts_at - ?" +
			" AND (SELECT COUNT(*) FROM events WHERE dispatch_id = d.id AND round = d.round AND type = ?) = 0",
		order: "work_starts_at", args: []any{us, us, dispatch.EventReminder},
		do: func(d *dispatch.Dispatch, now time.Time) []dispatch.Event { return d.Remind(before, now) },
	})
}

// CloseOverdue closes up to limit dispatches whose work was to end more than after ago, and returns how many. Its errors are
// those of ExpireOffers.
func (s *Due) CloseOverdue(ctx context.Context, after time.Duration, limit int) (int, error) {
	us := after.Microseconds()
	return s.update(ctx, limit, change{
		// Work that has ended has started: the condition on the start lets the query use an index.
		where: "status IN ('ACCEPTED', 'IN_PROGRESS') AND work_starts_at < {now} - ? AND work_ends_at < {now} - ?",
		order: "status, work_starts_at", args: []any{us, us},
		do: func(d *dispatch.Dispatch, now time.Time) []dispatch.Event { return d.CloseOverdue(after, now) },
	})
}

// maxFailures is how many errors a call goes on after: more have another cause than single dispatches.
const maxFailures = 10

// update makes the change of up to limit dispatches, one after another, and returns how many changed. It goes on after an error, but not
// after maxFailures of them, nor after the end of ctx.
func (s *Due) update(ctx context.Context, limit int, c change) (n int, err error) {
	var ids []dispatch.ID
	err = s.db.Serve.With(ctx).Raw("SELECT id FROM dispatches d WHERE "+c.where+" ORDER BY "+c.order+" LIMIT ?", append(c.args, limit)...).
		Scan(&ids).Error
	if err != nil {
		return 0, database.Unavailable(err)
	}
	var errs []error
	for _, id := range ids {
		changed := false
		_, err := s.dispatches.UpdateIn(ctx, id, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			changed = false
			var still int // it may have changed before its row was locked
			err := tx.Raw("SELECT COUNT(*) FROM dispatches d WHERE id = ? AND "+c.where, append([]any{id}, c.args...)...).Scan(&still).Error
			if err != nil || still == 0 {
				return nil, database.Unavailable(err)
			}
			events := c.do(d, now)
			changed = len(events) > 0
			return events, nil
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			if len(errs) == maxFailures || ctx.Err() != nil {
				break
			}
		} else if changed {
			n++
		}
	}
	return n, errors.Join(errs...)
}

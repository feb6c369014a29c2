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

// NextExpiry returns when the next offer ends, by the database's clock and as known about a second ago; the zero time if there is no
// offer. ErrUnavailable.
func (s *Due) NextExpiry(ctx context.Context) (time.Time, error) {
	w, err := s.poll.Waiting(ctx, poll.MaxAge, nil)
	if err != nil {
		return time.Time{}, err
	}
	return w.Expiry, nil
}

// NextWork returns when the next accepted work starts, by the database's clock and as known about a second ago; the zero time if no
// work lies ahead. ErrUnavailable.
func (s *Due) NextWork(ctx context.Context) (time.Time, error) {
	w, err := s.poll.Waiting(ctx, poll.MaxAge, nil)
	if err != nil {
		return time.Time{}, err
	}
	return w.Work, nil
}

// ExpireOffers ends up to limit offers whose window has passed, the earliest first, and returns how many. Several instances
// together end an offer once; an offer that is extended, accepted or canceled meanwhile stays as it is. It goes on after the
// error of one offer, which the next call tries again, and joins the errors, which are those of Update.
func (s *Due) ExpireOffers(ctx context.Context, limit int) (n int, err error) {
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status = 'PENDING' AND expires_at <= {now}"+
		" ORDER BY expires_at LIMIT ?", limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var written dispatch.Status // d.Status is the status at the database's time
		if err := tx.Raw("SELECT status FROM dispatches WHERE id = ?", d.ID).Scan(&written).Error; err != nil {
			return nil, database.Unavailable(err)
		}
		return d.Expire(written, now), nil
	})
}

// WriteReminders writes up to limit reminders of accepted work that starts within before, the next first, and returns how many. It
// writes one reminder in each round of a dispatch, also with several instances together, and none for work that was
// accepted within before of its start. Its errors are those of ExpireOffers.
func (s *Due) WriteReminders(ctx context.Context, before time.Duration, limit int) (n int, err error) {
	us := before.Microseconds()
	// COUNT, because a server may execute NOT EXISTS by listing all reminders ever written.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches d WHERE status = 'ACCEPTED' AND work_starts_at > {now}"+
		" AND work_starts_at <= {now} + ? AND accepted_at < work_starts_at - ? AND (SELECT COUNT(*) FROM events"+
		" WHERE dispatch_id = d.id AND round = d.round AND type = ?) = 0 ORDER BY work_starts_at LIMIT ?",
		us, us, dispatch.EventReminder, limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var given int64
		err := tx.Raw("SELECT COUNT(*) FROM events WHERE dispatch_id = ? AND round = ? AND type = ?", d.ID, d.Round, dispatch.EventReminder).
			Scan(&given).Error
		if err != nil || given > 0 {
			return nil, database.Unavailable(err)
		}
		return d.Remind(before, now), nil
	})
}

// CloseOverdue closes up to limit dispatches whose work was to end more than after ago, and returns how many. Its errors are
// those of ExpireOffers.
func (s *Due) CloseOverdue(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	us := after.Microseconds()
	// Work that has ended has started: the condition on the start lets the query use an index.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status IN ('ACCEPTED', 'IN_PROGRESS') AND work_starts_at < {now} - ?"+
		" AND work_ends_at < {now} - ? ORDER BY status, work_starts_at LIMIT ?", us, us, limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(_ database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.CloseOverdue(after, now), nil
	})
}

func (s *Due) dueIDs(ctx context.Context, query string, args ...any) (ids []dispatch.ID, err error) {
	err = s.db.Serve.With(ctx).Raw(query, args...).Scan(&ids).Error
	return ids, database.Unavailable(err)
}

// maxFailures ends updateEach: so many errors have another cause than single dispatches.
const maxFailures = 10

// updateEach updates one dispatch after another and returns how many changed. It goes on after an error, but not after
// maxFailures of them, nor after the end of ctx.
func (s *Due) updateEach(ctx context.Context, ids []dispatch.ID,
	change func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (n int, err error) {
	var errs []error
	for _, id := range ids {
		changed := false
		_, err := s.dispatches.UpdateIn(ctx, id, func(tx database.Tx, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, err := change(tx, d, now)
			changed = len(events) > 0
			return events, err
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

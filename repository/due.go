package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// ExpireOffers ends up to limit offers whose window has passed, the earliest first, and returns how many. Several instances
// together end an offer once; an offer that is extended, accepted or canceled meanwhile stays as it is. It goes on after the
// error of one offer, which the next call tries again, and joins the errors, which are those of Update.
func (s *Store) ExpireOffers(ctx context.Context, limit int) (n int, err error) {
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status = 'PENDING' AND expires_at <= {now}"+
		" ORDER BY expires_at LIMIT ?", limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var written dispatch.Status // d.Status is the status at the database's time
		if err := tx.Raw("SELECT status FROM dispatches WHERE id = ?", d.ID).Scan(&written).Error; err != nil {
			return nil, unavailable(err)
		}
		return d.Expire(written, now), nil
	})
}

// WriteReminders writes up to limit reminders of accepted work that starts within before, the next first, and returns how many. It
// writes one reminder in each round of a dispatch, also with several instances together, and none for work that was
// accepted within before of its start. Its errors are those of ExpireOffers.
func (s *Store) WriteReminders(ctx context.Context, before time.Duration, limit int) (n int, err error) {
	us := before.Microseconds()
	// COUNT, because a server may execute NOT EXISTS by listing all reminders ever written.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches d WHERE status = 'ACCEPTED' AND work_starts_at > {now}"+
		" AND work_starts_at <= {now} + ? AND accepted_at < work_starts_at - ? AND (SELECT COUNT(*) FROM events"+
		" WHERE dispatch_id = d.id AND round = d.round AND type = ?) = 0 ORDER BY work_starts_at LIMIT ?",
		us, us, dispatch.EventReminder, limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var given int64
		err := tx.Model(&eventRow{}).Where("dispatch_id = ? AND round = ? AND type = ?", d.ID, d.Round, dispatch.EventReminder).
			Count(&given).Error
		if err != nil || given > 0 {
			return nil, unavailable(err)
		}
		return d.Remind(before, now), nil
	})
}

// CloseOverdue closes up to limit dispatches whose work was to end more than after ago, and returns how many. Its errors are
// those of ExpireOffers.
func (s *Store) CloseOverdue(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	us := after.Microseconds()
	// Work that has ended has started: the condition on the start lets the query use an index.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status IN ('ACCEPTED', 'IN_PROGRESS') AND work_starts_at < {now} - ?"+
		" AND work_ends_at < {now} - ? ORDER BY status, work_starts_at LIMIT ?", us, us, limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(_ *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.CloseOverdue(after, now), nil
	})
}

func (s *Store) dueIDs(ctx context.Context, query string, args ...any) (ids []dispatch.ID, err error) {
	err = s.serve.WithContext(ctx).Raw(query, args...).Scan(&ids).Error
	return ids, unavailable(err)
}

// maxFailures ends updateEach: so many errors have another cause than single dispatches.
const maxFailures = 10

// updateEach updates one dispatch after another and returns how many changed. It goes on after an error, but not after
// maxFailures of them, nor after the end of ctx.
func (s *Store) updateEach(ctx context.Context, ids []dispatch.ID,
	change func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error),
) (n int, err error) {
	var errs []error
	for _, id := range ids {
		changed := false
		_, err := s.update(ctx, id, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
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

package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// ExpireOffers ends up to limit offers whose window has passed, those that passed first, and returns how many. However
// many do it together, an offer ends once; one that is extended, taken or canceled meanwhile is left alone. Errors are
// those of Update, joined: what one offer could not is left for the next call, and the others end all the same.
func (s *Store) ExpireOffers(ctx context.Context, limit int) (n int, err error) {
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status = 'PENDING' AND expires_at <= "+s.dialect.now()+
		" ORDER BY expires_at LIMIT ?", limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(tx *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		var written dispatch.Status // which d.Status, the state by the clock, does not tell
		if err := tx.Raw("SELECT status FROM dispatches WHERE id = ?", d.ID).Scan(&written).Error; err != nil {
			return nil, unavailable(err)
		}
		return d.Expire(written, now), nil
	})
}

// Remind writes up to limit reminders of accepted work that starts within before, the next first, and returns how many:
// one in each round of a dispatch, however many do it together, and none of work that was accepted later than that.
// Errors as of ExpireOffers.
func (s *Store) Remind(ctx context.Context, before time.Duration, limit int) (n int, err error) {
	now, us := s.dialect.now(), before.Microseconds()
	// Counted: of NOT EXISTS a server may make a list of all the reminders that there ever were.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches d WHERE status = 'ACCEPTED' AND work_starts_at > "+now+
		" AND work_starts_at <= "+now+" + ? AND accepted_at < work_starts_at - ? AND (SELECT COUNT(*) FROM events"+
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

// CloseOverdue ends up to limit dispatches that nobody has closed although their work was to end more than after ago, and
// returns how many. Errors as of ExpireOffers.
func (s *Store) CloseOverdue(ctx context.Context, after time.Duration, limit int) (n int, err error) {
	ago, us := s.dialect.now()+" - ?", after.Microseconds()
	// Work that has ended has started: that an index knows.
	due, err := s.dueIDs(ctx, "SELECT id FROM dispatches WHERE status IN ('ACCEPTED', 'IN_PROGRESS') AND work_starts_at < "+ago+
		" AND work_ends_at < "+ago+" ORDER BY status, work_starts_at LIMIT ?", us, us, limit)
	if err != nil {
		return 0, err
	}
	return s.updateEach(ctx, due, func(_ *gorm.DB, d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.CloseOverdue(after, now), nil
	})
}

func (s *Store) dueIDs(ctx context.Context, query string, args ...any) (ids []dispatch.ID, err error) {
	err = s.general.WithContext(ctx).Raw(query, args...).Scan(&ids).Error
	return ids, unavailable(err)
}

// maxFailures is when it is not the dispatches that an error is about.
const maxFailures = 10

// updateEach runs change on one dispatch after the other, each as update does, and returns how many it changed. It goes on
// after an error, but not after many, nor when ctx has ended.
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

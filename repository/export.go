package repository

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// exportedAtOnce is how many claims or dispatches one statement of an export is about. An export holds no more in memory, and no
// connection while its reader is slow.
const exportedAtOnce = 200

// ClaimsOf returns the driver's claims, the oldest first, or an error as the last pair.
func (s *Store) ClaimsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.DriversClaim, error] {
	return func(yield func(dispatch.DriversClaim, error) bool) {
		for last := 0; ; {
			var rows []claimRow
			err := s.serve.WithContext(ctx).Where("driver_id = ? AND driver_seq > ?", id, last).Order("driver_seq").Limit(exportedAtOnce).Find(&rows).Error
			if err != nil {
				yield(dispatch.DriversClaim{}, unavailable(err))
				return
			}
			for i := range rows {
				last = rows[i].DriverSeq
				if !yield(dispatch.DriversClaim{PastClaim: rows[i].past(), Dispatch: rows[i].DispatchID}, nil) {
					return
				}
			}
			if len(rows) < exportedAtOnce {
				return
			}
		}
	}
}

// EventsOf returns the events that the driver caused or that name the driver, by dispatch, or an error as the last pair.
func (s *Store) EventsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Event, error] {
	return func(yield func(dispatch.Event, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, "events") {
			var rows []eventRow
			if err == nil {
				err = s.serve.WithContext(ctx).Raw("SELECT * FROM events {force ix_events_dispatch}"+
					" WHERE dispatch_id IN ? AND (driver_id = ? OR actor = ?) ORDER BY dispatch_id, id", collectIDs(chunk), id, id).Scan(&rows).Error
			}
			if err != nil {
				yield(dispatch.Event{}, unavailable(err))
				return
			}
			for i := range rows {
				if !yield(rows[i].event(), nil) {
					return
				}
			}
		}
	}
}

// OfferMarksOf returns which offers the driver has seen and declined, by dispatch, or an error as the last pair.
func (s *Store) OfferMarksOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.OfferMarks, error] {
	type row struct {
		DispatchID         dispatch.ID
		Round              int
		SeenAt, DeclinedAt *int64
		DeclineReason      string
	}
	return eachRow(ctx, s, "offers", func(db *gorm.DB, ids []dispatch.ID, round int) (rows []row, err error) {
		err = db.Raw("SELECT dispatch_id, round, seen_at, declined_at, decline_reason FROM offers {force PRIMARY}"+
			" WHERE dispatch_id IN ? AND round = ? AND driver_id = ?", ids, round, id).Scan(&rows).Error
		return rows, err
	}, func(r *row) dispatch.OfferMarks {
		return dispatch.OfferMarks{
			Dispatch: r.DispatchID, Round: r.Round, SeenAt: fromOptionalMicros(r.SeenAt), DeclinedAt: fromOptionalMicros(r.DeclinedAt),
			DeclineReason: r.DeclineReason,
		}
	})
}

// NotificationsOf returns the notifications to the driver that are still stored, by dispatch, or an error as the last pair.
func (s *Store) NotificationsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[outbox.Notification, error] {
	return eachRow(ctx, s, "notifications", func(db *gorm.DB, ids []dispatch.ID, round int) (rows []notificationRow, err error) {
		err = db.Raw("SELECT * FROM notifications {force ix_notifications_driver}"+
			" WHERE dispatch_id IN ? AND round = ? AND driver_id = ?", ids, round, id).Scan(&rows).Error
		return rows, err
	}, (*notificationRow).notification)
}

// eachRow reads, of one round of some dispatches at a time, the rows of a table.
func eachRow[R, V any](ctx context.Context, s *Store, table string, read func(db *gorm.DB, ids []dispatch.ID, round int) ([]R, error), value func(*R) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, table) {
			for round := 1; err == nil && len(chunk) > 0; round++ {
				var rows []R
				if rows, err = read(s.serve.WithContext(ctx), collectIDs(chunk), round); err != nil {
					break
				}
				for i := range rows {
					if !yield(value(&rows[i]), nil) {
						return
					}
				}
				chunk = slices.DeleteFunc(chunk, func(d dispatchRound) bool { return d.Round <= round })
			}
			if err != nil {
				var none V
				yield(none, unavailable(err))
				return
			}
		}
	}
}

// TapsOf returns the driver's taps that are still stored, by dispatch, or an error as the last pair.
func (s *Store) TapsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Attempt, error] {
	return func(yield func(dispatch.Attempt, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, "taps") {
			var taps []dispatch.Attempt
			if err == nil {
				err = eachTap(s.serve.WithContext(ctx), " {force ix_taps_driver} WHERE driver_id = ? AND dispatch_id IN ?",
					[]any{id, collectIDs(chunk)}, func(t *dispatch.Attempt) { taps = append(taps, *t) })
			}
			if err != nil {
				yield(dispatch.Attempt{}, unavailable(err))
				return
			}
			for i := range taps {
				if !yield(taps[i], nil) {
					return
				}
			}
		}
	}
}

type dispatchRound struct {
	ID    dispatch.ID
	Round int
}

func collectIDs(all []dispatchRound) []dispatch.ID {
	ids := make([]dispatch.ID, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids
}

// dispatchesSince returns the dispatches, from the oldest one that has rows in one of the tables, in pages. Those tables have no index by
// driver, which every push and tap would have to pay for; they have one that begins with the dispatch.
func (s *Store) dispatchesSince(ctx context.Context, tables ...string) iter.Seq2[[]dispatchRound, error] {
	return func(yield func([]dispatchRound, error) bool) {
		db := s.serve.WithContext(ctx)
		first := ""
		for _, table := range tables {
			var oldest *string
			if err := db.Raw("SELECT MIN(dispatch_id) FROM " + table + " WHERE dispatch_id > ''").Row().Scan(&oldest); err != nil {
				yield(nil, fmt.Errorf("the oldest of %s: %w", table, err))
				return
			}
			if oldest != nil && (first == "" || *oldest < first) {
				first = *oldest
			}
		}
		for first != "" {
			var page []dispatchRound
			err := db.Raw("SELECT id, round FROM dispatches WHERE id >= ? ORDER BY id LIMIT ?", first, exportedAtOnce).Scan(&page).Error
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 {
				return
			}
			more := len(page) == exportedAtOnce
			first = string(page[len(page)-1].ID) + "~" // after it
			if !yield(page, nil) || !more {
				return
			}
		}
	}
}

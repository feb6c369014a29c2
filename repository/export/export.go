package export

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/drivers"
	"firsttap/repository/journal"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
)

// Export reads all that is kept about a driver. It is safe for concurrent use.
type Export struct{ db *database.DB }

// New returns the exports from a database.
func New(db *database.DB) *Export { return &Export{db} }

// exportedAtOnce is how many claims or dispatches one statement of an export is about. An export holds no more in memory, and no
// connection while its reader is slow.
const exportedAtOnce = 200

// ClaimsOf returns the driver's claims, the oldest first, or an error as the last pair.
func (s *Export) ClaimsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.DriversClaim, error] {
	return func(yield func(dispatch.DriversClaim, error) bool) {
		for last := 0; ; {
			var rows []dispatches.ClaimRow
			err := s.db.Serve.With(ctx).Where("driver_id = ? AND driver_seq > ?", id, last).
				Order("driver_seq").Limit(exportedAtOnce).Find(&rows).Error
			if err != nil {
				yield(dispatch.DriversClaim{}, database.Unavailable(err))
				return
			}
			for i := range rows {
				last = rows[i].DriverSeq
				if !yield(dispatch.DriversClaim{PastClaim: rows[i].Past(), Dispatch: rows[i].DispatchID}, nil) {
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
func (s *Export) EventsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Event, error] {
	return func(yield func(dispatch.Event, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, "events") {
			var rows []journal.EventRow
			if err == nil {
				err = s.db.Serve.With(ctx).Raw("SELECT * FROM events {force ix_events_dispatch}"+
					" WHERE dispatch_id IN ? AND (driver_id = ? OR actor = ?) ORDER BY dispatch_id, id", collectIDs(chunk), id, id).Scan(&rows).Error
			}
			if err != nil {
				yield(dispatch.Event{}, database.Unavailable(err))
				return
			}
			for i := range rows {
				if !yield(rows[i].Event(), nil) {
					return
				}
			}
		}
	}
}

// OfferMarksOf returns which offers the driver has seen and declined, by dispatch, or an error as the last pair.
func (s *Export) OfferMarksOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.OfferMarks, error] {
	type row struct {
		DispatchID         dispatch.ID
		Round              int
		SeenAt, DeclinedAt *int64
		DeclineReason      string
	}
	return eachRow(ctx, s, "offers", func(db database.Tx, ids []dispatch.ID, round int) (rows []row, err error) {
		err = db.Raw("SELECT dispatch_id, round, seen_at, declined_at, decline_reason FROM offers {force PRIMARY}"+
			" WHERE dispatch_id IN ? AND round = ? AND driver_id = ?", ids, round, id).Scan(&rows).Error
		return rows, err
	}, func(r *row) dispatch.OfferMarks {
		return dispatch.OfferMarks{
			Dispatch: r.DispatchID, Round: r.Round, SeenAt: database.OptionalTime(r.SeenAt), DeclinedAt: database.OptionalTime(r.DeclinedAt),
			DeclineReason: r.DeclineReason,
		}
	})
}

// NotificationsOf returns the notifications to the driver that are still stored, by dispatch, or an error as the last pair.
func (s *Export) NotificationsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[outbox.Notification, error] {
	return eachRow(ctx, s, "notifications", func(db database.Tx, ids []dispatch.ID, round int) (rows []pushes.NotificationRow, err error) {
		err = db.Raw("SELECT * FROM notifications {force ix_notifications_driver}"+
			" WHERE dispatch_id IN ? AND round = ? AND driver_id = ?", ids, round, id).Scan(&rows).Error
		return rows, err
	}, (*pushes.NotificationRow).Notification)
}

// eachRow reads, of one round of some dispatches at a time, the rows of a table.
func eachRow[R, V any](
	ctx context.Context, s *Export, table string, read func(db database.Tx, ids []dispatch.ID, round int) ([]R, error),
	value func(*R) V,
) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, table) {
			for round := 1; err == nil && len(chunk) > 0; round++ {
				var rows []R
				if rows, err = read(s.db.Serve.With(ctx), collectIDs(chunk), round); err != nil {
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
				yield(none, database.Unavailable(err))
				return
			}
		}
	}
}

// TapsOf returns the driver's taps that are still stored, by dispatch, or an error as the last pair.
func (s *Export) TapsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Attempt, error] {
	return func(yield func(dispatch.Attempt, error) bool) {
		for chunk, err := range s.dispatchesSince(ctx, "taps") {
			var taps []dispatch.Attempt
			if err == nil {
				err = offers.EachTap(s.db.Serve.With(ctx), " {force ix_taps_driver} WHERE driver_id = ? AND dispatch_id IN ?",
					[]any{id, collectIDs(chunk)}, func(t *dispatch.Attempt) { taps = append(taps, *t) })
			}
			if err != nil {
				yield(dispatch.Attempt{}, database.Unavailable(err))
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
func (s *Export) dispatchesSince(ctx context.Context, tables ...string) iter.Seq2[[]dispatchRound, error] {
	return func(yield func([]dispatchRound, error) bool) {
		db := s.db.Serve.With(ctx)
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

// RecordExport audits an export of what is kept about the driver, and returns the driver. ErrDriverNotFound. Nothing must be exported
// unless the error is nil.
func (s *Export) RecordExport(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := drivers.Lock(tx, id)
		if err != nil {
			return err
		}
		if record, err = row.Record(); err != nil {
			return database.Unavailable(err)
		}
		return journal.Record(tx, dispatch.AuditDriverExport, string(id), nil, now)
	})
	return record, err
}

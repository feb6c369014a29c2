package export

import (
	"context"
	"iter"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
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
	return inParts(func(after int) (rows []dispatches.ClaimRow, last int, more bool, err error) {
		err = s.db.Serve.With(ctx).Where("driver_id = ? AND driver_seq > ?", id, after).
			Order("driver_seq").Limit(exportedAtOnce).Find(&rows).Error
		if more = len(rows) == exportedAtOnce; more {
			last = rows[len(rows)-1].DriverSeq
		}
		return rows, last, more, err
	}, func(row *dispatches.ClaimRow) dispatch.DriversClaim {
		return dispatch.DriversClaim{PastClaim: row.Past(), Dispatch: row.DispatchID}
	})
}

// inParts yields the values of the rows that read returns, which is called again with its last as long as it says that there is more. An
// error is the last pair.
func inParts[K, R, V any](read func(after K) (rows []R, last K, more bool, err error), value func(*R) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		var last K
		for more := true; more; {
			var rows []R
			var err error
			if rows, last, more, err = read(last); err != nil {
				var none V
				yield(none, database.Unavailable(err))
				return
			}
			for i := range rows {
				if !yield(value(&rows[i]), nil) {
					return
				}
			}
		}
	}
}

// EventsOf returns the events that the driver caused or that name the driver, by dispatch, or an error as the last pair.
func (s *Export) EventsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Event, error] {
	return byDispatch(ctx, s, id, "events", "SELECT * FROM events {force ix_events_dispatch}"+
		" WHERE dispatch_id IN @ids AND (driver_id = @driver OR actor = @driver) ORDER BY dispatch_id, id", (*journal.EventRow).Event)
}

// OfferMarksOf returns which offers the driver has seen and declined, by dispatch, or an error as the last pair.
func (s *Export) OfferMarksOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.OfferMarks, error] {
	type row struct {
		DispatchID         dispatch.ID
		Round              int
		SeenAt, DeclinedAt *int64
		DeclineReason      string
	}
	return byDispatch(ctx, s, id, "offers", "SELECT * FROM offers {force PRIMARY}"+
		" WHERE dispatch_id IN @ids AND round IN @rounds AND driver_id = @driver", func(r *row) dispatch.OfferMarks {
		return dispatch.OfferMarks{
			Dispatch: r.DispatchID, Round: r.Round,
			SeenAt: database.OptionalTime(r.SeenAt), DeclinedAt: database.OptionalTime(r.DeclinedAt),
			DeclineReason: r.DeclineReason,
		}
	})
}

// NotificationsOf returns the notifications to the driver that are still stored, by dispatch, or an error as the last pair.
func (s *Export) NotificationsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[outbox.Notification, error] {
	return byDispatch(ctx, s, id, "notifications", "SELECT * FROM notifications {force ix_notifications_driver}"+
		" WHERE dispatch_id IN @ids AND round IN @rounds AND driver_id = @driver", (*pushes.NotificationRow).Notification)
}

// TapsOf returns the driver's taps that are still stored, by dispatch, or an error as the last pair.
func (s *Export) TapsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Attempt, error] {
	return byDispatch(ctx, s, id, "taps", "SELECT * FROM taps {force ix_taps_driver} WHERE driver_id = @driver AND dispatch_id IN @ids",
		(*offers.TapRow).Attempt)
}

// byDispatch yields the rows of a table that the query finds, for some dispatches at a time, from the oldest one that has rows in the
// table. Most tables have no index by driver, which every push and tap would have to pay for; they have one that begins with the dispatch.
// The query may use the names @driver, @ids of the dispatches, and @rounds, which are all rounds that one of them has had.
func byDispatch[R, V any](
	ctx context.Context, s *Export, driver dispatch.DriverID, table, query string, value func(*R) V,
) iter.Seq2[V, error] {
	return inParts(func(after dispatch.ID) (rows []R, last dispatch.ID, more bool, err error) {
		var part []struct {
			ID    dispatch.ID
			Round int
		}
		err = s.db.Serve.With(ctx).Raw("SELECT id, round FROM dispatches WHERE id > ? AND id >="+
			" (SELECT MIN(dispatch_id) FROM "+table+" WHERE dispatch_id > '') ORDER BY id LIMIT ?", after, exportedAtOnce).Scan(&part).Error
		if err != nil || len(part) == 0 {
			return nil, "", false, err
		}
		var ids []dispatch.ID
		var rounds []int
		for _, d := range part {
			ids, last = append(ids, d.ID), d.ID
			for len(rounds) < d.Round {
				rounds = append(rounds, len(rounds)+1)
			}
		}
		values := map[string]any{"driver": driver, "ids": ids, "rounds": rounds}
		err = s.db.Serve.With(ctx).Raw(query, values).Scan(&rows).Error
		return rows, last, len(part) == exportedAtOnce, err
	}, value)
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

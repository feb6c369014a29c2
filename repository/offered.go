package repository

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

type offeredRow struct {
	Row           dispatchRow `gorm:"embedded"`
	Now           int64
	SeenAt        *int64
	DeclinedAt    *int64
	DeclineReason string
	SentAt        *int64
	TappedAt      *int64
	GaveBack      bool
}

// offeredColumns are the columns of a driver's offers of dispatches p, left joined with offers o. See offeredArgs.
const offeredColumns = `o.seen_at, o.declined_at, COALESCE(o.decline_reason, '') decline_reason,
	(SELECT MIN(n.sent_at) FROM notifications n WHERE n.dispatch_id = p.id AND n.round = p.round AND n.driver_id = ?
		AND n.state = 1 AND n.type IN ` + offerTypes + `) sent_at,
	(SELECT MIN(t.at) FROM taps t WHERE t.dispatch_id = p.id AND t.round = p.round AND t.driver_id = ? AND t.result <> 'OFFER_STALE') tapped_at,
	EXISTS (SELECT 1 FROM claims c WHERE c.dispatch_id = p.id AND c.round < p.round AND c.driver_id = ? AND c.outcome = 'WITHDRAWN') gave_back`

const offerJoin = ` p LEFT JOIN offers o ON o.dispatch_id = p.id AND o.round = p.round AND o.driver_id = ?`

// offeredArgs returns the arguments of offeredColumns, of the query's source, and of offerJoin.
func offeredArgs(v dispatch.DriverID, source ...any) []any {
	return append(append([]any{v, v, v}, source...), v)
}

func (row *offeredRow) offered(v dispatch.DriverID) dispatch.Offered {
	return dispatch.Offered{
		Dispatch: row.Row.at(fromMicros(row.Now)),
		Contact: dispatch.OfferHistory{
			Driver: v, Round: row.Row.Round, Withdrew: row.GaveBack, SentAt: fromOptionalMicros(row.SentAt),
			SeenAt: fromOptionalMicros(row.SeenAt), DeclinedAt: fromOptionalMicros(row.DeclinedAt),
			DeclineReason: row.DeclineReason, TappedAt: fromOptionalMicros(row.TappedAt),
		},
	}
}

// OfferTo returns the dispatch at the database's time with the driver's offer of it in the current round. ErrNotFound.
func (s *Store) OfferTo(ctx context.Context, id dispatch.ID, v dispatch.DriverID) (dispatch.Offered, error) {
	var rows []offeredRow
	err := s.serve.WithContext(ctx).Raw("SELECT p.*, {now} now, "+offeredColumns+
		" FROM dispatches"+offerJoin+" WHERE p.id = ?", append(offeredArgs(v), id)...).Scan(&rows).Error
	if err != nil {
		return dispatch.Offered{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Offered{}, dispatch.ErrNotFound
	}
	offered := rows[0].offered(v)
	s.lastKnown.learnDispatch(&offered.Dispatch) // the driver may tap next
	return offered, nil
}

// OpenDispatchesFor returns the dispatches whose terms the driver matches and whose window has not ended, the one that opens last
// first, and the cursor of the next page, "" after the last page. It makes no difference whether the driver is on duty or suspended.
func (s *Store) OpenDispatchesFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Offered, string, error) {
	const index = "ix_dispatches_open"
	l := listing{kind: openList, order: "opens_at"}
	for _, region := range slices.Compact(slices.Sorted(slices.Values(v.Regions))) {
		l.parts = append(l.parts, part{index, "region = ?", []any{region}})
	}
	if len(l.parts) == 0 {
		l.parts = []part{{index, "1 = 0", nil}} // the cursor is checked all the same
	}
	l.and("status = 'PENDING' AND expires_at > {now} AND vehicle_class = ?", v.VehicleClass)
	l.and("(min_working_height_m IS NULL OR min_working_height_m <= ?)", v.WorkingHeightM)
	source, args, err := l.sql(page)
	if err != nil {
		return nil, "", err
	}
	var rows []offeredRow
	err = s.serve.WithContext(ctx).Raw("SELECT p.*, {now} now, "+offeredColumns+" FROM ("+source+")"+offerJoin+
		" ORDER BY p.opens_at DESC, p.id DESC", offeredArgs(v.ID, args...)...).Scan(&rows).Error
	if err != nil {
		return nil, "", unavailable(err)
	}
	rows, next := trimPage(&l, rows, page.Limit, func(row *offeredRow) *dispatchRow { return &row.Row })
	items := make([]dispatch.Offered, len(rows))
	for i := range rows {
		items[i] = rows[i].offered(v.ID)
		s.lastKnown.learnDispatch(&items[i].Dispatch) // the driver may tap next
	}
	return items, next, nil
}

// Decline writes that the driver declines the offer of the round, 0 for the current one, with an event the first time.
// dispatch.Decline decides. The dispatch's row is neither changed nor locked. ErrNotFound, and the errors of
// dispatch.Decline.
func (s *Store) Decline(ctx context.Context, id dispatch.ID, round int, v dispatch.DriverID, reason string) error {
	var d dispatch.Dispatch
	var events []dispatch.Event
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) (err error) {
		var now time.Time
		if d, now, err = s.findDispatch(tx, id); err != nil {
			return err
		}
		at := notBefore(now, d.UpdatedAt.Add(-time.Microsecond)) // before a change that comes next
		if events, err = d.Decline(v, round, reason, at); err != nil || len(events) == 0 {
			return err
		}
		fresh, err := s.writeDecline(tx, &d, v, reason, now)
		if err != nil || !fresh {
			events = nil
			return unavailable(err)
		}
		return unavailable(s.writeEvents(tx, events, at.Sub(now)))
	})
	if err = s.settleLost(ctx, events, err); err == nil {
		s.announce(d, events)
	}
	return err
}

// writeDecline reports whether this is the driver's first decline of the offer.
func (s *Store) writeDecline(tx *gorm.DB, d *dispatch.Dispatch, v dispatch.DriverID, reason string, now time.Time) (bool, error) {
	// The INSERT leaves an existing row unchanged and locks it: the second of two declines at the same time waits here.
	err := tx.Exec("INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, ?, ?) {or_update} "+
		"declined_at = offers.declined_at", d.ID, d.Round, v).Error
	if err != nil {
		return false, err
	}
	done := tx.Exec(`UPDATE offers SET declined_at = ?, decline_reason = ?
		WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND declined_at IS NULL`, micros(now), reason, d.ID, d.Round, v)
	return done.RowsAffected == 1, done.Error
}

package offers

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/pushes"
)

type offeredRow struct {
	Row           dispatches.Row `gorm:"embedded"`
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
		AND n.state = 1 AND n.type IN ` + pushes.OfferTypes + `) sent_at,
	(SELECT MIN(t.at) FROM taps t WHERE t.dispatch_id = p.id AND t.round = p.round AND t.driver_id = ?
	AND t.result <> 'OFFER_STALE') tapped_at,
	EXISTS (SELECT 1 FROM claims c WHERE c.dispatch_id = p.id AND c.round < p.round AND c.driver_id = ? AND c.outcome = 'WITHDRAWN') gave_back`

const offerJoin = ` p LEFT JOIN offers o ON o.dispatch_id = p.id AND o.round = p.round AND o.driver_id = ?`

// offeredArgs returns the arguments of offeredColumns, of the query's source, and of offerJoin.
func offeredArgs(v dispatch.DriverID, source ...any) []any {
	return append(append([]any{v, v, v}, source...), v)
}

func (row *offeredRow) offered(v dispatch.DriverID) dispatch.Offered {
	return dispatch.Offered{
		Dispatch: row.Row.At(database.Time(row.Now)),
		Contact: dispatch.OfferHistory{
			Driver: v, Round: row.Row.Round, Withdrew: row.GaveBack, SentAt: database.OptionalTime(row.SentAt),
			SeenAt: database.OptionalTime(row.SeenAt), DeclinedAt: database.OptionalTime(row.DeclinedAt),
			DeclineReason: row.DeclineReason, TappedAt: database.OptionalTime(row.TappedAt),
		},
	}
}

// OfferTo returns the dispatch at the database's time with the driver's offer of it in the current round. ErrNotFound.
func (s *Offers) OfferTo(ctx context.Context, id dispatch.ID, v dispatch.DriverID) (dispatch.Offered, error) {
	var rows []offeredRow
	err := s.db.Serve.With(ctx).Raw("SELECT p.*, {now} now, "+offeredColumns+
		" FROM dispatches"+offerJoin+" WHERE p.id = ?", append(offeredArgs(v), id)...).Scan(&rows).Error
	if err != nil {
		return dispatch.Offered{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Offered{}, dispatch.ErrNotFound
	}
	offered := rows[0].offered(v)
	s.dispatches.Learn(&offered.Dispatch)
	return offered, nil
}

// OpenDispatchesFor returns the dispatches whose terms the driver matches and whose window has not ended, the one that opens last
// first, and the cursor of the next page, "" after the last page. It makes no difference whether the driver is on duty or suspended.
func (s *Offers) OpenDispatchesFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Offered, string, error) {
	const index = "ix_dispatches_open"
	l := dispatches.Listing{Kind: database.OpenList, Order: "opens_at"}
	for _, region := range slices.Compact(slices.Sorted(slices.Values(v.Regions))) {
		l.Parts = append(l.Parts, dispatches.Part{Index: index, Where: "region = ?", Args: []any{region}})
	}
	if len(l.Parts) == 0 {
		l.Parts = []dispatches.Part{{Index: index, Where: "1 = 0"}} // the cursor is checked all the same
	}
	l.And("status = 'PENDING' AND expires_at > {now} AND vehicle_class = ?", v.VehicleClass)
	l.And("(min_working_height_m IS NULL OR min_working_height_m <= ?)", v.WorkingHeightM)
	source, args, err := l.SQL(page)
	if err != nil {
		return nil, "", err
	}
	var rows []offeredRow
	err = s.db.Serve.With(ctx).Raw("SELECT p.*, {now} now, "+offeredColumns+" FROM ("+source+")"+offerJoin+
		" ORDER BY p.opens_at DESC, p.id DESC", offeredArgs(v.ID, args...)...).Scan(&rows).Error
	if err != nil {
		return nil, "", database.Unavailable(err)
	}
	rows, next := dispatches.TrimPage(&l, rows, page.Limit, func(row *offeredRow) *dispatches.Row { return &row.Row })
	items := make([]dispatch.Offered, len(rows))
	for i := range rows {
		items[i] = rows[i].offered(v.ID)
		s.dispatches.Learn(&items[i].Dispatch)
	}
	return items, next, nil
}

// Decline writes that the driver declines the offer of the round, 0 for the current one, with an event the first time.
// dispatch.Decline decides. The dispatch's row is neither changed nor locked. ErrNotFound, and the errors of
// dispatch.Decline.
func (s *Offers) Decline(ctx context.Context, id dispatch.ID, round int, v dispatch.DriverID, reason string) error {
	_, err := s.dispatches.Commit(ctx, func(tx database.Tx) (d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration, err error) {
		d, now, err := dispatches.Find(tx, id)
		if err != nil {
			return d, nil, 0, err
		}
		at := dispatches.NotBefore(now, d.UpdatedAt.Add(-time.Microsecond)) // before a change that comes next
		if events, err = d.Decline(v, round, reason, at); err != nil || len(events) == 0 {
			return d, nil, 0, err
		}
		fresh, err := s.writeDecline(tx, &d, v, reason, now)
		if err != nil || !fresh {
			return d, nil, 0, database.Unavailable(err)
		}
		return d, events, at.Sub(now), nil
	})
	return err
}

// writeDecline reports whether this is the driver's first decline of the offer.
func (s *Offers) writeDecline(tx database.Tx, d *dispatch.Dispatch, v dispatch.DriverID, reason string, now time.Time) (bool, error) {
	// The INSERT leaves an existing row unchanged and locks it: the second of two declines at the same time waits here.
	err := tx.Exec("INSERT INTO offers (dispatch_id, round, driver_id) VALUES (?, ?, ?) {or_update} "+
		"declined_at = offers.declined_at", d.ID, d.Round, v).Error
	if err != nil {
		return false, err
	}
	done := tx.Exec(`UPDATE offers SET declined_at = ?, decline_reason = ?
		WHERE dispatch_id = ? AND round = ? AND driver_id = ? AND declined_at IS NULL`, database.Micros(now), reason, d.ID, d.Round, v)
	return done.RowsAffected == 1, done.Error
}

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

// historyRow is what a driver's offer and its traces say.
type historyRow struct {
	SentAt, SeenAt, DeclinedAt, TappedAt *int64
	DeclineReason                        string
	Withdrew                             bool
}

// historyColumns are the columns of a historyRow, of a dispatch p left joined with the driver's offer o of the round. Both names are SQL.
func historyColumns(round, driver string) string {
	return `o.seen_at, o.declined_at, COALESCE(o.decline_reason, '') decline_reason, ` + SentSQL("p.id", round, driver) + ` sent_at,
	(SELECT MIN(t.at) FROM taps t WHERE t.dispatch_id = p.id AND t.round = ` + round + ` AND t.driver_id = ` + driver + `
		AND t.result <> 'OFFER_STALE') tapped_at,
	EXISTS (SELECT 1 FROM claims c WHERE c.dispatch_id = p.id AND c.round < ` + round + ` AND c.driver_id = ` + driver + `
		AND c.outcome = 'WITHDRAWN') withdrew`
}

// SentSQL is the SQL for when the push service first accepted the offer of the round to the driver, NULL if it has not. The names are SQL.
func SentSQL(dispatch, round, driver string) string {
	return `(SELECT MIN(n.sent_at) FROM notifications n {force ix_notifications_driver} WHERE n.dispatch_id = ` + dispatch + `
		AND n.round = ` + round + ` AND n.driver_id = ` + driver + ` AND n.state = 1 AND n.type IN ` + pushes.OfferTypes + `)`
}

func (h *historyRow) of(v dispatch.DriverID, round int) dispatch.OfferHistory {
	return dispatch.OfferHistory{
		Driver: v, Round: round, Withdrew: h.Withdrew, SentAt: database.OptionalTime(h.SentAt), SeenAt: database.OptionalTime(h.SeenAt),
		DeclinedAt: database.OptionalTime(h.DeclinedAt), DeclineReason: h.DeclineReason, TappedAt: database.OptionalTime(h.TappedAt),
	}
}

// offeredRow is a dispatch with its offer to one driver in the current round.
type offeredRow struct {
	Row     dispatches.Row `gorm:"embedded"`
	Now     int64
	History historyRow `gorm:"embedded"`
}

// readOffered reads the dispatches of the source, which is SQL, with the driver's offers of them, the one that opens last first.
func (s *Offers) readOffered(ctx context.Context, v dispatch.DriverID, source string, args ...any) ([]offeredRow, error) {
	var rows []offeredRow
	err := s.db.Serve.With(ctx).Raw("SELECT p.*, {now} now, "+historyColumns("p.round", "@driver")+" FROM ("+source+`) p
		LEFT JOIN offers o ON o.dispatch_id = p.id AND o.round = p.round AND o.driver_id = @driver ORDER BY p.opens_at DESC, p.id DESC`,
		append(args, map[string]any{"driver": v})...).Scan(&rows).Error
	return rows, database.Unavailable(err)
}

// offered returns the driver's offer, and remembers the dispatch: the driver may tap next.
func (s *Offers) offered(row *offeredRow, v dispatch.DriverID) dispatch.Offered {
	o := dispatch.Offered{Dispatch: row.Row.At(database.Time(row.Now)), Contact: row.History.of(v, row.Row.Round)}
	s.dispatches.Learn(&o.Dispatch)
	return o
}

// OfferTo returns the dispatch at the database's time with the driver's offer of it in the current round. ErrNotFound.
func (s *Offers) OfferTo(ctx context.Context, id dispatch.ID, v dispatch.DriverID) (dispatch.Offered, error) {
	rows, err := s.readOffered(ctx, v, "SELECT * FROM dispatches WHERE id = ?", id)
	switch {
	case err != nil:
		return dispatch.Offered{}, err
	case len(rows) == 0:
		return dispatch.Offered{}, dispatch.ErrNotFound
	}
	return s.offered(&rows[0], v), nil
}

// OpenDispatchesFor returns the dispatches whose terms the driver matches and whose window has not ended, the one that opens last
// first, and the cursor of the next page, "" after the last page. It makes no difference whether the driver is on duty or suspended.
func (s *Offers) OpenDispatchesFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Offered, string, error) {
	l := database.Listing{Kind: database.OpenList, Prefix: dispatch.DispatchPrefix, Order: "opens_at"}
	for _, region := range slices.Compact(slices.Sorted(slices.Values(v.Regions))) {
		l.Parts = append(l.Parts, database.Part{
			Select: dispatches.SelectTimed("ix_dispatches_open"),
			Where: "region = ? AND status = 'PENDING' AND expires_at > {now} AND vehicle_class = ?" +
				" AND (min_working_height_m IS NULL OR min_working_height_m <= ?)",
			Args: []any{region, v.VehicleClass, v.WorkingHeightM},
		})
	}
	source, args, err := l.SQL(page)
	if err != nil || len(l.Parts) == 0 {
		return nil, "", err
	}
	rows, err := s.readOffered(ctx, v.ID, source, args...)
	if err != nil {
		return nil, "", err
	}
	rows, next := database.Trim(rows, page.Limit, func(row *offeredRow) string {
		return database.Cursor(l.Kind, row.Row.OpensAt, row.Row.ID)
	})
	items := make([]dispatch.Offered, len(rows))
	for i := range rows {
		items[i] = s.offered(&rows[i], v.ID)
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

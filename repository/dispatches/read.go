package dispatches

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// TimedRow is a row of dispatches, and the database's time when it was read.
type TimedRow struct {
	Row Row `gorm:"embedded"`
	Now int64
}

// Find reads a dispatch and the database's time, in one statement. ErrNotFound.
func Find(db database.Tx, id dispatch.ID) (dispatch.Dispatch, time.Time, error) {
	row, now, err := readRow(db, id, "")
	if err != nil {
		return dispatch.Dispatch{}, time.Time{}, err
	}
	return row.At(now), now, nil
}

// lockRow locks a dispatch's row until tx ends, and returns it and the database's time. ErrNotFound.
func lockRow(tx database.Tx, id dispatch.ID) (Row, time.Time, error) {
	row, now, err := readRow(tx, id, "{for_update}")
	if err == nil {
		now, err = database.Clock(tx) // the statement may have waited for the row's lock
	}
	return row, now, err
}

func readRow(db database.Tx, id dispatch.ID, lock string) (Row, time.Time, error) {
	var rows []TimedRow
	if err := db.Raw("SELECT d.*, {now} now FROM dispatches d WHERE d.id = ? "+lock, id).Scan(&rows).Error; err != nil {
		return Row{}, time.Time{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, time.Time{}, dispatch.ErrNotFound
	}
	return rows[0].Row, database.Time(rows[0].Now), nil
}

// Dispatch returns the dispatch at the database's time. ErrNotFound.
func (s *Dispatches) Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error) {
	d, _, err := Find(s.db.Serve.With(ctx), id)
	return d, err
}

// List returns the dispatches that q selects, newest first, and the cursor of the next page, "" after the last. Every page costs the same.
// With q.Text a page may have fewer dispatches than q.Limit, or none, although there is a next one. For a driver, whose list has no search,
// the last accepted is first, and the primary answers, because the driver decides by the answer. ErrBadCursor, ErrUnavailable.
func (s *Dispatches) List(ctx context.Context, q dispatch.Query) (items []dispatch.Dispatch, next string, err error) {
	if q.Driver != "" {
		return list(s.db.Serve.With(ctx), q)
	}
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = list(db, q)
		return err
	})
	return items, next, err
}

func list(db database.Tx, q dispatch.Query) (items []dispatch.Dispatch, next string, err error) {
	l := dispatchListing(q, nil)
	cursor := func(row *TimedRow) string {
		at := int64(0)
		if row.Row.AcceptedAt != nil { // by which a driver's list is sorted
			at = *row.Row.AcceptedAt
		}
		return database.Cursor(l.Kind, at, row.Row.ID)
	}
	var rows []TimedRow
	if q.Text == "" || q.Driver != "" {
		rows, next, err = database.ReadListing(db, l, q.Page, cursor)
	} else {
		list := search.List[TimedRow]{
			Index: WordIndex, Cursor: cursor,
			Of:    func(ids []string) database.Listing { return dispatchListing(q, ids) },
			Words: func(row *TimedRow) (string, []string) { return string(row.Row.ID), row.Row.Words() },
			Text:  func(row *TimedRow) string { return row.Row.text() },
		}
		rows, next, err = list.Find(db, search.Terms(q.Text, dispatch.DispatchPrefix), q.Page)
	}
	items = make([]dispatch.Dispatch, len(rows))
	for i := range rows {
		items[i] = rows[i].Row.At(database.Time(rows[i].Now))
	}
	return items, next, err
}

// SelectTimed is the SELECT of TimedRows by an index.
func SelectTimed(index string) string {
	return "SELECT d.*, {now} now FROM dispatches d {force " + index + "}"
}

// dispatchListing is the list of the dispatches that q selects, whatever its text, or of those among them that have one of the identifiers
// unless ids is nil.
func dispatchListing(q dispatch.Query, ids []string) database.Listing {
	l := database.Listing{Kind: database.DispatchList, Prefix: dispatch.DispatchPrefix}
	index, also, args := "PRIMARY", "", []any(nil)
	switch {
	case ids != nil:
		also, args = " AND id IN ?", []any{ids}
	case q.Driver != "":
		l.Kind, l.Order, index = database.DriverDispatchList, "accepted_at", "ix_dispatches_jobs"
		also, args = " AND accepted_by = ?", []any{q.Driver}
	case q.Region != "" && q.Status != "":
		index = "ix_dispatches_region_status"
	case q.Region != "":
		index = "ix_dispatches_region"
	case q.Status != "":
		index = "ix_dispatches_status"
	}
	if q.Region != "" {
		also, args = also+" AND region = ?", append(args, q.Region)
	}
	for _, where := range statusSQL(q.Status) {
		l.Parts = append(l.Parts, database.Part{Select: SelectTimed(index), Where: where + also, Args: args})
	}
	if q.Status == dispatch.Expired && q.Driver == "" && ids == nil {
		// Few rows are past their window and still PENDING. By status, the query would step over all that are still open.
		l.Parts[1].Select = SelectTimed("ix_dispatches_expiry")
	}
	return l
}

// statusSQL returns the conditions for the status at the database's time, which may differ from the stored one. A dispatch
// with the status fulfills exactly one condition. Each condition can be read in the order of an index.
func statusSQL(status dispatch.Status) []string {
	switch status {
	case "":
		return []string{"1 = 1"}
	case dispatch.Scheduled:
		return []string{"status = 'PENDING' AND NOT " + opened}
	case dispatch.Pending:
		return []string{"status = 'PENDING' AND " + opened + " AND expires_at > {now}"}
	case dispatch.Expired:
		return []string{"status = 'EXPIRED'", "status = 'PENDING' AND " + opened + " AND expires_at <= {now}"}
	}
	if !status.Valid() {
		return []string{"1 = 0"}
	}
	return []string{"status = '" + string(status) + "'"}
}

// ClaimOf returns the driver's claim of the dispatch in the round, of the newest for 0; nil if there is none.
func (s *Dispatches) ClaimOf(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, round int) (*dispatch.PastClaim, error) {
	of := s.db.Serve.With(ctx).Where("dispatch_id = ? AND driver_id = ?", id, driver)
	if round != 0 {
		of = of.Where("round = ?", round)
	}
	var rows []ClaimRow
	err := of.Order("round DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, database.Unavailable(err)
	}
	past := rows[0].Past()
	return &past, nil
}

// Past returns the claim with its end.
func (row *ClaimRow) Past() dispatch.PastClaim {
	return dispatch.PastClaim{
		Claim: dispatch.Claim{
			ID: row.ID, Driver: row.DriverID, Round: row.Round, AcceptedAt: database.Time(row.AcceptedAt),
		},
		Outcome: row.Outcome, EndedAt: database.OptionalTime(row.EndedAt),
	}
}

// Holders returns status, round and driver of each of the dispatches, in one statement. It omits unknown dispatches. ErrUnavailable.
func (s *Dispatches) Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	var rows []Row
	err := s.db.Serve.With(ctx).Select("id", "status", "round", "accepted_by").Where("id IN ?", ids).Find(&rows).Error
	found := make(map[dispatch.ID]dispatch.CurrentHolder, len(rows))
	for _, row := range rows {
		h := dispatch.CurrentHolder{Status: row.Status, Round: row.Round}
		if row.AcceptedBy != nil {
			h.Driver = *row.AcceptedBy
		}
		found[row.ID] = h
	}
	return found, database.Unavailable(err)
}

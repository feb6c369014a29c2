package repository

import (
	"context"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

type timedRow struct {
	Row dispatchRow `gorm:"embedded"`
	Now int64
}

// findDispatch reads a dispatch and the database's time, in one statement.
func (s *Store) findDispatch(db *gorm.DB, id dispatch.ID) (dispatch.Dispatch, time.Time, error) {
	row, now, err := s.findDispatchRow(db, id, "")
	if err != nil {
		return dispatch.Dispatch{}, time.Time{}, err
	}
	return row.at(now), now, nil
}

// findDispatchRow reads a dispatch's row and the database's time: in one statement, or in two if locking is given.
func (s *Store) findDispatchRow(db *gorm.DB, id dispatch.ID, locking string) (dispatchRow, time.Time, error) {
	var rows []timedRow
	err := db.Raw("SELECT d.*, {now} now FROM dispatches d WHERE d.id = ?"+locking, id).Scan(&rows).Error
	if err != nil {
		return dispatchRow{}, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatchRow{}, time.Time{}, dispatch.ErrNotFound
	}
	now := fromMicros(rows[0].Now)
	if locking != "" && !s.dialect.text.sqlite { // the statement may have waited for the row's lock
		if now, err = s.clock(db); err != nil {
			return dispatchRow{}, time.Time{}, err
		}
	}
	return rows[0].Row, now, nil
}

// Dispatch returns the dispatch at the database's time. ErrNotFound.
func (s *Store) Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error) {
	d, _, err := s.findDispatch(s.serve.WithContext(ctx), id)
	return d, err
}

// List returns the dispatches that q selects, newest first, and the cursor of the next page, "" after the last. Every page costs the same.
// With q.Text a page may have fewer dispatches than q.Limit, or none, although there is a next one. The primary answers for a driver, who
// decides by the answer. ErrBadCursor.
func (s *Store) List(ctx context.Context, q dispatch.Query) (items []dispatch.Dispatch, next string, err error) {
	if q.Driver != "" {
		return s.listDispatches(s.serve.WithContext(ctx), q)
	}
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listDispatches(db, q)
		return err
	})
	return items, next, err
}

func (s *Store) listDispatches(db *gorm.DB, q dispatch.Query) ([]dispatch.Dispatch, string, error) {
	if q.Text != "" {
		return s.search(db, q)
	}
	l := s.dispatchListing(q)
	rows, err := s.readListing(db, &l, q.Page)
	if err != nil {
		return nil, "", err
	}
	rows, next := trimPage(&l, rows, q.Limit, func(row *timedRow) *dispatchRow { return &row.Row })
	return dispatchesOf(rows), next, nil
}

// readListing reads the page of the listing and one more.
func (s *Store) readListing(db *gorm.DB, l *listing, page dispatch.Page) ([]timedRow, error) {
	source, args, err := l.sql(page)
	if err != nil {
		return nil, err
	}
	var rows []timedRow
	err = db.Raw("SELECT p.*, {now} now FROM ("+source+") p ORDER BY "+l.by(), args...).Scan(&rows).Error
	return rows, unavailable(err)
}

func dispatchesOf(rows []timedRow) []dispatch.Dispatch {
	items := make([]dispatch.Dispatch, len(rows))
	for i := range rows {
		items[i] = rows[i].Row.at(fromMicros(rows[i].Now))
	}
	return items
}

func (s *Store) dispatchListing(q dispatch.Query) listing {
	l := listing{kind: dispatchList}
	index := "PRIMARY"
	switch {
	case q.Driver != "":
		l.kind, l.order, index = driverDispatchList, "accepted_at", "ix_dispatches_jobs"
	case q.Region != "" && q.Status != "":
		index = "ix_dispatches_region_status"
	case q.Region != "":
		index = "ix_dispatches_region"
	case q.Status != "":
		index = "ix_dispatches_status"
	}
	for _, where := range statusSQL(q.Status) {
		l.parts = append(l.parts, part{index: index, where: where})
	}
	if q.Status == dispatch.Expired && q.Driver == "" {
		// Few rows are past their window and still PENDING. By status, the query would step over all that are still open.
		l.parts[1].index = "ix_dispatches_expiry"
	}
	if q.Driver != "" {
		l.and("accepted_by = ?", q.Driver)
	}
	if q.Region != "" {
		l.and("region = ?", q.Region)
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

// NewestClaim returns the driver's newest claim on the dispatch, nil if there is none.
func (s *Store) NewestClaim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (*dispatch.PastClaim, error) {
	return pastClaim(s.serve.WithContext(ctx).Where("dispatch_id = ? AND driver_id = ?", id, driver))
}

// ClaimIn returns the driver's claim on the dispatch in the round, nil if there is none.
func (s *Store) ClaimIn(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, round int) (*dispatch.PastClaim, error) {
	return pastClaim(s.serve.WithContext(ctx).Where("dispatch_id = ? AND driver_id = ? AND round = ?", id, driver, round))
}

func pastClaim(of *gorm.DB) (*dispatch.PastClaim, error) {
	var rows []claimRow
	err := of.Order("round DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, unavailable(err)
	}
	past := rows[0].past()
	return &past, nil
}

func (row *claimRow) past() dispatch.PastClaim {
	return dispatch.PastClaim{
		Claim: dispatch.Claim{
			ID: row.ID, Driver: row.DriverID, Round: row.Round, AcceptedAt: fromMicros(row.AcceptedAt),
		},
		Outcome: row.Outcome, EndedAt: fromOptionalMicros(row.EndedAt),
	}
}

// Holders returns status, round and driver of each of the dispatches, in one statement. It omits unknown dispatches.
func (s *Store) Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	var rows []struct {
		ID         dispatch.ID
		Status     dispatch.Status
		Round      int
		AcceptedBy *dispatch.DriverID
	}
	err := s.serve.WithContext(ctx).Raw("SELECT id, status, round, accepted_by FROM dispatches WHERE id IN ?", ids).Scan(&rows).Error
	if err != nil {
		return nil, unavailable(err)
	}
	found := make(map[dispatch.ID]dispatch.CurrentHolder, len(rows))
	for _, row := range rows {
		h := dispatch.CurrentHolder{Status: row.Status, Round: row.Round}
		if row.AcceptedBy != nil {
			h.Driver = *row.AcceptedBy
		}
		found[row.ID] = h
	}
	return found, nil
}

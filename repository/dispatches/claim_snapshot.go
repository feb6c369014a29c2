package dispatches

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/primary"
)

// claimSnapshot is a dispatch and a driver as one statement read them, or as this process last knew them.
type claimSnapshot struct {
	dispatch  dispatch.Dispatch
	candidate dispatch.Candidate
	// driverUpdatedAt is when the driver was changed last, in microseconds.
	driverUpdatedAt int64
	now             time.Time
	// read says that one statement has just read all of it. claims, the number of the driver's newest claim, is set only then.
	read   bool
	claims int
}

// claimSnapshotSQL is the query of a snapshot. It names the indexes: a server that compares them reads four times as many pages.
const claimSnapshotSQL = `
SELECT d.id, d.external_id, d.region, d.vehicle_class, d.min_working_height_m, d.site_address, d.site_lat, d.site_lng,
  d.work_starts_at, d.work_ends_at, d.fee_amount, d.fee_currency, d.note, d.opens_at, d.expires_at, d.status, d.round, d.version,
  d.claim_id, d.accepted_by, d.accepted_at, d.created_at, d.updated_at,
  v.id, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until, v.version, v.updated_at,
  (SELECT COALESCE(MAX(driver_seq), 0) FROM claims {force uq_claims_driver_seq} WHERE driver_id = v.id),
  EXISTS (SELECT 1 FROM dispatches o {force ix_dispatches_driver} WHERE o.accepted_by = v.id AND o.status IN ('ACCEPTED', 'IN_PROGRESS')
    AND o.work_ends_at > d.work_starts_at AND o.work_starts_at < d.work_ends_at AND o.id <> d.id),
  EXISTS (SELECT 1 FROM claims c {force uq_claims_round} WHERE c.dispatch_id = d.id AND c.driver_id = v.id AND c.outcome <> 'WON'),
  {now}, {read_only}
FROM dispatches d JOIN drivers v ON v.id = ?
WHERE d.id = ?`

// readClaimSnapshot reads what a claim depends on. It does so without gorm, which costs as much as the statement.
func (s *Dispatches) readClaimSnapshot(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (claimSnapshot, error) {
	sent := time.Now()
	rows, err := s.db.Decide.QueryContext(primary.Unchecked(ctx), claimSnapshotSQL, string(driver), string(id))
	if err != nil {
		return claimSnapshot{}, database.Unavailable(err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return claimSnapshot{}, database.Unavailable(err)
		}
		return claimSnapshot{}, s.missingError(s.db.Decide.With(primary.Unchecked(ctx)), id, driver)
	}
	var d Row
	var v drivers.Row
	var snapshot claimSnapshot
	var now int64
	var readOnly bool
	err = rows.Scan(&d.ID, &d.ExternalID, &d.Region, &d.VehicleClass, &d.MinWorkingHeightM, &d.SiteAddress, &d.SiteLat, &d.SiteLng,
		&d.WorkStartsAt, &d.WorkEndsAt, &d.FeeAmount, &d.FeeCurrency, &d.Note, &d.OpensAt, &d.ExpiresAt, &d.Status, &d.Round, &d.Version,
		&d.ClaimID, &d.AcceptedBy, &d.AcceptedAt, &d.CreatedAt, &d.UpdatedAt,
		&v.ID, &v.Regions, &v.VehicleClass, &v.WorkingHeightM, &v.OnDuty, &v.SuspendedUntil, &v.Version, &snapshot.driverUpdatedAt,
		&snapshot.claims, &snapshot.candidate.Busy, &snapshot.candidate.HadIt, &now, &readOnly)
	if err != nil {
		return claimSnapshot{}, database.Unavailable(err)
	}
	if readOnly {
		return claimSnapshot{}, database.Unavailable(database.ErrStale)
	}
	if snapshot.candidate.Driver, err = v.Driver(); err != nil {
		return claimSnapshot{}, database.Unavailable(err)
	}
	snapshot.read, snapshot.now = true, database.Time(now)
	snapshot.dispatch = d.At(snapshot.now)
	s.lastKnown.learnTime(snapshot.now, sent)
	s.lastKnown.learnDispatch(&snapshot.dispatch)
	s.lastKnown.learnDriver(&snapshot.candidate.Driver, snapshot.driverUpdatedAt)
	return snapshot, nil
}

// missingError returns why a snapshot is empty: ErrDriverNotFound, ErrNotFound, database.ErrStale, or database.ErrConflict if both rows
// exist by now.
func (s *Dispatches) missingError(db database.Tx, id dispatch.ID, driver dispatch.DriverID) error {
	var there struct {
		Driver, Dispatch, ReadOnly bool
	}
	err := db.Raw("SELECT EXISTS (SELECT 1 FROM drivers WHERE id = ?) driver, EXISTS (SELECT 1 FROM dispatches WHERE id = ?) dispatch, "+
		"{read_only} read_only", driver, id).Scan(&there).Error
	switch {
	case err != nil:
		return database.Unavailable(err)
	case there.ReadOnly:
		return database.Unavailable(database.ErrStale)
	case !there.Driver:
		return dispatch.ErrDriverNotFound
	case !there.Dispatch:
		return dispatch.ErrNotFound
	}
	return database.ErrConflict
}

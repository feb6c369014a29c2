package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// Claim calls rule with the dispatch and the driver as they are now, and commits the claim that rule makes together
// with its events and their outbox rows. The write applies only if, by the database's clock as the write began, the
// dispatch is still PENDING in the same round and within its window, the driver is unchanged, and the driver has made no
// other claim meanwhile; otherwise Claim calls rule again.
//
// If rule returns no events, nothing is written. Rule's errors are returned unchanged. ErrUnavailable means that nothing
// was written; ErrUnknown, that the COMMIT's reply is missing and the database did not answer whether it succeeded.
func (s *Store) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.claim(ctx, id, driver, "opens_at <= "+s.dialect.now(), rule)
}

// Assign is Claim for a dispatch that need not be open yet.
func (s *Store) Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	return s.claim(ctx, id, driver, "1 = 1", rule)
}

// claim is Claim with a further SQL condition on the dispatch's row.
func (s *Store) claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, condition string,
	rule func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	for range maxTries {
		snapshot, err := s.readClaimSnapshot(ctx, id, driver)
		switch {
		case errors.Is(err, errStaleRead):
			s.dialect.invalidateClaimConns()
			continue // with a new connection, to the server that takes writes now
		case errors.Is(err, errConflict):
			continue
		case err != nil:
			return dispatch.Dispatch{}, err
		}
		switch applied, err := alreadyApplied(s.general.WithContext(ctx), keyProof); {
		case err != nil:
			return dispatch.Dispatch{}, err
		case applied:
			return s.Dispatch(ctx, id) // the snapshot may be older than the change
		}
		d := snapshot.dispatch
		events, err := rule(&d, snapshot.candidate, snapshot.now)
		if err != nil || len(events) == 0 {
			return d, err
		}
		err = s.commitClaim(ctx, snapshot, condition, d, events)
		if errors.Is(err, dispatch.ErrUnknown) {
			err = s.resolve(ctx, id, d.Claim.ID, err)
		}
		switch {
		case err == nil:
			s.announce(d, events)
			return d, nil
		case errors.Is(err, dispatch.ErrUnknown):
			return d, err
		case errors.Is(err, errConflict) || s.dialect.retryable(err):
		default:
			return dispatch.Dispatch{}, unavailable(err)
		}
	}
	return dispatch.Dispatch{}, fmt.Errorf("%w: the dispatch, the driver or the database server keeps changing", dispatch.ErrUnavailable)
}

// claimSnapshot is a dispatch and a driver as one statement read them.
type claimSnapshot struct {
	dispatch  dispatch.Dispatch
	candidate dispatch.Candidate
	claims    int // the number of the driver's last claim
	now       time.Time
}

type claimSnapshotRow struct {
	Dispatch dispatchRow `gorm:"embedded"`
	Driver   driverRow   `gorm:"embedded;embeddedPrefix:v_"`
	Claims   int
	Busy     bool
	GaveBack bool
	Now      int64
	ReadOnly bool
}

const claimSnapshotSQL = `
SELECT d.*,
  v.id v_id, v.regions v_regions, v.vehicle_class v_vehicle_class, v.working_height_m v_working_height_m,
  v.on_duty v_on_duty, v.suspended_until v_suspended_until, v.version v_version,
  (SELECT COALESCE(MAX(driver_seq), 0) FROM claims WHERE driver_id = v.id) claims,
  EXISTS (SELECT 1 FROM dispatches o WHERE o.accepted_by = v.id AND o.status IN ('ACCEPTED', 'IN_PROGRESS')
    AND o.work_ends_at > d.work_starts_at AND o.work_starts_at < d.work_ends_at AND o.id <> d.id) busy,
  EXISTS (SELECT 1 FROM claims c WHERE c.dispatch_id = d.id AND c.driver_id = v.id AND c.outcome <> 'WON') gave_back,
  %s now, %s read_only
FROM dispatches d JOIN drivers v ON v.id = ?
WHERE d.id = ?`

// errStaleRead means that the server takes no writes any more: its answer may be old.
var errStaleRead = fmt.Errorf("%w: the answer may be old", errReadOnly)

func (s *Store) readClaimSnapshot(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (claimSnapshot, error) {
	var rows []claimSnapshotRow
	db := s.claims.WithContext(ctx)
	if err := db.Raw(fmt.Sprintf(claimSnapshotSQL, s.dialect.now(), s.dialect.readOnly), driver, id).Scan(&rows).Error; err != nil {
		return claimSnapshot{}, unavailable(err)
	}
	if len(rows) == 0 {
		return claimSnapshot{}, s.missingError(db, id, driver)
	}
	row := &rows[0]
	if row.ReadOnly {
		return claimSnapshot{}, unavailable(errStaleRead)
	}
	v, err := row.Driver.driver()
	if err != nil {
		return claimSnapshot{}, unavailable(err)
	}
	now := fromMicros(row.Now)
	return claimSnapshot{
		dispatch:  row.Dispatch.at(now),
		candidate: dispatch.Candidate{Driver: v, Busy: row.Busy, Withdrew: row.GaveBack},
		claims:    row.Claims, now: now,
	}, nil
}

// missingError returns why a snapshot is empty: ErrDriverNotFound, ErrNotFound, errStaleRead, or errConflict if both rows
// exist by now.
func (s *Store) missingError(db *gorm.DB, id dispatch.ID, driver dispatch.DriverID) error {
	var there struct {
		Driver, Dispatch, ReadOnly bool
	}
	err := db.Raw("SELECT EXISTS (SELECT 1 FROM drivers WHERE id = ?) driver, EXISTS (SELECT 1 FROM dispatches WHERE id = ?) dispatch, "+
		s.dialect.readOnly+" read_only", driver, id).Scan(&there).Error
	switch {
	case err != nil:
		return unavailable(err)
	case there.ReadOnly:
		return unavailable(errStaleRead)
	case !there.Driver:
		return dispatch.ErrDriverNotFound
	case !there.Dispatch:
		return dispatch.ErrNotFound
	}
	return errConflict
}

func (s *Store) commitClaim(ctx context.Context, snapshot claimSnapshot, condition string, d dispatch.Dispatch, events []dispatch.Event) error {
	return transact(ctx, s.claims, func(tx *gorm.DB) error {
		won := tx.Exec(`UPDATE dispatches`+s.dialect.forceIndex("PRIMARY")+` SET status = ?, claim_id = ?, accepted_by = ?, accepted_at = ?, version = ?, updated_at = ?
			WHERE id = ? AND status = 'PENDING' AND round = ? AND version = ? AND `+condition+` AND expires_at > `+s.dialect.now()+`
			AND NOT `+s.dialect.readOnly+`
			AND EXISTS (SELECT 1 FROM drivers WHERE id = ? AND version = ?`+s.dialect.forShare+`)`,
			d.Status, d.Claim.ID, d.Claim.Driver, micros(d.Claim.AcceptedAt), d.Version, micros(d.UpdatedAt),
			d.ID, snapshot.dispatch.Round, snapshot.dispatch.Version, snapshot.candidate.ID, snapshot.candidate.Version)
		if won.Error != nil {
			return won.Error
		}
		if won.RowsAffected != 1 {
			return errConflict
		}
		err := tx.Create(&claimRow{
			ID: d.Claim.ID, DispatchID: d.ID, Round: d.Round, DriverID: d.Claim.Driver, DriverSeq: snapshot.claims + 1,
			Outcome: dispatch.OutcomeWon, AcceptedAt: micros(d.Claim.AcceptedAt),
		}).Error
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return errConflict // another claim of this driver committed first: its working hours count too
		}
		if err != nil {
			return err
		}
		if err := markApplied(tx); err != nil {
			return err
		}
		return s.writeOutbox(tx, events)
	})
}

// resolve finds out whether a claim whose COMMIT's reply was lost is committed, and returns nil if it is.
//
// A missing claim proves nothing while the COMMIT may still be running. Its transaction holds the dispatch's row until
// then, so resolve first waits for the row and then looks for the claim.
func (s *Store) resolve(ctx context.Context, id dispatch.ID, claim dispatch.ClaimID, lost error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.options.Patience) // one row lock and two round trips
	defer cancel()
	db := s.claims.WithContext(ctx)
	err := db.Exec("SELECT id FROM dispatches WHERE id = ?"+s.dialect.forUpdate, id).Error
	if err != nil {
		return errors.Join(lost, err)
	}
	var answer struct {
		Found, ReadOnly bool
	}
	err = db.Raw("SELECT EXISTS (SELECT 1 FROM claims WHERE id = ?) found, "+s.dialect.readOnly+" read_only", claim).Scan(&answer).Error
	if err != nil {
		return errors.Join(lost, err)
	}
	if answer.ReadOnly {
		s.dialect.invalidateClaimConns()
		return errors.Join(lost, errStaleRead) // the claim may be on the other server only
	}
	if !answer.Found {
		return fmt.Errorf("%w: not committed, after %v", dispatch.ErrUnavailable, lost) //nolint:errorlint // it is known now
	}
	return nil
}

package drivers

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/devices"
	"firsttap/repository/journal"
)

// EraseDriver erases what names the driver, and leaves the row under a pseudonym. It returns the row as it is then, and the revocation
// of the driver's tokens. Erased again, a driver changes no more. ErrDriverNotFound; ErrDriverHasJob and ErrUnavailable, when nothing was
// erased; ErrUnknown: repeat it.
//
// The transaction has the driver's row locked. A claim, a change of duty and a registration of a device lock it, too: each of them either
// comes first, and its effect is seen here, or finds the driver erased. So nothing that names the driver is written after it, and the
// audit never had it. Saved answers to requests about the driver end within a day.
func (s *Drivers) EraseDriver(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation, error) {
	var record dispatch.DriverRecord
	var revoked dispatch.Revocation
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		row, now, err := Lock(tx, id)
		if err != nil {
			return err
		}
		if row.ErasedAt == nil {
			if row, err = erase(tx, row, now); err != nil {
				return err
			}
		}
		revoked = row.revocation()
		record, err = row.Record()
		return database.Unavailable(err)
	})
	return record, revoked, err
}

// erase erases the driver's row, devices and tokens, takes the driver out of the index, audits that, and returns the new row.
func erase(tx database.Tx, was Row, now time.Time) (Row, error) {
	var busy int64
	err := tx.Raw("SELECT COUNT(*) FROM dispatches {force ix_dispatches_driver}"+
		" WHERE accepted_by = ? AND status IN ('ACCEPTED', 'IN_PROGRESS')", was.ID).Scan(&busy).Error
	if err != nil {
		return was, database.Unavailable(err)
	}
	if busy > 0 {
		return was, dispatch.ErrDriverHasJob
	}
	left := dispatch.Driver{ID: was.ID, Name: dispatch.Pseudonym(was.ID), Regions: []string{}, Version: was.Version + 1}
	is := was.with(left, now)
	is.revokeTokens(now)
	is.ErasedAt = &is.UpdatedAt
	if err := save(tx, was, is); err != nil {
		return is, err
	}
	devices, err := devices.Erase(tx, is.ID)
	if err != nil {
		return is, database.Unavailable(err)
	}
	return is, journal.Record(tx, dispatch.AuditDriverErase, string(is.ID), map[string]any{"devices": devices}, now)
}

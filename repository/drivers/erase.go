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
		revoked = dispatch.Revocation{Driver: id, Generation: row.TokenGeneration}
		if at := database.OptionalTime(row.TokensRevokedAt); at != nil {
			revoked.At = *at
		}
		if row.ErasedAt == nil {
			if revoked, err = s.eraseRow(tx, &row, now); err != nil {
				return err
			}
		}
		record, err = row.Record()
		return database.Unavailable(err)
	})
	return record, revoked, err
}

// eraseRow erases the driver's row, devices and tokens, takes the driver out of the index, and audits it.
func (s *Drivers) eraseRow(tx database.Tx, row *Row, now time.Time) (dispatch.Revocation, error) {
	var busy int64
	err := tx.Raw("SELECT COUNT(*) FROM dispatches {force ix_dispatches_driver}"+
		" WHERE accepted_by = ? AND status IN ('ACCEPTED', 'IN_PROGRESS')", row.ID).Scan(&busy).Error
	if err != nil {
		return dispatch.Revocation{}, database.Unavailable(err)
	}
	if busy > 0 {
		return dispatch.Revocation{}, dispatch.ErrDriverHasJob
	}
	at, revoked := database.Micros(now), row.nextRevocation(now)
	*row = Row{
		ID: row.ID, Name: dispatch.Pseudonym(row.ID), Regions: "[]", Version: row.Version + 1,
		CreatedAt: row.CreatedAt, UpdatedAt: at, ErasedAt: &at,
	}
	err = tx.Exec(`UPDATE drivers SET name = ?, phone = '', regions = '[]', vehicle_class = '', working_height_m = NULL, firebase_uid = NULL,
		locale = '', on_duty = ?, suspended_until = NULL, version = ?, updated_at = ?, erased_at = ?,
		token_generation = ?, tokens_revoked_at = ? WHERE id = ?`,
		row.Name, false, row.Version, at, at, revoked.Generation, database.Micros(revoked.At), row.ID).Error
	if err != nil {
		return revoked, database.Unavailable(err)
	}
	if err := indexRegions(tx, row); err != nil {
		return revoked, err
	}
	if err := indexWords(tx, row); err != nil {
		return revoked, err
	}
	devices, err := devices.Erase(tx, row.ID)
	if err != nil {
		return revoked, database.Unavailable(err)
	}
	return revoked, journal.Record(tx, dispatch.AuditDriverErase, string(row.ID), map[string]any{"devices": devices}, now)
}

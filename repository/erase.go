package repository

import (
	"context"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// EraseDriver erases what names the driver, and leaves the row under a pseudonym. It returns the row as it is then, and the revocation
// of the driver's tokens. Erased again, a driver changes no more. ErrDriverNotFound; ErrDriverHasJob and ErrUnavailable, when nothing was
// erased; ErrUnknown: repeat it.
//
// The transaction has the driver's row locked. A claim, a change of duty and a registration of a device lock it, too: each of them either
// comes first, and its effect is seen here, or finds the driver erased. So nothing that names the driver is written after it, and the
// audit never had it. Saved answers to requests about the driver end within a day.
func (s *Store) EraseDriver(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation, error) {
	var record dispatch.DriverRecord
	var revoked dispatch.Revocation
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		revoked = dispatch.Revocation{Driver: id, Generation: row.TokenGeneration}
		if at := fromOptionalMicros(row.TokensRevokedAt); at != nil {
			revoked.At = *at
		}
		if row.ErasedAt == nil {
			if revoked, err = s.eraseRow(tx, &row, now); err != nil {
				return err
			}
		}
		record, err = row.record()
		return unavailable(err)
	})
	return record, revoked, err
}

// eraseRow erases the driver's row, devices and tokens, takes the driver out of the index, and audits it.
func (s *Store) eraseRow(tx *gorm.DB, row *driverRow, now time.Time) (dispatch.Revocation, error) {
	var busy int64
	err := tx.Raw("SELECT COUNT(*) FROM dispatches {force ix_dispatches_driver}"+
		" WHERE accepted_by = ? AND status IN ('ACCEPTED', 'IN_PROGRESS')", row.ID).Scan(&busy).Error
	if err != nil {
		return dispatch.Revocation{}, unavailable(err)
	}
	if busy > 0 {
		return dispatch.Revocation{}, dispatch.ErrDriverHasJob
	}
	at, revoked := micros(now), row.nextRevocation(now)
	*row = driverRow{
		ID: row.ID, Name: dispatch.Pseudonym(row.ID), Regions: "[]", Version: row.Version + 1,
		CreatedAt: row.CreatedAt, UpdatedAt: at, ErasedAt: &at,
	}
	err = tx.Exec(`UPDATE drivers SET name = ?, phone = '', regions = '[]', vehicle_class = '', working_height_m = NULL, firebase_uid = NULL,
		locale = '', on_duty = ?, suspended_until = NULL, version = ?, updated_at = ?, erased_at = ?,
		token_generation = ?, tokens_revoked_at = ? WHERE id = ?`,
		row.Name, false, row.Version, at, at, revoked.Generation, micros(revoked.At), row.ID).Error
	if err != nil {
		return revoked, unavailable(err)
	}
	if err := s.indexRegions(tx, row); err != nil {
		return revoked, err
	}
	if err := s.indexWords(tx, row); err != nil {
		return revoked, err
	}
	devices, err := s.eraseDevices(tx, row.ID)
	if err != nil {
		return revoked, unavailable(err)
	}
	return revoked, audit(tx, dispatch.AuditDriverErase, string(row.ID), map[string]any{"devices": devices}, now)
}

// eraseDevices deletes the driver's devices, and their push tokens in the topics' members. It returns how many devices there were.
func (s *Store) eraseDevices(tx *gorm.DB, id dispatch.DriverID) (int, error) {
	var devices []dispatch.DeviceID
	if err := tx.Raw("SELECT id FROM devices WHERE driver_id = ?", id).Scan(&devices).Error; err != nil {
		return 0, err
	}
	if err := tx.Exec("DELETE FROM devices WHERE driver_id = ?", id).Error; err != nil {
		return 0, err
	}
	topics, err := topicNames(tx)
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(topics, devicesPerStatement) {
		former, err := s.notifiedDevices(tx, id, some)
		if err != nil {
			return 0, err
		}
		if err := forgetMembers(tx, some, slices.Concat(devices, former)); err != nil {
			return 0, err
		}
	}
	return len(devices), nil
}

// notifiedDevices returns the driver's devices that were notified about the topics' dispatches, those too that were removed since.
func (s *Store) notifiedDevices(tx *gorm.DB, id dispatch.DriverID, topics []string) (devices []dispatch.DeviceID, err error) {
	dispatches := make([]string, len(topics))
	for i, topic := range topics {
		dispatches[i] = strings.TrimPrefix(topic, outbox.TopicOf(""))
	}
	err = tx.Raw(`SELECT DISTINCT n.device_id FROM (SELECT dispatch_id, round FROM notifications {force ix_notifications_driver} WHERE dispatch_id IN ? GROUP BY dispatch_id, round) r
		JOIN notifications n {force ix_notifications_driver} ON n.dispatch_id = r.dispatch_id AND n.round = r.round AND n.driver_id = ? AND n.device_id <> ''`, dispatches, id).
		Scan(&devices).Error
	return devices, err
}

// RecordExport audits an export of what is kept about the driver, and returns the driver. ErrDriverNotFound. Nothing must be exported
// unless the error is nil.
func (s *Store) RecordExport(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		row, now, err := s.lockDriver(tx, id)
		if err != nil {
			return err
		}
		if record, err = row.record(); err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditDriverExport, string(id), nil, now)
	})
	return record, err
}

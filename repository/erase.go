package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/outbox"
)

// EraseDriver erases what names the driver, and leaves the row under a pseudonym. It returns the row as it is then, and the revocation
// of the driver's tokens. Erased again, a driver changes no more. ErrDriverNotFound; ErrDriverHasJob and ErrUnavailable, when nothing was erased;
// ErrUnknown: repeat it, because a part may be done. With a revocation, the first part is.
//
// The first transaction has the driver's row locked. A claim, a change of duty and a registration of a device lock it, too: each of
// them either comes first, and its effect is seen here, or finds the driver erased. So nothing that names the driver is written
// after it, and the rest is erased in parts.
func (s *Store) EraseDriver(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation, error) {
	var record dispatch.DriverRecord
	var revoked dispatch.Revocation
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
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
	if err != nil {
		return dispatch.DriverRecord{}, dispatch.Revocation{}, err
	}
	if err := s.eraseAudit(ctx, id); err != nil {
		return record, revoked, fmt.Errorf("%w: the driver is erased, but not yet the audit: %s", dispatch.ErrUnknown, err.Error())
	}
	return record, revoked, nil
}

// eraseRow erases the driver's row, devices and tokens, takes the driver out of the index, and audits it.
func (s *Store) eraseRow(tx *gorm.DB, row *driverRow, now time.Time) (dispatch.Revocation, error) {
	var busy int64
	err := tx.Raw("SELECT COUNT(*) FROM dispatches"+s.dialect.forceIndex("ix_dispatches_driver")+
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
	index := s.dialect.forceIndex("ix_notifications_driver")
	err = tx.Raw(`SELECT DISTINCT n.device_id FROM (SELECT dispatch_id, round FROM notifications`+index+` WHERE dispatch_id IN ? GROUP BY dispatch_id, round) r
		JOIN notifications n`+index+` ON n.dispatch_id = r.dispatch_id AND n.round = r.round AND n.driver_id = ? AND n.device_id <> ''`, dispatches, id).
		Scan(&devices).Error
	return devices, err
}

// auditPerErasure bounds the audit entries that one transaction erases.
const auditPerErasure = 200

// eraseAudit erases the values in the audit entries about the driver, and the saved answers to the requests that changed the driver.
func (s *Store) eraseAudit(ctx context.Context, id dispatch.DriverID) error {
	after := ""
	for {
		var rows []auditRow
		err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
			rows = nil
			now, err := s.clock(tx)
			if err != nil {
				return err
			}
			err = tx.Where("target = ? AND id > ?", id, after).Order("id").Limit(auditPerErasure).Find(&rows).Error
			if err != nil {
				return unavailable(err)
			}
			for i := range rows {
				if err := eraseEntry(tx, &rows[i]); err != nil {
					return unavailable(err)
				}
				if rows[i].ID < dispatch.MinAuditID(now.Add(-answersKept)) {
					continue
				}
				if err := forgetAnswers(tx, rows[i].ID, dispatch.AuditPrefix, 1); err != nil {
					return unavailable(err)
				}
			}
			if len(rows) < auditPerErasure { // of a bulk the entry is about all of its drivers
				return unavailable(forgetAnswers(tx, string(id), dispatch.DriverPrefix, maxBulk))
			}
			return nil
		})
		if err != nil || len(rows) < auditPerErasure {
			return err
		}
		after = rows[len(rows)-1].ID
	}
}

// answersKept is more than the time for which an answer is saved.
const answersKept = 48 * time.Hour

// maxBulk is the most drivers that one request adds.
const maxBulk = 1000

// forgetAnswers deletes the saved answer to the request that the identifier was derived from, as one of the first n with the prefix. An answer
// that is under way is not saved: its lease ends.
// The request is not repeated by that: sent again, it finds what it did before, and answers with the driver as erased.
func forgetAnswers(tx *gorm.DB, id, prefix string, n int) error {
	first, last, ok := idempotency.SeedsLike(id)
	if !ok {
		return nil
	}
	var seeds []idempotency.Seed
	if err := tx.Raw("SELECT seed FROM idempotency_keys WHERE seed >= ? AND seed <= ?", first, last).Scan(&seeds).Error; err != nil {
		return err
	}
	for _, seed := range seeds {
		if !seed.Made(id, prefix, n) {
			continue
		}
		if err := tx.Exec("UPDATE idempotency_keys SET answer = NULL, leased = '', lease_ends = 0 WHERE seed = ?", seed).Error; err != nil {
			return err
		}
	}
	return nil
}

// eraseEntry erases the entry's values that may name the driver.
func eraseEntry(tx *gorm.DB, row *auditRow) error {
	detail := map[string]any{}
	if err := json.Unmarshal([]byte(row.Detail), &detail); err != nil {
		return err
	}
	if !eraseValues(detail) {
		return nil
	}
	encoded, err := encodeDetail(detail)
	if err != nil {
		return err
	}
	return tx.Exec("UPDATE audit SET detail = ? WHERE id = ?", encoded, row.ID).Error
}

// erasedValue stands for a value that was erased.
const erasedValue = "[erased]"

// keptFields are the fields of audit entries that say what was done with a driver, and not who that is. A field that is not here is erased.
var keptFields = map[string]bool{
	"on_duty": true, "suspended_until": true, "until": true, "reason_code": true, "generation": true, "times": true, "at": true, "devices": true,
}

// eraseValues replaces the values of all other fields, also in the last and the further changes of a coalesced entry. It reports whether
// there were any.
func eraseValues(detail map[string]any) (changed bool) {
	for field, value := range detail {
		switch inner, nested := value.(map[string]any); {
		case nested && (field == "last" || field == "also"):
			changed = eraseValues(inner) || changed
		case !keptFields[field] && value != erasedValue:
			detail[field], changed = erasedValue, true
		}
	}
	return changed
}

// RecordExport audits an export of what is kept about the driver, and returns the driver. ErrDriverNotFound. Nothing must be exported
// unless the error is nil.
func (s *Store) RecordExport(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error) {
	var record dispatch.DriverRecord
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
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

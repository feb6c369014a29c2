package repository

import (
	"context"
	"errors"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// driverBatch is how many drivers one INSERT carries: SQLite takes 32,766 parameters, and a driver is 13.
const driverBatch = 500

// AddDrivers writes all drivers or none. A request that has made them already makes them once. ErrDuplicateDriver.
func (s *Store) AddDrivers(ctx context.Context, drivers []dispatch.Driver) error {
	return s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, bulkDetail(drivers, false))
}

// AddDriversWithTokens is AddDrivers where each driver is given a token. Unless it returns nil, nobody may get one.
func (s *Store) AddDriversWithTokens(ctx context.Context, drivers []dispatch.Driver) error {
	return s.addDrivers(ctx, drivers, dispatch.AuditDriversBulk, dispatch.AuditTargetDrivers, bulkDetail(drivers, true))
}

func bulkDetail(drivers []dispatch.Driver, tokens bool) map[string]any {
	detail := map[string]any{"drivers": len(drivers), "tokens": tokens}
	if len(drivers) > 0 {
		detail["first"], detail["last"] = drivers[0].ID, drivers[len(drivers)-1].ID
	}
	return detail
}

func (s *Store) addDrivers(ctx context.Context, drivers []dispatch.Driver,
	action dispatch.AuditAction, target string, detail map[string]any,
) error {
	return s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		if e, err := made(tx); err != nil || e != nil {
			return err
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		if err := audit(tx, action, target, detail, now); err != nil {
			return err
		}
		rows := make([]driverRow, len(drivers))
		for i, v := range drivers {
			if rows[i], err = toDriverRow(v, now); err != nil {
				return err
			}
		}
		err = tx.CreateInBatches(rows, driverBatch).Error
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return dispatch.ErrDuplicateDriver
		}
		return unavailable(err)
	})
}

// Driver returns a driver. ErrDriverNotFound.
func (s *Store) Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error) {
	var rows []driverRow
	if err := s.general.WithContext(ctx).Where("id = ?", id).Find(&rows).Error; err != nil {
		return dispatch.Driver{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Driver{}, dispatch.ErrDriverNotFound
	}
	return rows[0].driver()
}

// SetDuty puts a driver on or off duty, which is audited where it changes anything. ErrDriverNotFound, ErrUnavailable, ErrUnknown.
func (s *Store) SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (dispatch.Driver, error) {
	err := s.persist(ctx, s.writes, func(tx *gorm.DB) error {
		moved := tx.Model(&driverRow{}).Where("id = ? AND on_duty <> ?", id, onDuty).
			Updates(map[string]any{
				"on_duty": onDuty, "version": gorm.Expr("version + 1"), "updated_at": gorm.Expr(s.dialect.now()),
			})
		if moved.Error != nil || moved.RowsAffected == 0 {
			return unavailable(moved.Error)
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		detail := changes{}
		note(detail, "on_duty", !onDuty, onDuty)
		return auditOften(tx, dispatch.AuditDuty, string(id), detail, now)
	})
	if err != nil {
		return dispatch.Driver{}, err
	}
	return s.Driver(ctx, id)
}

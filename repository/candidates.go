package repository

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// indexedEligible returns the SQL that follows FROM, and its arguments, for the rows of driver_regions, named r, of the drivers whom the index
// calls eligible.
func (s *Store) indexedEligible(terms *dispatch.Terms, now time.Time) (string, []any) {
	where := []string{"r.region = ?", "r.vehicle_class = ?", "r.on_duty = 1", "(r.suspended_until IS NULL OR r.suspended_until <= ?)"}
	args := []any{terms.Region, terms.VehicleClass, micros(now)}
	if terms.MinWorkingHeightM != nil {
		where, args = append(where, "r.working_height_m >= ?"), append(args, *terms.MinWorkingHeightM)
	}
	return "driver_regions r" + s.dialect.forceIndex("PRIMARY") + " WHERE " + strings.Join(where, " AND "), args
}

// candidates returns the query for the driver_id of drivers who may be eligible: up to limit of those whom the index calls eligible, and up to
// limit of those on duty who are not indexed. Whoever reads the drivers' rows then decides.
func (s *Store) candidates(terms *dispatch.Terms, now time.Time, limit int) (string, []any) {
	eligible, args := s.indexedEligible(terms, now)
	unindexed, more := s.unindexedCandidates(terms)
	return "SELECT driver_id FROM (SELECT r.driver_id FROM " + eligible + " LIMIT ?) i UNION SELECT driver_id FROM (" + unindexed + " LIMIT ?) u",
		slices.Concat(args, []any{limit}, more, []any{limit})
}

// unindexedCandidates returns the query for the driver_id of the drivers v who may be eligible and are not indexed.
func (s *Store) unindexedCandidates(terms *dispatch.Terms) (string, []any) {
	return "SELECT v.id driver_id FROM " + s.unindexedDrivers() + " AND v.on_duty = 1 AND v.vehicle_class = ? AND v.erased_at IS NULL", []any{terms.VehicleClass}
}

// jsonString is the string as toDriverRow writes it in JSON.
func jsonString(s string) string {
	text, _ := json.Marshal(s) // a string has no error
	return string(text)
}

// candidateState is the SQL for whether driver %s has a device for pushes, and whether the driver's work overlaps with the terms.
const candidateState = `EXISTS (SELECT 1 FROM devices dv WHERE dv.driver_id = %[1]s AND dv.quarantined_at IS NULL) reachable,
  EXISTS (SELECT 1 FROM dispatches o WHERE o.accepted_by = %[1]s AND o.status IN ('ACCEPTED', 'IN_PROGRESS')
    AND o.work_ends_at > ? AND o.work_starts_at < ?) busy`

func (s *Store) previewAudience(ctx context.Context, terms dispatch.Terms) (dispatch.Preview, time.Time, error) {
	db := s.general.WithContext(ctx)
	now, err := s.clock(db)
	if err != nil {
		return dispatch.Preview{}, now, err
	}
	p, indexed, err := s.countCandidates(db, &terms, now)
	if err == nil && !indexed {
		p, err = s.countEachCandidate(db, terms, now)
	}
	return p, now, err
}

// countCandidates is Preview by the index. indexed is false, and the counts are wrong, if some drivers are not indexed.
func (s *Store) countCandidates(db *gorm.DB, terms *dispatch.Terms, now time.Time) (p dispatch.Preview, indexed bool, err error) {
	eligible, eligibleArgs := s.indexedEligible(terms, now)
	low := -1.0 // every driver is high enough
	if terms.MinWorkingHeightM != nil {
		low = *terms.MinWorkingHeightM
	}
	args := []any{terms.Region, micros(now), micros(terms.WorkStartsAt), micros(terms.WorkEndsAt)}
	args = append(append(args, eligibleArgs...), terms.VehicleClass, low)
	var row struct{ Drivers, OnDuty, OfClass, High, InRegion, Suspended, Fit, Busy, Reachable, Unindexed int }
	// One statement sees one state of the tables.
	err = db.Raw(`SELECT k.*, f.*,
  (SELECT COALESCE(SUM(drivers), 0) FROM driver_counts WHERE region = ?) in_region,
  (SELECT COUNT(*) FROM drivers v`+s.dialect.forceIndex("ix_drivers_suspended")+` WHERE v.on_duty IN (0, 1) AND v.suspended_until > ? AND v.erased_at IS NULL) suspended,
  (SELECT COUNT(*) FROM (SELECT v.id FROM `+s.unindexedDrivers()+` LIMIT 1) u) unindexed
FROM (SELECT COUNT(*) fit, COALESCE(SUM(busy), 0) busy, COALESCE(SUM(CASE WHEN reachable AND NOT busy THEN 1 END), 0) reachable
    FROM (SELECT r.driver_id, `+fmt.Sprintf(candidateState, "r.driver_id")+` FROM `+eligible+`) c) f,
  (SELECT COALESCE(SUM(drivers), 0) drivers, COALESCE(SUM(on_duty), 0) on_duty, COALESCE(SUM(CASE WHEN vehicle_class = ? THEN drivers END), 0) of_class,
    COALESCE(SUM(CASE WHEN working_height_m >= ? THEN drivers END), 0) high FROM driver_counts WHERE region = '') k`, args...).Scan(&row).Error
	if err != nil {
		return dispatch.Preview{}, false, unavailable(err)
	}
	return dispatch.Preview{
		Eligible: row.Fit - row.Busy, Reachable: row.Reachable, Busy: row.Busy, NotEligible: row.Drivers - row.Fit,
		Reasons: map[dispatch.IneligibleReason]int{
			dispatch.OffDuty: row.Drivers - row.OnDuty, dispatch.Suspended: row.Suspended, dispatch.WrongRegion: row.Drivers - row.InRegion,
			dispatch.WrongVehicleClass: row.Drivers - row.OfClass, dispatch.TooLow: row.Drivers - row.High,
		},
	}, row.Unindexed == 0, nil
}

// countEachCandidate is Preview without the index.
func (s *Store) countEachCandidate(db *gorm.DB, terms dispatch.Terms, now time.Time) (p dispatch.Preview, err error) {
	p = dispatch.NewPreview()
	rows, err := db.Raw(`SELECT v.id, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until, `+
		fmt.Sprintf(candidateState, "v.id")+` FROM drivers v WHERE v.erased_at IS NULL`, micros(terms.WorkStartsAt), micros(terms.WorkEndsAt)).Rows()
	if err != nil {
		return p, unavailable(err)
	}
	defer func() { err = unavailable(errors.Join(err, rows.Close())) }()
	for rows.Next() {
		var c dispatch.Candidate
		var regions string
		var suspended sql.NullInt64
		var reachable bool
		err := rows.Scan(&c.ID, &regions, &c.VehicleClass, &c.WorkingHeightM, &c.OnDuty, &suspended, &reachable, &c.Busy)
		if err != nil {
			return p, err
		}
		if suspended.Valid {
			c.SuspendedUntil = fromOptionalMicros(&suspended.Int64)
		}
		if err := json.Unmarshal([]byte(regions), &c.Regions); err != nil {
			return p, fmt.Errorf("regions of %s: %w", c.ID, err)
		}
		p.Count(c, reachable, terms, now)
	}
	return p, rows.Err()
}

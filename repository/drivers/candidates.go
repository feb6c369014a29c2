package drivers

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// Eligible returns the SQL that follows FROM, and its arguments, for the rows of driver_regions, named r, of the eligible drivers.
func Eligible(terms *dispatch.Terms, now time.Time) (string, []any) {
	where := []string{"r.region = ?", "r.vehicle_class = ?", "r.on_duty = 1", "(r.suspended_until IS NULL OR r.suspended_until <= ?)"}
	args := []any{terms.Region, terms.VehicleClass, database.Micros(now)}
	if terms.MinWorkingHeightM != nil {
		where, args = append(where, "r.working_height_m >= ?"), append(args, *terms.MinWorkingHeightM)
	}
	return "driver_regions r {force PRIMARY} WHERE " + strings.Join(where, " AND "), args
}

// jsonString is the string as a driver's row has it, in JSON.
func jsonString(s string) string {
	text, _ := json.Marshal(s) // strings have no error
	return string(text)
}

// Preview counts every driver who is not erased as a candidate for these terms, and returns the database's time. It reads the eligible and
// the suspended drivers, and counts that are kept.
func (s *Drivers) Preview(ctx context.Context, terms dispatch.Terms) (p dispatch.Preview, now time.Time, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		p, now, err = s.previewAudience(db, terms)
		return err
	})
	return p, now, err
}

func (s *Drivers) previewAudience(db database.Tx, terms dispatch.Terms) (dispatch.Preview, time.Time, error) {
	now, err := database.Clock(db)
	if err != nil {
		return dispatch.Preview{}, now, err
	}
	eligible, eligibleArgs := Eligible(&terms, now)
	low := -1.0 // every driver is high enough
	if terms.MinWorkingHeightM != nil {
		low = *terms.MinWorkingHeightM
	}
	args := []any{terms.Region, database.Micros(now), database.Micros(terms.WorkStartsAt), database.Micros(terms.WorkEndsAt)}
	args = append(append(args, eligibleArgs...), terms.VehicleClass, low)
	var row struct{ Drivers, OnDuty, OfClass, High, InRegion, Suspended, Fit, Busy, Reachable int }
	// One statement sees one state of the tables.
	err = db.Raw(`SELECT k.*, f.*,
  (SELECT COALESCE(SUM(drivers), 0) FROM driver_counts WHERE region = ?) in_region,
  (SELECT COUNT(*) FROM drivers {force ix_drivers_suspended} WHERE on_duty IN (0, 1) AND suspended_until > ?) suspended
FROM (SELECT COUNT(*) fit, COALESCE(SUM(busy), 0) busy, COALESCE(SUM(CASE WHEN reachable AND NOT busy THEN 1 END), 0) reachable
    FROM (SELECT r.driver_id, EXISTS (SELECT 1 FROM devices dv WHERE dv.driver_id = r.driver_id AND dv.quarantined_at IS NULL) reachable,
      EXISTS (SELECT 1 FROM dispatches o WHERE o.accepted_by = r.driver_id AND o.status IN ('ACCEPTED', 'IN_PROGRESS')
        AND o.work_ends_at > ? AND o.work_starts_at < ?) busy FROM `+eligible+`) c) f,
  (SELECT COALESCE(SUM(drivers), 0) drivers, COALESCE(SUM(on_duty), 0) on_duty,
    COALESCE(SUM(CASE WHEN vehicle_class = ? THEN drivers END), 0) of_class,
    COALESCE(SUM(CASE WHEN working_height_m >= ? THEN drivers END), 0) high
    FROM driver_counts WHERE region = '') k`, args...).Scan(&row).Error
	if err != nil {
		return dispatch.Preview{}, now, database.Unavailable(err)
	}
	return dispatch.Preview{
		Eligible: row.Fit - row.Busy, Reachable: row.Reachable, Busy: row.Busy, NotEligible: row.Drivers - row.Fit,
		Reasons: map[dispatch.IneligibleReason]int{
			dispatch.OffDuty: row.Drivers - row.OnDuty, dispatch.Suspended: row.Suspended, dispatch.WrongRegion: row.Drivers - row.InRegion,
			dispatch.WrongVehicleClass: row.Drivers - row.OfClass, dispatch.TooLow: row.Drivers - row.High,
		},
	}, now, nil
}

package repository

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
)

const candidatesSQL = `
SELECT v.id, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until,
  EXISTS (SELECT 1 FROM devices dv WHERE dv.driver_id = v.id AND dv.quarantined_at IS NULL),
  EXISTS (SELECT 1 FROM dispatches o WHERE o.accepted_by = v.id AND o.status IN ('ACCEPTED', 'IN_PROGRESS')
    AND o.work_ends_at > ? AND o.work_starts_at < ?)
FROM drivers v`

// EachCandidate calls look for every driver as a candidate for these terms, with whether the driver has a device for pushes,
// and the database's time, which it returns. It calls look on the caller's goroutine; look must not use the Store.
func (s *Store) EachCandidate(ctx context.Context, terms dispatch.Terms,
	look func(c dispatch.Candidate, reachable bool, now time.Time),
) (now time.Time, err error) {
	db := s.general.WithContext(ctx)
	if now, err = s.clock(db); err != nil {
		return now, err
	}
	rows, err := db.Raw(candidatesSQL, micros(terms.WorkStartsAt), micros(terms.WorkEndsAt)).Rows()
	if err != nil {
		return now, unavailable(err)
	}
	defer func() { err = unavailable(errors.Join(err, rows.Close())) }()
	for rows.Next() {
		var c dispatch.Candidate
		var regions string
		var suspended sql.NullInt64
		var reachable bool
		err := rows.Scan(&c.ID, &regions, &c.VehicleClass, &c.WorkingHeightM, &c.OnDuty, &suspended, &reachable, &c.Busy)
		if err != nil {
			return now, err
		}
		if suspended.Valid {
			c.SuspendedUntil = fromOptionalMicros(&suspended.Int64)
		}
		if err := json.Unmarshal([]byte(regions), &c.Regions); err != nil {
			return now, fmt.Errorf("regions of %s: %w", c.ID, err)
		}
		look(c, reachable, now)
	}
	return now, rows.Err()
}

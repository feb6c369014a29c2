package repository

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
)

func TestEachCandidate(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 4)
		db.device(t, drivers[0].ID, nil)
		db.device(t, drivers[0].ID, nil)
		db.device(t, drivers[1].ID, func(v *dispatch.Device) { v.QuarantinedAt = new(time.Now()) })
		work := db.mustAccept(t, db.add(t, nil).ID, drivers[2].ID)
		long := db.addDriver(t, func(v *dispatch.Driver) {
			v.Regions, v.WorkingHeightM, v.OnDuty = []string{"a&b"}, new(12.5), false
			v.SuspendedUntil = new(time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC())
		})
		type seen struct{ reachable, busy bool }
		look := func(terms dispatch.Terms) map[dispatch.DriverID]seen {
			got := map[dispatch.DriverID]seen{}
			now, err := db.EachCandidate(t.Context(), terms, func(c dispatch.Candidate, reachable bool, at time.Time) {
				got[c.ID] = seen{reachable, c.Busy}
				if c.ID == long.ID && (!slices.Equal(c.Regions, long.Regions) || *c.WorkingHeightM != 12.5 || c.OnDuty ||
					!c.SuspendedUntil.Equal(*long.SuspendedUntil) || c.VehicleClass != long.VehicleClass) {
					t.Errorf("%+v, want %+v", c, long)
				}
				if at.IsZero() {
					t.Error("no time")
				}
			})
			if err != nil || !near(now, time.Now()) {
				t.Errorf("%v, %v", now, err)
			}
			return got
		}
		want := map[dispatch.DriverID]seen{
			drivers[0].ID: {true, false}, drivers[1].ID: {}, drivers[2].ID: {false, true}, drivers[3].ID: {}, long.ID: {},
		}
		if got := look(work.Terms); !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		after := work.Terms
		after.WorkStartsAt, after.WorkEndsAt = work.WorkEndsAt, work.WorkEndsAt.Add(time.Hour)
		want[drivers[2].ID] = seen{}
		if got := look(after); !reflect.DeepEqual(got, want) {
			t.Errorf("back to back: %v, want %v", got, want)
		}
	})
}

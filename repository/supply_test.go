package repository

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
)

// running begins a run of a job that is known then.
func (db *database) running(t testing.TB, job, owner string) cronjob.Run {
	t.Helper()
	db.known(t, job)
	run, err := db.BeginRun(t.Context(), job, owner, time.Minute, func(_ cronjob.JobState, now time.Time) time.Time { return now })
	must(t, err)
	return run
}

// supplied returns the stored counts: "region on duty/open", in the order of the regions.
func (db *database) supplied(t testing.TB, slot time.Time) string {
	t.Helper()
	var rows []struct {
		Region       string
		OnDuty, Open int
	}
	must(t, db.general.Raw("SELECT region, on_duty, open FROM supply WHERE at = ? ORDER BY region", micros(slot)).Scan(&rows).Error)
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = fmt.Sprintf("%s %d/%d", r.Region, r.OnDuty, r.Open)
	}
	return strings.Join(all, ", ")
}

func TestRecordSupply(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		var drivers []dispatch.Driver
		for i, edit := range []func(*dispatch.Driver){
			func(*dispatch.Driver) {}, // seoul and busan
			func(v *dispatch.Driver) { v.Regions = []string{"busan", "seoul"} },
			func(v *dispatch.Driver) { v.Regions = []string{"제주", "seoul", "seoul"} },
			func(v *dispatch.Driver) { v.SuspendedUntil = &past },
			func(v *dispatch.Driver) { v.SuspendedUntil = &future },
			func(v *dispatch.Driver) { v.OnDuty = false },
		} {
			v := someDriver(i)
			edit(&v)
			drivers = append(drivers, v)
		}
		must(t, db.AddDrivers(t.Context(), drivers))
		for _, edit := range []func(*dispatch.Dispatch){
			nil, nil,
			func(d *dispatch.Dispatch) { d.Region = "daegu" },
			func(d *dispatch.Dispatch) { d.OpensAt = future },
			func(d *dispatch.Dispatch) { d.ExpiresAt = past },
		} {
			db.add(t, edit)
		}
		db.mustAccept(t, db.add(t, nil).ID, drivers[0].ID)

		run := db.running(t, "supply", "host:1/a")
		n, err := db.RecordSupply(t.Context(), run)
		must(t, err)
		want := " 4/3, busan 3/0, daegu 0/1, seoul 4/2, 제주 1/0"
		if got := db.supplied(t, run.Slot); got != want || n != 4 {
			t.Errorf("%d regions: %q, want %q", n, got, want)
		}
		if last, err := db.LastRun(t.Context(), "supply"); err != nil || last == nil || last.Status != cronjob.Succeeded || last.Result != "4 regions" {
			t.Errorf("the run: %+v, %v", last, err)
		}
		// A late or repeated count writes nothing.
		for _, late := range []cronjob.Run{run, {Job: "supply", Slot: run.Slot, Owner: "host:2/b"}} {
			if _, err := db.RecordSupply(t.Context(), late); !errors.Is(err, dispatch.ErrNotLeased) {
				t.Errorf("%s counts again: %v", late.Owner, err)
			}
		}
		if got := db.supplied(t, run.Slot); got != want {
			t.Errorf("then %q", got)
		}
	})
}

func TestRecordSupplyWithoutDispatches(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		run := db.running(t, "supply", "host:1/a")
		if n, err := db.RecordSupply(t.Context(), run); n != 0 || err != nil || db.supplied(t, run.Slot) != " 0/0" {
			t.Errorf("%d, %v, %q", n, err, db.supplied(t, run.Slot))
		}
		other := db.running(t, "supply", "host:1/b")
		must(t, db.InterruptRun(t.Context(), "supply", other.Owner))
		if _, err := db.RecordSupply(t.Context(), other); !errors.Is(err, dispatch.ErrNotLeased) || db.count(t, "supply") != 1 {
			t.Errorf("a run that was given up: %v", err)
		}
	})
}

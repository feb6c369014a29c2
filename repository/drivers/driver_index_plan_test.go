package drivers_test

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/drivers"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/search"
)

// populate adds n drivers in 50 regions, every other one on duty, and to one more region as many that are eligible for someTerms there,
// with two devices each. Ten of the others are suspended.
func populate(db *Bench, t *testing.T, n, eligible int) {
	t.Helper()
	drivers := make([]dispatch.Driver, n)
	for i := range drivers {
		v := SomeDriver(i)
		v.ID = dispatch.DriverID(fmt.Sprintf("drv_%026d", i))
		v.Regions, v.OnDuty = []string{fmt.Sprint("region ", i%50)}, i%2 == 0
		if i%10 == 0 {
			v.VehicleClass = "boom"
		}
		if i*10%n == 0 {
			v.SuspendedUntil = &dispatch.Forever
		}
		if i%(n/eligible) == 1 {
			v.Regions, v.OnDuty = append(v.Regions, "seoul"), true
		}
		drivers[i] = v
	}
	for part := range len(drivers) / 1000 {
		Must(t, db.AddDrivers(t.Context(), drivers[part*1000:(part+1)*1000], false))
	}
	for i, v := range drivers {
		if i%(n/eligible) == 1 {
			db.Device(t, v.ID, nil)
			db.Device(t, v.ID, nil)
		}
	}
	if !db.SQLite() {
		db.Exec(t, "ANALYZE TABLE drivers, driver_regions, driver_counts, driver_words, devices, dispatches")
	}
}

// Who is eligible is found by the index, and the others are counted without reading them, however many drivers there are.
func TestPlansOfTheIndexOfDrivers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const eligible, page = 20, 20
		n := testkit.Scale(10_000, 30_000)
		if db.SQLite() {
			n = 4000 // SQLite only says how it would read them
		}
		populate(db, t, n, eligible)
		for i := range 2 * page {
			mustErase(db, t, dispatch.DriverID(fmt.Sprintf("drv_%026d", i*50)))
		}
		db.Add(t, nil)
		terms := SomeTerms(time.Now())
		high := terms
		high.MinWorkingHeightM = new(12.5)
		listed := func(region, class string, onDuty *bool) func() error {
			return func() error {
				_, next, err := db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Region: region, VehicleClass: class, OnDuty: onDuty, Page: dispatch.Page{Limit: page}})
				if err == nil && next == "" && region != "seoul" {
					t.Error("there is one page only")
				}
				return err
			}
		}
		const counts = (50 + 1) * drivers.CountSlots
		text := func(text string, suspended *bool) func() error {
			return func() error {
				items, _, err := db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Text: text, Suspended: suspended, Page: dispatch.Page{Limit: page}})
				if found := len(items) > 0; found == (text == "nobody") {
					t.Errorf("%q finds %d drivers", text, len(items))
				}
				return err
			}
		}
		all := map[string]Reading{}
		for name, c := range map[string]struct {
			read func() error
			most int
		}{
			"a preview":           {func() error { _, _, err := db.Preview(t.Context(), terms); return err }, 20 * eligible},
			"a preview by height": {func() error { _, _, err := db.Preview(t.Context(), high); return err }, 20 * eligible},
			"the drivers on duty": {func() error { return ErrorOf(drivers.OnDuty(db.Serve.With(t.Context()))) }, 4 * counts},
			"an expansion": {func() error {
				o := db.As("ins_a")
				told := o.MustExpand(t, db, dispatch.EventCreated, 10)
				if len(told.Pushes)+told.Unleased != 2*eligible {
					t.Errorf("%d of %d devices are told", len(told.Pushes)+told.Unleased, 2*eligible)
				}
				return nil
			}, 30 * eligible},
			"the eligible of a region":    {listed("seoul", "scissor", new(true)), 15 * page},
			"a region's drivers":          {listed("region 1", "", nil), 15 * page},
			"a region's drivers off duty": {listed("region 1", "", new(false)), 15 * page},
			"a class":                     {listed("", "boom", nil), 15 * page},
			"drivers on duty":             {listed("", "", new(true)), 15 * page},
			"erased drivers": {func() error {
				_, next, err := db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Erased: true, Page: dispatch.Page{Limit: page}})
				if err == nil && next == "" {
					t.Error("there is one page of erased drivers only")
				}
				return err
			}, 3 * page},
			"a rare name":                  {text("123", nil), 1000},
			"a rare name and a common one": {text("driver 123", nil), 2*search.MaxReads + 1000},
			"a phone's end":                {text("00000077", nil), 50},
			"an identifier":                {text(fmt.Sprintf("drv_%026d", 77), nil), 50},
			"nobody":                       {text("nobody", nil), 20},
			"a name that most have":        {text("driver", nil), 8 * search.MaxReads}, // with MaxReads drivers it counts as rare
			"the suspended with a name":    {text("driver", new(true)), 8 * search.MaxReads},
			"the suspended":                {text("", new(true)), 100},
		} {
			all[name] = Reading{Do: c.read, Most: c.most}
		}
		db.MustReadFew(t, all)
	})
}

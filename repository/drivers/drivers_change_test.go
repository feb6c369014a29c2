package drivers_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"
)

func suspend(until time.Time) dispatch.DriverChange {
	return dispatch.DriverChange{
		Action: dispatch.AuditDriverSuspend,
		Apply:  func(v *dispatch.Driver, now time.Time) error { return v.Suspend(until, now) },
	}
}

func TestChangeDriver(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_7", Request: "req 1"})
		v := SomeDriver(1)
		v.FirebaseUID = "one"
		made, err := db.CreateDriver(ctx, v)
		if err != nil || !reflect.DeepEqual(made.Driver, v) || made.CreatedAt.IsZero() || !made.UpdatedAt.Equal(made.CreatedAt) {
			t.Fatalf("%+v, %v", made, err)
		}
		other := SomeDriver(2)
		other.FirebaseUID = "two"
		Must(t, ErrorOf(db.CreateDriver(ctx, other)))
		twin := SomeDriver(3)
		twin.FirebaseUID = "two"
		MustBeError(t, "the firebase_uid of another driver", ErrorOf(db.CreateDriver(ctx, twin)), dispatch.ErrDuplicateDriver)

		full := Edit(func(v *dispatch.Driver) {
			v.Name, v.Phone, v.Regions, v.VehicleClass, v.WorkingHeightM = "김", "+8211", []string{"jeju"}, "45m", new(45.5)
			v.FirebaseUID, v.Locale, v.OnDuty = "", "en", false
		})
		changed, err := db.ChangeDriver(ctx, v.ID, full)
		if err != nil || changed.Version != 2 || !changed.UpdatedAt.After(made.CreatedAt) || !changed.CreatedAt.Equal(made.CreatedAt) {
			t.Fatalf("%+v, %v", changed, err)
		}
		if read, err := db.DriverRecord(ctx, v.ID); err != nil || !reflect.DeepEqual(read, changed) || read.FirebaseUID != "" || read.Name != "김" {
			t.Errorf("read %+v, %v; want %+v", read, err, changed)
		}
		for what, c := range map[string]struct {
			change dispatch.DriverChange
			want   error
		}{
			"no change":                 {full, nil},
			"the uid of another driver": {Edit(func(v *dispatch.Driver) { v.FirebaseUID = "two" }), dispatch.ErrDuplicateDriver},
			"an older version":          {dispatch.DriverChange{Version: 1, Apply: full.Apply}, dispatch.ErrDriverVersionConflict},
			"a suspension of once":      {suspend(time.Now().Add(-time.Hour)), dispatch.ErrSuspensionInPast},
		} {
			got, err := db.ChangeDriver(ctx, v.ID, c.change)
			MustBeError(t, what, err, c.want)
			if read, _ := db.DriverRecord(ctx, v.ID); !reflect.DeepEqual(read, changed) || !reflect.DeepEqual(got, changed) {
				t.Errorf("%s: %+v", what, read)
			}
		}
		MustBeError(t, "an unknown driver", ErrorOf(db.ChangeDriver(ctx, dispatch.NewDriverID(time.Now()), full)), dispatch.ErrDriverNotFound)
		MustBeError(t, "a token of an unknown driver", ErrorOf(db.RecordTokenIssued(ctx, "drv_0")), dispatch.ErrDriverNotFound)

		one, two := string(v.ID), string(other.ID)
		entries := db.MustAudit(t, "driver.create "+one, "driver.create "+two, "driver.update "+one)
		last := entries[0]
		const detail = `{"firebase_uid":"changed","locale":{"from":"ko","to":"en"},"name":"changed",` +
			`"on_duty":{"from":true,"to":false},"phone":"changed","regions":{"from":["seoul","busan"],"to":["jeju"]},` +
			`"vehicle_class":{"from":"scissor","to":"45m"},"why":"asked","working_height_m":{"from":null,"to":45.5}}`
		if last.Actor != "key_7" || last.Request != "req 1" || last.Detail != detail || !last.At.Equal(changed.UpdatedAt) {
			t.Errorf("%+v", last)
		}
	})
}

// Each of many changes at once counts.
func TestChangeDriverTogether(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		MustAll(t, 8, func(i int) error {
			return ErrorOf(db.ChangeDriver(t.Context(), v.ID, Edit(func(v *dispatch.Driver) { v.Regions = append(v.Regions, fmt.Sprint("r", i)) })))
		})
		if got, err := db.Driver(t.Context(), v.ID); err != nil || len(got.Regions) != len(v.Regions)+8 || got.Version != 9 {
			t.Errorf("%+v, %v", got, err)
		}
		db.MustCount(t, 8, "audit WHERE action = 'driver.update'")
	})
}

// A claim that is under way while its driver is suspended is decided anew, and refused.
func TestASuspensionDuringAClaim(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		rule, asked := Meanwhile(Rule(1), func() {
			if _, err := db.ChangeDriver(t.Context(), v.ID, suspend(dispatch.Forever)); err != nil {
				t.Error(err)
			}
		})
		_, err := db.Claim(t.Context(), d.ID, v.ID, rule)
		var unfit *dispatch.NotEligibleError
		if !errors.As(err, &unfit) || !slices.Equal(unfit.Reasons, []dispatch.IneligibleReason{dispatch.Suspended}) || *asked != 2 {
			t.Errorf("asked %d times: %v", *asked, err)
		}
	})
}

func TestListDrivers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 6)
		slices.SortFunc(drivers, func(a, b dispatch.Driver) int { return strings.Compare(string(a.ID), string(b.ID)) })
		for i, change := range []func(*dispatch.Driver){
			func(v *dispatch.Driver) { v.Name = "홍길동 100%" },
			func(v *dispatch.Driver) { v.Regions = []string{"seoul's \"north\"", "제주"} },
			func(v *dispatch.Driver) { v.VehicleClass = "45m" },
			func(v *dispatch.Driver) { v.OnDuty, v.FirebaseUID = false, "uid_X" },
			func(v *dispatch.Driver) { v.SuspendedUntil, v.Phone = &dispatch.Forever, "+821055509104" },
			func(v *dispatch.Driver) {
				v.SuspendedUntil = new(time.Now().Add(-time.Hour).UTC().Truncate(time.Second))
			},
		} {
			Must(t, ErrorOf(db.ChangeDriver(t.Context(), drivers[i].ID, Edit(change))))
		}
		for what, c := range map[string]struct {
			q    dispatch.DriverQuery
			want []int
		}{
			"all":                  {dispatch.DriverQuery{}, []int{5, 4, 3, 2, 1, 0}},
			"a name":               {dispatch.DriverQuery{Text: "길동 100%"}, []int{0}},
			"a part of a name":     {dispatch.DriverQuery{Text: "driver"}, []int{5, 4, 3, 2, 1}},
			"no wildcard":          {dispatch.DriverQuery{Text: "d%r"}, nil},
			"a phone":              {dispatch.DriverQuery{Text: drivers[2].Phone}, []int{2}},
			"a uid":                {dispatch.DriverQuery{Text: "UID_x"}, []int{3}},
			"an id":                {dispatch.DriverQuery{Text: string(drivers[4].ID)}, []int{4}},
			"a region":             {dispatch.DriverQuery{Region: "seoul's \"north\""}, []int{1}},
			"a Korean region":      {dispatch.DriverQuery{Region: "제주"}, []int{1}},
			"a class":              {dispatch.DriverQuery{VehicleClass: "45m"}, []int{2}},
			"on duty":              {dispatch.DriverQuery{OnDuty: new(true)}, []int{5, 4, 2, 1, 0}},
			"off duty":             {dispatch.DriverQuery{OnDuty: new(false)}, []int{3}},
			"suspended":            {dispatch.DriverQuery{Suspended: new(true)}, []int{4}},
			"not suspended":        {dispatch.DriverQuery{Suspended: new(false)}, []int{5, 3, 2, 1, 0}},
			"all at once":          {dispatch.DriverQuery{Text: "driver", Region: "seoul", VehicleClass: "scissor", OnDuty: new(true), Suspended: new(false)}, []int{5}},
			"none":                 {dispatch.DriverQuery{Text: "driver", VehicleClass: "45m", OnDuty: new(false)}, nil},
			"no letter":            {dispatch.DriverQuery{Text: "_"}, nil},
			"within a name":        {dispatch.DriverQuery{Text: "river"}, nil},
			"a given name":         {dispatch.DriverQuery{Text: "길동"}, []int{0}},
			"the end of a phone":   {dispatch.DriverQuery{Text: "9104"}, []int{4}},
			"a phone at home":      {dispatch.DriverQuery{Text: "010 5550 9104"}, []int{4}},
			"a phone abroad":       {dispatch.DriverQuery{Text: "+82 10-5550-9104"}, []int{4}},
			"a phone's country":    {dispatch.DriverQuery{Text: "+821055"}, []int{4}},
			"beginning at home":    {dispatch.DriverQuery{Text: "0105550910"}, []int{4}},
			"suspended, there":     {dispatch.DriverQuery{Text: "driver", Region: "seoul", OnDuty: new(true), Suspended: new(true)}, []int{4}},
			"suspended, not there": {dispatch.DriverQuery{Text: "driver", Region: "jeju", Suspended: new(true)}, nil},
		} {
			for _, limit := range []int{2, 200} {
				var got []int
				for _, v := range All(t, limit, func(p dispatch.Page) ([]dispatch.DriverRecord, string, error) {
					c.q.Page = p
					return db.Drivers.Drivers(t.Context(), c.q)
				}) {
					got = append(got, slices.IndexFunc(drivers, func(o dispatch.Driver) bool { return o.ID == v.ID }))
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s by %d: %v, want %v", what, limit, got, c.want)
				}
			}
		}
	})
}

func TestDevicesOfADriver(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		var want []dispatch.DeviceID
		for i := range 3 {
			want = append([]dispatch.DeviceID{db.MustPut(t, SomeDevice(v[0].ID, fmt.Sprint(i), fmt.Sprint("token ", i))).ID}, want...)
		}
		db.MustPut(t, SomeDevice(v[1].ID, "x", "another's"))
		var got []dispatch.DeviceID
		for _, d := range All(t, 2, func(p dispatch.Page) ([]dispatch.Device, string, error) {
			return db.Devices.Devices(t.Context(), v[0].ID, p)
		}) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		MustBeError(t, "of an unknown driver", ErrorOfPage(db.Devices.Devices(t.Context(), dispatch.NewDriverID(time.Now()), dispatch.Page{Limit: 2})), dispatch.ErrDriverNotFound)
	})
}

// TestAuditByTargetAndActor selects, by pages.
func TestAuditByTargetAndActor(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2) // one entry of the system's
		for i := range 6 {
			ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: fmt.Sprint("key_", i%2)})
			Must(t, ErrorOf(db.RecordTokenIssued(ctx, v[i%3/2].ID)))
		}
		for what, c := range map[string]struct {
			q    dispatch.AuditQuery
			want int
		}{
			"all": {dispatch.AuditQuery{}, 7}, "a driver's": {dispatch.AuditQuery{Target: string(v[0].ID)}, 4},
			"a key's": {dispatch.AuditQuery{Actor: "key_1"}, 3}, "both": {dispatch.AuditQuery{Actor: "key_1", Target: string(v[0].ID)}, 2},
			"none": {dispatch.AuditQuery{Target: "없음"}, 0},
		} {
			entries := All(t, 2, func(p dispatch.Page) ([]dispatch.AuditEntry, string, error) {
				c.q.Page = p
				return db.Audit(t.Context(), c.q)
			})
			last := "b"
			for _, e := range entries {
				if e.ID >= last || c.q.Target != "" && e.Target != c.q.Target || c.q.Actor != "" && e.Actor != c.q.Actor {
					t.Errorf("%s: %+v after %s", what, e, last)
				}
				last = e.ID
			}
			if len(entries) != c.want {
				t.Errorf("%s: %d, want %d", what, len(entries), c.want)
			}
		}
	})
}

// The answer to a change that is committed needs no other connection: a failed read would say that nothing was changed.
func TestAnswersAreReadBeforeTheCommit(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		s := OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience})
		general, err := s.Serve.SQL()
		Must(t, err)
		Must(t, general.Close())
		off, _, err := s.Drivers.SetDuty(t.Context(), v.ID, false)
		Must(t, err)
		made, err := s.Drivers.CreateDriver(t.Context(), dispatch.Driver{ID: dispatch.NewDriverID(time.Now()), Name: "Kim", Regions: []string{"seoul"}, VehicleClass: "45m", Version: 1})
		Must(t, err)
		stored, err := db.Driver(t.Context(), v.ID)
		Must(t, err)
		testkit.Equal(t, "the driver who is off duty", stored, off)
		record, err := db.DriverRecord(t.Context(), made.ID)
		Must(t, err)
		testkit.Equal(t, "the new driver", record, made)
	})
}

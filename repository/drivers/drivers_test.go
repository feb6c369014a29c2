package drivers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	. "firsttap/repository/repositorytest"
)

func TestAddDriversAllOrNone(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := make([]dispatch.Driver, 1000)
		for i := range drivers {
			drivers[i] = SomeDriver(i)
		}
		drivers[0].FirebaseUID, drivers[999].FirebaseUID = "same", "same"
		MustBeError(t, "one uid twice", db.AddDrivers(t.Context(), drivers, false), dispatch.ErrDuplicateDriver)
		db.MustCount(t, 0, "drivers")
		drivers[999].FirebaseUID = "other"
		Must(t, db.AddDrivers(t.Context(), drivers, false))
		db.MustCount(t, len(drivers), "drivers")
		again := SomeDriver(0)
		again.FirebaseUID = "other"
		MustBeError(t, "a uid that another driver has", db.AddDrivers(t.Context(), []dispatch.Driver{again}, false), dispatch.ErrDuplicateDriver)
		Must(t, db.AddDrivers(t.Context(), nil, false))
	})
}

func TestDriverRoundTrip(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		full := dispatch.Driver{
			ID: dispatch.NewDriverID(time.Now()), Name: "김철수 \\'\" 🏗", Phone: "+821012345678",
			Regions: []string{"seoul", "경기 \"남부\"", "a,b"}, VehicleClass: "굴절", WorkingHeightM: new(21.7), FirebaseUID: "uid",
			Locale: "ko-KR", OnDuty: true, SuspendedUntil: new(time.Date(2030, 1, 2, 3, 4, 5, 678_901_000, time.UTC)), Version: 7,
		}
		bare := dispatch.Driver{ID: dispatch.NewDriverID(time.Now()), Version: 1}
		zero := bare
		zero.ID, zero.WorkingHeightM = dispatch.NewDriverID(time.Now()), new(0.0)
		Must(t, db.AddDrivers(t.Context(), []dispatch.Driver{full, bare, zero}, false))
		for _, v := range []dispatch.Driver{full, bare, zero} {
			if got, err := db.Driver(t.Context(), v.ID); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("got\n%+v, %v; want\n%+v", got, err, v)
			}
		}
	})
}

func TestSetDuty(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		v := drivers[0]
		for _, step := range []struct {
			onDuty, changes bool
			version         int
		}{{true, false, 1}, {false, true, 2}, {false, false, 2}, {true, true, 3}} {
			v.OnDuty, v.Version = step.onDuty, step.version
			if got, changed, err := db.SetDuty(t.Context(), v.ID, step.onDuty); err != nil || changed != step.changes || !reflect.DeepEqual(got, v) {
				t.Errorf("on duty %v: got %+v, changed %v, %v; want %+v", step.onDuty, got, changed, err, v)
			}
		}
		MustAll(t, 10, func(int) error { return ErrorOfPage(db.SetDuty(t.Context(), v.ID, false)) })
		if got, err := db.Driver(t.Context(), v.ID); err != nil || got.OnDuty || got.Version != 4 {
			t.Errorf("got %+v, %v", got, err)
		}
		if got, err := db.Driver(t.Context(), drivers[1].ID); err != nil || !reflect.DeepEqual(got, drivers[1]) {
			t.Errorf("another driver is %+v, %v", got, err)
		}
		MustBeError(t, "an unknown driver", ErrorOfPage(db.SetDuty(t.Context(), dispatch.NewDriverID(time.Now()), true)), dispatch.ErrDriverNotFound)
	})
}

// A uid counts byte for byte: a database may ignore a space at the end, or case.
func TestDriverByFirebaseUID(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.AddDriver(t, func(v *dispatch.Driver) { v.FirebaseUID = "Kim" })
		if got, err := db.DriverByFirebaseUID(t.Context(), "Kim"); err != nil || got != v.ID {
			t.Errorf("%q, %v", got, err)
		}
		for _, uid := range []string{"", "kim", "Kim ", " Kim", "Kim\x00", "Ki", "Kím", "%"} {
			if got, err := db.DriverByFirebaseUID(t.Context(), uid); !errors.Is(err, dispatch.ErrDriverNotFound) || got != "" {
				t.Errorf("%q is %q, %v", uid, got, err)
			}
		}
	})
}

// revocations returns the revocations by driver.
func revocations(db *Bench, t *testing.T) map[dispatch.DriverID]dispatch.Revocation {
	t.Helper()
	all, err := db.Revocations(t.Context())
	Must(t, err)
	by := map[dispatch.DriverID]dispatch.Revocation{}
	for _, r := range all {
		by[r.Driver] = r
	}
	return by
}

// TestRevokeTokens counts the generations up, writes the trail, and leaves the driver as they are; what is changed about the
// driver leaves the generation as it is.
func TestRevokeTokens(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_7", Request: "req 1"})
		drivers := db.Fleet(t, 2)
		v := []dispatch.DriverID{drivers[0].ID, drivers[1].ID}
		generation := func(of dispatch.DriverID) int {
			t.Helper()
			n, err := db.RecordTokenIssued(ctx, of)
			Must(t, err)
			return n
		}
		if n := generation(v[0]); n != 0 {
			t.Errorf("the first token is of generation %d", n)
		}
		if len(revocations(db, t)) != 0 {
			t.Error("somebody's tokens are revoked")
		}
		before, err := db.DriverRecord(ctx, v[0])
		Must(t, err)
		for want := 1; want <= 2; want++ {
			r, err := db.RevokeTokens(ctx, v[0])
			if err != nil || r.Driver != v[0] || r.Generation != want || !Near(r.At, time.Now()) {
				t.Errorf("%+v, %v", r, err)
			}
			if got := revocations(db, t); len(got) != 1 || got[v[0]] != r {
				t.Errorf("%+v, want %+v", got, r)
			}
			if n := generation(v[0]); n != want {
				t.Errorf("a token of afterwards is of generation %d, want %d", n, want)
			}
		}
		if n := generation(v[1]); n != 0 {
			t.Errorf("the token of another driver has the generation %d", n)
		}
		if after, err := db.DriverRecord(ctx, v[0]); err != nil || after.Version != before.Version {
			t.Errorf("version %d, was %d, %v", after.Version, before.Version, err)
		}
		_, err = db.ChangeDriver(ctx, v[0], dispatch.DriverChange{
			Action: dispatch.AuditDriverSuspend,
			Apply:  func(v *dispatch.Driver, now time.Time) error { return v.Suspend(dispatch.Forever, now) },
		})
		if _, _, duty := db.SetDuty(ctx, v[0], false); err != nil || duty != nil {
			t.Fatal(err, duty)
		}
		if got := revocations(db, t)[v[0]]; got.Generation != 2 || got.At.IsZero() {
			t.Errorf("after a change of the driver: %+v", got)
		}
		MustBeError(t, "an unknown driver", ErrorOf(db.RevokeTokens(ctx, dispatch.NewDriverID(time.Now()))), dispatch.ErrDriverNotFound)

		entries, _, err := db.Audit(ctx, dispatch.AuditQuery{Target: string(v[0]), Page: dispatch.Page{Limit: 20}})
		Must(t, err)
		entries = slices.DeleteFunc(entries, func(e dispatch.AuditEntry) bool { return e.Action != dispatch.AuditTokensRevoke })
		var detail struct{ Generation int }
		if len(entries) != 2 || entries[0].Actor != "key_7" || entries[0].Request != "req 1" ||
			json.Unmarshal([]byte(entries[0].Detail), &detail) != nil || detail.Generation != 2 {
			t.Errorf("%+v", entries)
		}
	})
}

// TestClockStepsBack: a revocation counts all the same, and is not of an earlier time than the one before.
func TestClockStepsBack(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		db.Exec(t, "UPDATE drivers SET token_generation = 7, tokens_revoked_at = ? WHERE id = ?", ahead.UnixMicro(), v)
		if r, err := db.RevokeTokens(t.Context(), v); err != nil || r.Generation != 8 || !r.At.Equal(ahead) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestRevokedAtOnce: of many revocations at once each is a generation of its own.
func TestRevokedAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const n = 10
		v := db.Fleet(t, 1)[0].ID
		var got [n]int
		MustAll(t, n, func(i int) error {
			r, err := db.RevokeTokens(t.Context(), v)
			got[i] = r.Generation
			return err
		})
		if slices.Sort(got[:]); got != [n]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
			t.Errorf("the generations are %v", got)
		}
		if r := revocations(db, t)[v]; r.Generation != n {
			t.Errorf("%+v, want generation %d", r, n)
		}
	})
}

// TestUpdateAs waits for a suspension that is being written, and sees it.
func TestUpdateAs(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0].ID
		id := db.Add(t, nil).ID
		tx := db.Begun(t, fmt.Sprintf("UPDATE drivers SET suspended_until = %d WHERE id = '%s'", dispatch.Forever.UnixMicro(), v))
		suspended := false
		done := Begin(func() error {
			err := dispatch.ErrUnavailable
			for errors.Is(err, dispatch.ErrUnavailable) { // where it has waited for as long as it may
				_, err = db.UpdateByDriver(t.Context(), id, v, func(_ *dispatch.Dispatch, v dispatch.Driver, now time.Time) ([]dispatch.Event, error) {
					suspended = v.Suspended(now)
					return nil, nil
				})
			}
			return err
		})
		db.Waiting(t)
		Must(t, tx.Commit())
		if err := <-done; err != nil || !suspended {
			t.Errorf("the suspension was not seen, %v", err)
		}
		MustBeError(t, "an unknown driver", ErrorOf(db.UpdateByDriver(t.Context(), id, dispatch.NewDriverID(time.Now()), nil)), dispatch.ErrDriverNotFound)
	})
}

func TestPreview(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 4)
		db.Device(t, drivers[0].ID, nil)
		db.Device(t, drivers[0].ID, nil)
		db.Device(t, drivers[1].ID, func(v *dispatch.Device) { v.QuarantinedAt = new(time.Now()) })
		work := db.MustAccept(t, db.Add(t, nil).ID, drivers[2].ID)
		db.Device(t, drivers[2].ID, nil)
		db.AddDriver(t, func(v *dispatch.Driver) {
			v.Regions, v.WorkingHeightM, v.OnDuty, v.SuspendedUntil = []string{"a&b"}, new(12.5), false, new(time.Now().Add(time.Hour))
		})
		db.AddDriver(t, func(v *dispatch.Driver) { v.Regions, v.VehicleClass = []string{"a&b ", "A&b"}, "boom" })
		look := func(what string, terms dispatch.Terms, want dispatch.Preview) {
			t.Helper()
			if got, now, err := db.Preview(t.Context(), terms); err != nil || !Near(now, time.Now()) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v at %v, %v; want %+v", what, got, now, err, want)
			}
		}
		reasons := func(off, suspended, region, class, low int) map[dispatch.IneligibleReason]int {
			return map[dispatch.IneligibleReason]int{
				dispatch.OffDuty: off, dispatch.Suspended: suspended, dispatch.WrongRegion: region, dispatch.WrongVehicleClass: class, dispatch.TooLow: low,
			}
		}
		after, high := work.Terms, work.Terms
		after.WorkStartsAt, after.WorkEndsAt = work.WorkEndsAt, work.WorkEndsAt.Add(time.Hour)
		high.MinWorkingHeightM, high.Region = new(12.5), "a&b"
		some := reasons(1, 1, 2, 1, 0)
		look("at the same hours", work.Terms, dispatch.Preview{Eligible: 3, Reachable: 1, Busy: 1, NotEligible: 2, Reasons: some})
		look("back to back", after, dispatch.Preview{Eligible: 4, Reachable: 2, NotEligible: 2, Reasons: some})
		look("high", high, dispatch.Preview{NotEligible: 6, Reasons: reasons(1, 1, 5, 1, 5)})
	})
}

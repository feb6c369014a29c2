package repository

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestAddDriversAllOrNone(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := make([]dispatch.Driver, 1000)
		for i := range drivers {
			drivers[i] = someDriver(i)
		}
		drivers[0].FirebaseUID, drivers[999].FirebaseUID = "same", "same"
		mustBeError(t, "one uid twice", db.AddDrivers(t.Context(), drivers), dispatch.ErrDuplicateDriver)
		db.mustCount(t, 0, "drivers")
		drivers[999].FirebaseUID = "other"
		must(t, db.AddDrivers(t.Context(), drivers))
		db.mustCount(t, len(drivers), "drivers")
		again := someDriver(0)
		again.FirebaseUID = "other"
		mustBeError(t, "a uid that another driver has", db.AddDrivers(t.Context(), []dispatch.Driver{again}), dispatch.ErrDuplicateDriver)
		must(t, db.AddDrivers(t.Context(), nil))
	})
}

func TestDriverRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		full := dispatch.Driver{
			ID: dispatch.NewDriverID(time.Now()), Name: "김철수 \\'\" 🏗", Phone: "+821012345678",
			Regions: []string{"seoul", "경기 \"남부\"", "a,b"}, VehicleClass: "굴절", WorkingHeightM: new(21.7), FirebaseUID: "uid",
			Locale: "ko-KR", OnDuty: true, SuspendedUntil: new(time.Date(2030, 1, 2, 3, 4, 5, 678_901_000, time.UTC)), Version: 7,
		}
		bare := dispatch.Driver{ID: dispatch.NewDriverID(time.Now()), Version: 1}
		zero := bare
		zero.ID, zero.WorkingHeightM = dispatch.NewDriverID(time.Now()), new(0.0)
		must(t, db.AddDrivers(t.Context(), []dispatch.Driver{full, bare, zero}))
		for _, v := range []dispatch.Driver{full, bare, zero} {
			if got, err := db.Driver(t.Context(), v.ID); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("got\n%+v, %v; want\n%+v", got, err, v)
			}
		}
	})
}

func TestSetDuty(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		v := drivers[0]
		for _, step := range []struct {
			onDuty  bool
			version int
		}{{true, 1}, {false, 2}, {false, 2}, {true, 3}} {
			v.OnDuty, v.Version = step.onDuty, step.version
			if got, err := db.SetDuty(t.Context(), v.ID, step.onDuty); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("on duty %v: got %+v, %v; want %+v", step.onDuty, got, err, v)
			}
		}
		testkit.Together(10, func(int) {
			if _, err := db.SetDuty(t.Context(), v.ID, false); err != nil {
				t.Error(err)
			}
		})
		if got, err := db.Driver(t.Context(), v.ID); err != nil || got.OnDuty || got.Version != 4 {
			t.Errorf("got %+v, %v", got, err)
		}
		if got, err := db.Driver(t.Context(), drivers[1].ID); err != nil || !reflect.DeepEqual(got, drivers[1]) {
			t.Errorf("another driver is %+v, %v", got, err)
		}
		_, err := db.SetDuty(t.Context(), dispatch.NewDriverID(time.Now()), true)
		mustBeError(t, "an unknown driver", err, dispatch.ErrDriverNotFound)
	})
}

func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		hash := func(letter string) string { return strings.Repeat(letter, 64) }
		read := func(h string, want dispatch.Key, wantErr error) {
			t.Helper()
			if got, err := db.KeyByHash(t.Context(), h); got != want || !errors.Is(err, wantErr) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, want, wantErr)
			}
		}
		read(hash("a"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		key := dispatch.Key{ID: "key_1", Name: "첫째", Role: dispatch.Viewer, Hash: hash("a")}
		testkit.Together(8, func(int) { // several instances start at once
			if err := db.EnsureKey(t.Context(), key); err != nil {
				t.Error(err)
			}
		})
		read(hash("a"), key, nil)
		read(hash("b"), dispatch.Key{}, dispatch.ErrKeyNotFound)

		key.Hash = hash("b")
		must(t, db.EnsureKey(t.Context(), key))
		read(hash("a"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		read(hash("b"), key, nil)

		db.exec(t, "UPDATE api_keys SET revoked_at = 1")
		read(hash("b"), dispatch.Key{}, dispatch.ErrKeyNotFound)
		db.mustCount(t, 1, "api_keys")
	})
}

func TestPutKeyReplacesTheWholeKey(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		key := dispatch.Key{ID: "key_1", Name: "one", Role: dispatch.Admin, Hash: "a"}
		for range 2 {
			must(t, db.EnsureKey(t.Context(), key))
			if got, err := db.KeyByHash(t.Context(), key.Hash); err != nil || got != key {
				t.Errorf("got %+v, %v; want %+v", got, err, key)
			}
			key = dispatch.Key{ID: "key_1", Name: "two", Role: dispatch.Viewer, Hash: "b"}
		}
	})
}

// A uid counts byte for byte: a database may ignore a space at the end, or case.
func TestDriverByFirebaseUID(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.addDriver(t, func(v *dispatch.Driver) { v.FirebaseUID = "Kim" })
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

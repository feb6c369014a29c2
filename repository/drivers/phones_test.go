package drivers_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// TestOneDriverHasANumber: of creations and changes at once with one phone number one succeeds, and no number is left anywhere by those
// that did not.
func TestOneDriverHasANumber(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		const n = 6
		others := db.Fleet(t, 2)
		mine := func(phone string) dispatch.Driver {
			v := SomeDriver(0)
			v.Phone, v.OwnPhone = phone, true
			return v
		}
		errs := make([]error, n)
		testkit.Together(n, func(i int) {
			switch {
			case i < 2:
				_, errs[i] = db.ChangeDriver(t.Context(), others[i].ID, dispatch.DriverChange{Action: dispatch.AuditDriverUpdate, Apply: func(v *dispatch.Driver, _ time.Time) error {
					v.Phone, v.OwnPhone = "+821055556666", true
					return nil
				}})
			default:
				errs[i] = db.AddDrivers(t.Context(), []dispatch.Driver{mine("+82107777000" + string(rune('0'+i))), mine("+821055556666")}, false)
			}
		})
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, dispatch.ErrDuplicatePhone) {
				t.Errorf("%d: %v", i, err)
			}
		}
		holders, _, err := db.Drivers.Drivers(t.Context(), dispatch.DriverQuery{Text: "+821055556666", Page: dispatch.Page{Limit: 10}})
		if Must(t, err); won != 1 || len(holders) != 1 {
			t.Fatalf("%d won, and the number is that of %+v", won, holders)
		}
		db.MustCount(t, 0, "driver_words WHERE driver_id = ''")

		first := holders[0].ID
		twice := []dispatch.Driver{mine("+821000000009"), mine("+821055556666"), mine("+821044443333"), mine("+821044443333")}
		var taken *dispatch.PhoneTakenError
		err = db.AddDrivers(t.Context(), twice, false)
		if want := (map[int]dispatch.DriverID{1: first, 2: "", 3: ""}); !errors.As(err, &taken) || !reflect.DeepEqual(taken.By, want) {
			t.Errorf("a bulk: %v, want %v", err, want)
		}
		for i := range twice {
			twice[i].OwnPhone = false
		}
		Must(t, db.AddDrivers(t.Context(), twice, false))
		erased := mine("+821044443333")
		MustBeError(t, "a shared number", db.AddDrivers(t.Context(), []dispatch.Driver{erased}, false), dispatch.ErrDuplicatePhone)
		for _, v := range twice[2:] {
			_, _, err := db.EraseDriver(t.Context(), v.ID)
			Must(t, err)
		}
		Must(t, db.AddDrivers(t.Context(), []dispatch.Driver{erased}, false))
		_, err = db.ChangeDriver(t.Context(), erased.ID, dispatch.DriverChange{Action: dispatch.AuditDriverUpdate, Apply: func(v *dispatch.Driver, _ time.Time) error {
			v.OwnPhone = true
			return nil
		}})
		Must(t, err)
	})
}

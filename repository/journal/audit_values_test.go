package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// byDriver is the context of a request of the driver's.
func byDriver(t testing.TB, id dispatch.DriverID) context.Context {
	return dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: string(id), Request: "req"})
}

// detail reads an entry's detail.
func detail(t testing.TB, e dispatch.AuditEntry) map[string]any {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal([]byte(e.Detail), &d); err != nil {
		t.Fatalf("%s: %v", e.Detail, err)
	}
	return d
}

// TestALongChangeIsAudited: a change is never refused because its entry is long, and the entry has all of it.
func TestALongChangeIsAudited(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		for _, letter := range []string{"김", `"`, "<", "🏗", "\u2028"} {
			class, regions := strings.Repeat(letter, 64), make([]string, 50)
			for i := range regions {
				regions[i] = strings.Repeat(letter, 62) + fmt.Sprintf("%02d", i)
			}
			_, err := db.ChangeDriver(t.Context(), v.ID, Edit(func(v *dispatch.Driver) { v.VehicleClass, v.Regions = class, regions }))
			if err != nil {
				t.Fatalf("%q: %v", letter, err)
			}
			said := detail(t, db.LastAudit(t, dispatch.AuditDriverUpdate))
			delete(said, "why")
			testkit.Equal(t, letter, fmt.Sprint(map[string]any{
				"vehicle_class": map[string]any{"from": v.VehicleClass, "to": class},
				"regions":       map[string]any{"from": v.Regions, "to": regions},
			}), fmt.Sprint(said))
			v.VehicleClass, v.Regions = class, regions
		}
	})
}

// TestDutyIsAudited: a change of duty gets an audit entry, but at most one a minute for each driver.
func TestDutyIsAudited(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		ctx, path := byDriver(t, v[0].ID), "audit WHERE action = 'driver.duty'"
		duty := func(on bool) {
			t.Helper()
			if got, _, err := db.SetDuty(ctx, v[0].ID, on); err != nil || got.OnDuty != on {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		duty(true)
		db.MustCount(t, 0, path)
		duty(false)
		e := db.LastAudit(t, dispatch.AuditDuty)
		if e.Actor != string(v[0].ID) || e.Target != string(v[0].ID) || e.Request != "req" || e.Detail != `{"on_duty":{"from":true,"to":false}}` {
			t.Errorf("%+v", e)
		}
		for i := range 9 {
			duty(i%2 == 0)
		}
		Must(t, ErrorOfPage(db.SetDuty(byDriver(t, v[1].ID), v[1].ID, false)))
		db.MustCount(t, 2, path)
		own, _, err := db.Audit(t.Context(), dispatch.AuditQuery{Actor: string(v[0].ID), Target: string(v[0].ID), Page: dispatch.Page{Limit: 9}})
		if err != nil || len(own) != 1 {
			t.Fatalf("%+v, %v", own, err)
		}
		said := detail(t, own[0])
		last, _ := said["last"].(map[string]any)
		if said["times"] != 10.0 || fmt.Sprint(said["on_duty"], last["on_duty"]) != "map[from:true to:false] map[from:false to:true]" || last["at"] == nil {
			t.Errorf("%v", said)
		}
		// A minute later it is another.
		db.Exec(t, "UPDATE audit SET id = ?, at = 1 WHERE id = ?", dispatch.MinAuditID(time.Now().Add(-2*time.Minute)), own[0].ID)
		duty(false)
		db.MustCount(t, 3, path)
		MustBeError(t, "an unknown driver", ErrorOfPage(db.SetDuty(ctx, "drv_0", true)), dispatch.ErrDriverNotFound)
	})
}

// TestDevicesAreAudited: the audit has each change of a device, the previous owner of its token, and not the token.
func TestDevicesAreAudited(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		const secret = "a-token-to-push-to"
		put := func(id dispatch.DriverID, d dispatch.Device) map[string]any {
			t.Helper()
			db.Exec(t, "UPDATE audit SET id = REPLACE(id, SUBSTR(id, 1, 6), 'aud_00')") // long ago
			Must(t, ErrorOf(db.PutDevice(byDriver(t, id), d)))
			e := db.LastAudit(t, dispatch.AuditDevicePut)
			if e.Actor != string(id) || e.Target != string(id) || strings.Contains(e.Detail, secret) {
				t.Errorf("%+v", e)
			}
			return detail(t, e)
		}
		phone := SomeDevice(v[0].ID, "phone", secret)
		first := put(v[0].ID, phone)
		if first["push_token"] != "changed" || fmt.Sprint(first["platform"]) != "map[from:<nil> to:android]" || first["token_was_of"] != nil {
			t.Errorf("%v", first)
		}
		before := db.Count(t, "audit")
		db.MustPut(t, phone)
		db.MustCount(t, before, "audit")
		phone.AppVersion = "2.0"
		if d := put(v[0].ID, phone); len(d) != 2 || fmt.Sprint(d["app_version"]) != "map[from:1.2 to:2.0]" {
			t.Errorf("%v", d)
		}
		stolen := put(v[1].ID, SomeDevice(v[1].ID, "tablet", secret))
		if stolen["token_was_of"] != string(v[0].ID) {
			t.Errorf("%v", stolen)
		}
		for i := range 30 { // in a loop
			db.MustPut(t, SomeDevice(v[1].ID, fmt.Sprint("phone ", i), fmt.Sprint("token ", i)))
		}
		db.MustCount(t, 1, "audit WHERE action = 'device.put' AND actor = 'system'")
		last := db.MustPut(t, SomeDevice(v[1].ID, "phone 29", "token 29"))
		for range 2 {
			Must(t, db.DeleteDevice(byDriver(t, v[1].ID), v[1].ID, "phone 29"))
		}
		gone := detail(t, db.LastAudit(t, dispatch.AuditDeviceDelete))
		if gone["device_id"] != string(last.ID) || fmt.Sprint(gone["platform"]) != "map[from:android to:<nil>]" || gone["times"] != nil {
			t.Errorf("%v", gone)
		}
		MustBeError(t, "a device of an unknown driver", db.DeleteDevice(t.Context(), "drv_0", "x"), dispatch.ErrDriverNotFound)
	})
}

// An entry keeps the owners of taken-over tokens also of changes between the first and the last of a minute.
func TestAuditKeepsNamesOfAMinute(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 2)
		db.MustPut(t, SomeDevice(v[0].ID, "phone", "an honest driver's token"))
		for _, token := range []string{"own", "an honest driver's token", "own again", "own"} {
			Must(t, ErrorOf(db.PutDevice(byDriver(t, v[1].ID), SomeDevice(v[1].ID, "of "+token, token))))
		}
		e := detail(t, db.LastAudit(t, dispatch.AuditDevicePut))
		also, _ := e["also"].(map[string]any)
		if fmt.Sprint(also["token_was_of"]) != fmt.Sprintf("[%s]", v[0].ID) || len(also["device_id"].([]any)) != 2 {
			t.Errorf("%v", e)
		}
	})
}

package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"firsttap/dispatch"
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

// lastAudit returns the newest entry of that action.
func (db *database) lastAudit(t testing.TB, action dispatch.AuditAction) dispatch.AuditEntry {
	t.Helper()
	entries := db.audited(t)
	i := slices.IndexFunc(entries, func(e dispatch.AuditEntry) bool { return e.Action == action })
	if i < 0 {
		t.Fatalf("no %s: %+v", action, entries)
	}
	return entries[i]
}

// audited returns all entries, the newest first.
func (db *database) audited(t testing.TB) []dispatch.AuditEntry {
	t.Helper()
	entries, next, err := db.Audit(t.Context(), dispatch.AuditQuery{Page: dispatch.Page{Limit: 200}})
	if err != nil || next != "" {
		t.Fatalf("%q, %v", next, err)
	}
	return entries
}

// TestALongChangeIsAudited: a change is never refused because its entry is long, and the entry says of every field that it has changed.
func TestALongChangeIsAudited(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := db.drivers(t, 1)[0].ID
		for _, letter := range []string{"김", `"`, "🏗", "\u2028"} {
			_, err := db.ChangeDriver(t.Context(), id, edit(func(v *dispatch.Driver) {
				v.Name, v.VehicleClass, v.FirebaseUID = strings.Repeat(letter, 200), strings.Repeat(letter, 64), strings.Repeat(letter, 128)
				for v.Regions = nil; len(v.Regions) < 50; {
					v.Regions = append(v.Regions, strings.Repeat(letter, 60)+fmt.Sprint(len(v.Regions)))
				}
			}))
			if err != nil {
				t.Fatalf("%q: %v", letter, err)
			}
			e := db.lastAudit(t, dispatch.AuditDriverUpdate)
			if n := utf8.RuneCountInString(e.Detail); n > maxDetail || n < maxDetail/8 {
				t.Errorf("%q: %d characters", letter, n)
			}
			said := detail(t, e)
			for _, field := range []string{"vehicle_class", "regions"} {
				if c, ok := said[field].(map[string]any); !ok || c["from"] == nil && letter != "김" || c["to"] == nil {
					t.Errorf("%q: %s is %v", letter, field, said[field])
				}
			}
		}
	})
}

// TestDutyIsAudited: a change of duty gets an audit entry, but at most one a minute for each driver.
func TestDutyIsAudited(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 2)
		ctx, path := byDriver(t, v[0].ID), "audit WHERE action = 'driver.duty'"
		duty := func(on bool) {
			t.Helper()
			if got, _, err := db.SetDuty(ctx, v[0].ID, on); err != nil || got.OnDuty != on {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		duty(true)
		db.mustCount(t, 0, path)
		duty(false)
		e := db.lastAudit(t, dispatch.AuditDuty)
		if e.Actor != string(v[0].ID) || e.Target != string(v[0].ID) || e.Request != "req" || e.Detail != `{"on_duty":{"from":true,"to":false}}` {
			t.Errorf("%+v", e)
		}
		for i := range 9 {
			duty(i%2 == 0)
		}
		must(t, errorOfPage(db.SetDuty(byDriver(t, v[1].ID), v[1].ID, false)))
		db.mustCount(t, 2, path)
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
		db.exec(t, "UPDATE audit SET id = ?, at = 1 WHERE id = ?", dispatch.MinAuditID(time.Now().Add(-2*time.Minute)), own[0].ID)
		duty(false)
		db.mustCount(t, 3, path)
		mustBeError(t, "an unknown driver", errorOfPage(db.SetDuty(ctx, "drv_0", true)), dispatch.ErrDriverNotFound)
	})
}

// TestDevicesAreAudited: the audit has each change of a device, the previous owner of its token, and not the token.
func TestDevicesAreAudited(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 2)
		const secret = "a-token-to-push-to"
		put := func(id dispatch.DriverID, d dispatch.Device) map[string]any {
			t.Helper()
			db.exec(t, "UPDATE audit SET id = REPLACE(id, SUBSTR(id, 1, 6), 'aud_00')") // long ago
			must(t, errorOf(db.PutDevice(byDriver(t, id), d)))
			e := db.lastAudit(t, dispatch.AuditDevicePut)
			if e.Actor != string(id) || e.Target != string(id) || strings.Contains(e.Detail, secret) {
				t.Errorf("%+v", e)
			}
			return detail(t, e)
		}
		phone := someDevice(v[0].ID, "phone", secret)
		first := put(v[0].ID, phone)
		if first["push_token"] != "changed" || fmt.Sprint(first["platform"]) != "map[from:<nil> to:android]" || first["token_was_of"] != nil {
			t.Errorf("%v", first)
		}
		before := db.count(t, "audit")
		db.mustPut(t, phone)
		db.mustCount(t, before, "audit")
		phone.AppVersion = "2.0"
		if d := put(v[0].ID, phone); len(d) != 2 || fmt.Sprint(d["app_version"]) != "map[from:1.2 to:2.0]" {
			t.Errorf("%v", d)
		}
		stolen := put(v[1].ID, someDevice(v[1].ID, "tablet", secret))
		if stolen["token_was_of"] != string(v[0].ID) {
			t.Errorf("%v", stolen)
		}
		for i := range 30 { // in a loop
			db.mustPut(t, someDevice(v[1].ID, fmt.Sprint("phone ", i), fmt.Sprint("token ", i)))
		}
		db.mustCount(t, 1, "audit WHERE action = 'device.put' AND actor = 'system'")
		last := db.mustPut(t, someDevice(v[1].ID, "phone 29", "token 29"))
		for range 2 {
			must(t, db.DeleteDevice(byDriver(t, v[1].ID), v[1].ID, "phone 29"))
		}
		gone := detail(t, db.lastAudit(t, dispatch.AuditDeviceDelete))
		if gone["device_id"] != string(last.ID) || fmt.Sprint(gone["platform"]) != "map[from:android to:<nil>]" || gone["times"] != nil {
			t.Errorf("%v", gone)
		}
		mustBeError(t, "a device of an unknown driver", db.DeleteDevice(t.Context(), "drv_0", "x"), dispatch.ErrDriverNotFound)
	})
}

// An entry keeps the owners of taken-over tokens also of changes between the first and the last of a minute.
func TestAuditKeepsNamesOfAMinute(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 2)
		db.mustPut(t, someDevice(v[0].ID, "phone", "an honest driver's token"))
		for _, token := range []string{"own", "an honest driver's token", "own again", "own"} {
			must(t, errorOf(db.PutDevice(byDriver(t, v[1].ID), someDevice(v[1].ID, "of "+token, token))))
		}
		e := detail(t, db.lastAudit(t, dispatch.AuditDevicePut))
		also, _ := e["also"].(map[string]any)
		if fmt.Sprint(also["token_was_of"]) != fmt.Sprintf("[%s]", v[0].ID) || len(also["device_id"].([]any)) != 2 {
			t.Errorf("%v", e)
		}
	})
}

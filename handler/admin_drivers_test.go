package handler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/notify/stream"
	"firsttap/repository/repositorytest"
)

func TestADriversRecord(t *testing.T) {
	w := newWorld(t)
	w.putKey(dispatch.Viewer, "a-viewer")
	whole := strings.TrimSuffix(driverBody, "}") + `,"firebase_uid":"uid","locale":"ko","working_height_m":45,"on_duty":true}`
	made := w.call("POST", "/v1/admin/drivers", key, whole).want(201).wantHeader("ETag", `"1"`)
	path := "/v1/admin/drivers/" + made.text("id")
	made.wantHeader("Location", path)
	w.call("GET", path, "a-viewer", "").want(200).wantHeader("ETag", `"1"`).wantBody(made.raw)
	w.refused("the uid of another driver", w.call("POST", "/v1/admin/drivers", key, whole), 409, "DUPLICATE_FIREBASE_UID")

	less := `{"name":"Lee","regions":["busan","jeju"],"working_height_m":null,"firebase_uid":null,"locale":null,"on_duty":false}`
	r := w.call("PATCH", path, key, less, "If-Match", `"1"`).wantHeader("ETag", `"2"`)
	r.want(200, "name", "Lee", "regions", []any{"busan", "jeju"}, "working_height_m", nil, "firebase_uid", nil, "locale", nil, "on_duty", false,
		"phone", "+821012345678", "version", 2.0)
	for _, body := range []string{`{}`, ``, `{"name":"Lee","locale":null,"firebase_uid":""}`} {
		w.call("PATCH", path, key, body).want(200).wantBody(r.raw)
	}
	w.refused("an older version", w.call("PATCH", path, key, `{"name":"Park"}`, "If-Match", `"1"`), 412, "VERSION_MOVED")
	w.refused("no version", w.call("POST", path+"/suspend", key, ``, "If-Match", `"x"`), 412, "VERSION_MOVED")
	w.refused("version 0", w.call("PATCH", path, key, `{"name":"Park"}`, "If-Match", `"0"`), 412, "VERSION_MOVED")
	w.call("PATCH", path, key, `{"working_height_m":12.5}`, "If-Match", "*").want(200, "working_height_m", 12.5)
	for _, unknown := range []string{"drv_00000000000000000000000000", "x", "drv_"} {
		for _, call := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"POST", "/suspend"}, {"POST", "/reinstate"}, {"GET", "/devices"}, {"POST", "/tokens"}} {
			w.refused(call[0]+call[1], w.call(call[0], "/v1/admin/drivers/"+unknown+call[1], key, ""), 404, "DRIVER_NOT_FOUND")
		}
	}
}

// TestReadOnlyFieldsOfADriver: clients can't set the fields that only the service sets.
func TestReadOnlyFieldsOfADriver(t *testing.T) {
	w := newWorld(t)
	path := "/v1/admin/drivers/" + w.drivers(1)[0].id
	before := w.call("GET", path, key, "")
	for field, value := range map[string]string{
		"id": `"drv_00000000000000000000000000"`, "version": `7`, "suspended_until": `null`, "token": `"x"`, "created_at": `null`, "updated_at": `null`,
	} {
		extra := fmt.Sprintf(`"%s":%s`, field, value)
		for what, r := range map[string]reply{
			"create": w.call("POST", "/v1/admin/drivers", key, strings.Replace(driverBody, "{", "{"+extra+",", 1)),
			"patch":  w.call("PATCH", path, key, "{"+extra+"}"),
			"bulk":   w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+strings.Replace(driverBody, "{", "{"+extra+",", 1)+`]}`),
		} {
			w.refused(what+" "+field, r, 422, "VALIDATION_FAILED")
		}
	}
	for field, value := range map[string]string{
		"name": `""`, "phone": `"010"`, "regions": `[]`, "vehicle_class": `"\u3164"`, "working_height_m": `0`, "locale": `"??"`, "firebase_uid": `"a\u0000"`,
		"on_duty": `null`, "name ": `null`, "phone ": `5`, "regions ": `["a","a"]`, "regions  ": `["` + strings.Repeat("x", 65) + `"]`,
		"regions   ": `[5]`, "working_height_m ": `"high"`, "phone  ": `null`, "regions    ": `null`, "vehicle_class ": `null`, "regions     ": `[null]`,
	} {
		name := strings.TrimSpace(field)
		r := w.refused(name+" "+value, w.call("PATCH", path, key, fmt.Sprintf(`{"%s":%s}`, name, value)), 422, "VALIDATION_FAILED")
		if errs, _ := r.at("errors").([]any); len(errs) != 1 || !strings.HasPrefix(fmt.Sprint(errs[0].(map[string]any)["field"]), name) {
			t.Errorf("%s %s: %s", name, value, r.raw)
		}
	}
	w.call("GET", path, key, "").wantBody(before.raw)
}

func TestSuspendAndReinstate(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	path := "/v1/admin/drivers/" + d.id
	for _, until := range []string{inFuture(-time.Second), "2000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00"} {
		w.refused(until, w.call("POST", path+"/suspend", key, `{"until":"`+until+`"}`), 422, "VALIDATION_FAILED")
	}
	r := w.call("POST", path+"/suspend", key, `{"reason_code":"NO_SHOW"}`)
	r.want(200, "suspended_until", "9999-12-31T23:59:59.000Z", "version", 2.0).wantHeader("ETag", `"2"`)
	w.refused("suspended", w.accept(id, d, ""), 403, "NOT_ELIGIBLE")
	w.call("POST", path+"/suspend", key, ``).wantBody(r.raw)
	r = w.call("POST", path+"/suspend", key, `{"until":"`+inFuture(time.Hour)+`"}`).want(200, "version", 3.0)
	if time.Until(r.time("suspended_until")) > time.Hour {
		t.Error(r.raw)
	}
	for range 2 {
		w.call("POST", path+"/reinstate", key, ``).want(200, "suspended_until", nil, "version", 4.0)
	}
	w.accept(id, d, "").want(200)
}

func TestListsOfDrivers(t *testing.T) {
	w := newWorld(t)
	all := w.drivers(5)
	w.call("PATCH", "/v1/admin/drivers/"+all[2].id, key, `{"name":"홍","on_duty":false,"regions":["jeju"],"vehicle_class":"12m"}`)
	w.call("POST", "/v1/admin/drivers/"+all[3].id+"/suspend", key, "")
	for query, want := range map[string]int{
		"": 5, "q=%ED%99%8D": 1, "q=%2B821000000001": 1, "region=jeju": 1, "region=seoul": 4, "vehicle_class=12m": 1, "on_duty=false": 1, "on_duty=true": 4,
		"suspended=true": 1, "suspended=false": 4, "region=seoul&suspended=false&on_duty=true": 3, "q=nobody": 0, "erased=true": 0,
	} {
		if got := len(slices.Concat(w.pages("/v1/admin/drivers?limit=2&"+query, key)...)); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	for _, bad := range []string{"on_duty=yes", "suspended=1", "erased=1", "q=%00", "q=%ff", "region=%ff", "vehicle_class=%00"} {
		name, _, _ := strings.Cut(bad, "=")
		w.refused(bad, w.call("GET", "/v1/admin/drivers?"+bad, key, ""), 422, "VALIDATION_FAILED").hasField(name)
	}
	w.refused("cursor", w.call("GET", "/v1/admin/drivers?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
}

// TestDevicesWithoutTokens: an operator sees which phones a driver has, and can push to none.
func TestDevicesWithoutTokens(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	w.call("PUT", "/v1/me/devices/phone", d.token, `{"platform":"ios","push_token":"a-push-token","app_version":"1.2","locale":"ko"}`)
	r := w.call("GET", "/v1/admin/drivers/"+d.id+"/devices", key, "")
	v := r.item()
	wantMembers(t, "a device", v, "installation_id", "phone", "platform", "ios", "app_version", "1.2", "suspected_at", nil, "quarantined_at", nil)
	if strings.Contains(r.raw, "a-push-token") {
		t.Errorf("the push token is shown: %s", r.raw)
	}
	w.exec("UPDATE devices SET suspected_at = 1000000")
	v = w.call("GET", "/v1/admin/drivers/"+d.id+"/devices", key, "").item()
	wantMembers(t, "a device that may be gone", v, "suspected_at", "1970-01-01T00:00:01.000Z")
}

// TestAnAdminRemovesADevice by its path as the app chose it, and the audit trail names the admin.
func TestAnAdminRemovesADevice(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	w.device(d, "a%2Fb", "token-1")
	w.device(d, "kept", "token-2")
	path := "/v1/admin/drivers/" + d.id + "/devices/"
	for _, id := range []string{"a%2Fb", "a%2Fb", "never"} {
		w.call("DELETE", path+id, key, "").want(204).wantBody("")
	}
	wantMembers(t, "the device that is left", w.call("GET", "/v1/admin/drivers/"+d.id+"/devices", key, "").item(), "installation_id", "kept")
	wantMembers(t, "the audit", items(w.call("GET", "/v1/admin/audit?target="+d.id, key, ""))[0], "action", "device.delete", "actor", dispatch.FirstKeyID)
	w.refused("a space", w.call("DELETE", path+"a%20b", key, ""), 422, "VALIDATION_FAILED")
	for _, unknown := range []string{"drv_00000000000000000000000000", "x"} {
		w.refused(unknown, w.call("DELETE", "/v1/admin/drivers/"+unknown+"/devices/kept", key, ""), 404, "DRIVER_NOT_FOUND")
	}
}

// TestAStreamGoesByTheChange: a suspended driver's stream has no offers, and has them again when the driver is reinstated.
func TestAStreamGoesByTheChange(t *testing.T) {
	for what, c := range map[string]struct{ path, body, back, undo string }{
		"suspended":      {"POST /suspend", ``, "POST /reinstate", ``},
		"another region": {"PATCH ", `{"regions":["jeju"]}`, "PATCH ", `{"regions":["seoul"]}`},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLive(t, stream.Options{})
			d := l.drivers(1)[0]
			change := func(call, body string) {
				method, path, _ := strings.Cut(call, " ")
				l.call(method, "/v1/admin/drivers/"+d.id+path, key, body).want(200)
			}
			s := l.open("/v1/stream", d.token, "")
			publish := func() dispatch.ID {
				id := dispatch.NewID(time.Now())
				now := time.Now()
				made, events := dispatch.New(id, "", dispatch.Terms{
					Region: "seoul", VehicleClass: "45m", WorkStartsAt: now.Add(time.Hour), WorkEndsAt: now.Add(2 * time.Hour),
				}, dispatch.Window{OpensAt: now.Add(-time.Second), ExpiresAt: now.Add(time.Hour)}, "key_1", now)
				l.hub.Publish(made, events)
				return id
			}
			change(c.path, c.body)
			hidden := publish()
			l.tells(dispatch.EventAccepted, d.id) // the driver's own job: the stream has passed over the hidden one when this arrives
			for event, data := s.next(); event != "dispatch.accepted"; event, data = s.next() {
				if strings.Contains(data, string(hidden)) {
					t.Fatalf("got an event of another driver: %s %s", event, data)
				}
			}
			change(c.back, c.undo)
			shown := publish()
			for _, data := s.next(); !strings.Contains(data, string(shown)); _, data = s.next() {
			}
		})
	}
}

// TestKeysOfTwoInstances: a key that one instance makes is valid at the other, and a revoked key is invalid at both, at once.
func TestKeysOfTwoInstances(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		a, b := newWorldOn(t, p.url), newWorldOn(t, p.url)
		made := a.call("POST", "/v1/admin/api-keys", key, `{"name":"CI 서버","role":"viewer"}`).want(201)
		secret := fmt.Sprint(made.at("key"))
		for range 2 { // seen once is not seen for good
			for _, w := range []*world{a, b} {
				w.call("GET", "/v1/admin/drivers", secret, "").want(200)
				w.refused("more than its role", w.call("GET", "/v1/admin/api-keys", secret, ""), 403, "FORBIDDEN")
			}
		}
		path := "/v1/admin/api-keys/" + fmt.Sprint(made.at("id"))
		for range 2 {
			a.call("DELETE", path, key, "").want(204).wantBody("")
			for _, w := range []*world{b, a} {
				w.refused("revoked", w.call("GET", "/v1/admin/drivers", secret, ""), 401, "UNAUTHENTICATED")
			}
		}
		list := b.call("GET", "/v1/admin/api-keys", key, "")
		if len(items(list)) != 2 || strings.Contains(list.raw, secret) {
			t.Fatalf("%d %s", list.status, list.raw)
		}
		for _, k := range items(list) {
			if (k["revoked_at"] != nil) != (k["id"] == made.at("id")) {
				t.Errorf("%v", k)
			}
		}
		a.refused("the first", a.call("DELETE", "/v1/admin/api-keys/key_first", key, ""), 409, "INVALID_STATE")
		for _, none := range []string{"key_00000000000000000000000000", "x", "key_%ff"} {
			a.refused(none, a.call("DELETE", "/v1/admin/api-keys/"+none, key, ""), 404, "KEY_NOT_FOUND")
		}
		for _, bad := range []string{
			``, `{"name":"x"}`, `{"name":"x","role":"root"}`, `{"name":" \u200b","role":"admin"}`, `{"name":"x","role":"admin","key":"mine"}`,
			`{"name":"x","role":"admin","id":"key_1"}`,
		} {
			a.refused(bad, a.call("POST", "/v1/admin/api-keys", key, bad), 422, "VALIDATION_FAILED")
		}
		other := a.call("POST", "/v1/admin/api-keys", key, `{"name":"CI 서버","role":"viewer"}`)
		if other.at("key") == secret || len(fmt.Sprint(other.at("key"))) < 40 {
			t.Errorf("keys %v and %v", secret, other.at("key"))
		}
	})
}

// TestAuditTrail has each change once, with its actor and request, and without secrets.
func TestAuditTrail(t *testing.T) {
	p := newPlace(t, repositorytest.URL(t, "sqlite"))
	w := newWorldOn(t, p.url)
	p.exec("DELETE FROM audit")
	request := 0
	do := func(method, path, body string) reply {
		t.Helper()
		request++
		r := w.call(method, path, key, body, "X-Request-Id", fmt.Sprint("req-", request))
		if r.status > 299 {
			t.Fatalf("%s %s: %d %s", method, path, r.status, r.raw)
		}
		return r
	}
	id := fmt.Sprint(do("POST", "/v1/admin/drivers", driverBody).at("id"))
	path := "/v1/admin/drivers/" + id
	do("PATCH", path, `{"phone":"+821099998888"}`)
	do("POST", path+"/suspend", `{"reason_code":"NO_SHOW"}`)
	do("POST", path+"/reinstate", ``)
	token := do("POST", path+"/tokens", `null`).at("token")
	bulk := do("POST", "/v1/admin/drivers/bulk", `{"drivers":[`+driverBody+`],"issue_tokens":true}`)
	made := do("POST", "/v1/admin/api-keys", `{"name":"ci","role":"viewer"}`)
	do("DELETE", "/v1/admin/api-keys/"+fmt.Sprint(made.at("id")), ``)
	do("PATCH", path, `{}`)
	list := w.call("GET", "/v1/admin/audit", key, "")
	want := []string{"driver.create", "driver.update", "driver.suspend", "driver.reinstate", "driver.token", "drivers.bulk", "key.create", "key.revoke"}
	if len(items(list)) != len(want) {
		t.Fatalf("%s", list.raw)
	}
	for i, e := range items(list) {
		n := len(want) - 1 - i
		if e["action"] != want[n] || e["actor"] != "key_first" || e["request_id"] != fmt.Sprint("req-", n+1) {
			t.Errorf("%v, want %s", e, want[n])
		}
	}
	for _, secret := range []any{token, items(bulk)[0]["token"], made.at("key"), key} {
		if strings.Contains(list.raw, fmt.Sprint(secret)) {
			t.Errorf("%v is in it", secret)
		}
	}
	if !strings.Contains(list.raw, `"phone":"changed"`) || strings.Contains(list.raw, "8210") {
		t.Errorf("it does not say that the number was changed, or what it is: %s", list.raw)
	}
	if r := w.call("GET", "/v1/admin/audit?target="+id+"&actor=key_first&limit=2", key, ""); len(items(r)) != 2 || r.at("next_cursor") == nil {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for _, bad := range []string{"target=%ff", "target=%00", "actor=%ED%99%8D"} {
		w.refused(bad, w.call("GET", "/v1/admin/audit?"+bad, key, ""), 422, "VALIDATION_FAILED")
	}
	w.refused("cursor", w.call("GET", "/v1/admin/audit?cursor=!", key, ""), 400, "MALFORMED_REQUEST")
}

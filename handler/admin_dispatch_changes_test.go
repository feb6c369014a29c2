package handler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// change makes an admin's change at that version.
func (w *world) change(method, id, action string, version any, body string) reply {
	return w.call(method, "/v1/admin/dispatches/"+id+action, key, body, "If-Match", fmt.Sprintf(`"%v"`, version))
}

func (w *world) read(id string) reply { return w.call("GET", "/v1/admin/dispatches/"+id, key, "") }

func TestPatch(t *testing.T) {
	w := newWorld(t)
	full := []string{
		`"min_working_height_m":20`, `"site_lat":37.5`, `"site_lng":127`, `"opens_at":"` + inFuture(time.Hour) + `"`,
		`"expires_at":"` + inFuture(2*time.Hour) + `"`,
	}
	starts, ends := inFuture(48*time.Hour), inFuture(49*time.Hour)
	soon, late, past := inFuture(90*time.Minute), inFuture(5*time.Hour), inFuture(-time.Hour)
	same := func(s string) string { // as the API shows it
		at, _ := time.Parse(time.RFC3339Nano, s)
		return shown(at)
	}
	for body, want := range map[string]map[string]any{
		`{}`: {}, ``: {},
		`{"region":"busan"}`:                {"region": "busan", "round": 2.0},
		`{"vehicle_class":"28m"}`:           {"vehicle_class": "28m", "round": 2.0},
		`{"min_working_height_m":null}`:     {"min_working_height_m": nil, "round": 2.0},
		`{"min_working_height_m":20.0}`:     {},
		`{"min_working_height_m":21}`:       {"min_working_height_m": 21.0, "round": 2.0},
		`{"site_address":"2 Sejong-daero"}`: {"site_address": "2 Sejong-daero", "round": 2.0},
		`{"site_lat":null}`:                 {"site_lat": nil, "site_lng": nil, "round": 2.0},
		`{"site_lng":null}`:                 {"site_lat": nil, "site_lng": nil, "round": 2.0},
		`{"site_lat":null,"site_lng":null}`: {"site_lat": nil, "site_lng": nil, "round": 2.0},
		`{"site_lat":0}`:                    {"site_lat": 0.0, "round": 2.0},
		`{"work_ends_at":"` + ends + `","work_starts_at":"` + starts + `"}`: {"work_starts_at": same(starts), "work_ends_at": same(ends), "round": 2.0},
		`{"fee":{"currency":"KRW","amount":1}}`:                             {"fee": map[string]any{"amount": 1.0, "currency": "KRW"}, "round": 2.0},
		`{"fee":{"currency":"KRW","amount":350000}}`:                        {},
		`{"note":null}`:                            {"note": nil, "round": 2.0},
		`{"note":""}`:                              {"note": nil, "round": 2.0},
		`{"note":"게이트 2"}`:                         {},
		`{"opens_at":"` + soon + `"}`:              {"opens_at": same(soon)},
		`{"expires_at":"` + late + `"}`:            {"expires_at": same(late)},
		`{"note":"x","expires_at":"` + late + `"}`: {"note": "x", "expires_at": same(late), "round": 2.0},
		`{"opens_at":"` + past + `"}`:              {"opens_at": same(past), "status": "PENDING"},
	} {
		id := w.dispatch(24, full...)
		before := w.read(id).json
		r := w.change("PATCH", id, "", 1, body)
		expected := maps.Clone(before)
		maps.Copy(expected, want)
		if len(want) > 0 {
			expected["version"] = 2.0
			expected["updated_at"] = r.json["updated_at"]
		}
		for member, v := range expected {
			if got := fmt.Sprint(r.json[member]); r.status != 200 || got != fmt.Sprint(v) {
				t.Errorf("%s: %d, %s is %s, want %v", body, r.status, member, got, v)
			}
		}
		if etag := r.header.Get("ETag"); etag != fmt.Sprintf(`"%v"`, expected["version"]) {
			t.Errorf("%s: ETag %s", body, etag)
		}
		w.read(id).wantBody(r.raw)
		events := items(w.call("GET", "/v1/admin/dispatches/"+id+"/events", key, ""))
		if len(events) != 1+min(1, len(want)) {
			t.Errorf("%s: %v", body, events)
		}
		if len(want) == 0 {
			continue
		}
		reason := any(nil)
		if expected["round"] == 1.0 {
			reason = "WINDOW_CHANGED"
		}
		wantMembers(t, body, events[len(events)-1], "type", "dispatch.updated", "round", expected["round"], "reason_code", reason, "driver_id", nil)
	}
}

// TestPatchWithUnchangedFields: a backoffice that sends back the whole form changes nothing, though the API shows milliseconds.
func TestPatchWithUnchangedFields(t *testing.T) {
	w := newWorld(t)
	id := w.dispatch(1, `"work_starts_at":"2030-01-01T00:00:00.123456789Z"`, `"work_ends_at":"2030-01-01T01:00:00.999999Z"`)
	shown := w.read(id)
	form := map[string]any{}
	for _, field := range []string{
		"region", "vehicle_class", "min_working_height_m", "site_address", "site_lat", "site_lng", "work_starts_at", "work_ends_at", "fee", "note",
		"opens_at", "expires_at",
	} {
		form[field] = shown.json[field]
	}
	w.change("PATCH", id, "", 1, toJSON(form)).wantBody(shown.raw)
	form["fee"] = map[string]any{"amount": 1, "currency": "KRW"}
	w.change("PATCH", id, "", 1, toJSON(form)).want(200, "round", 2.0, "opens_at", shown.at("opens_at"))
	w.refused("another opening of an open dispatch", w.change("PATCH", id, "", 2, `{"opens_at":"`+inFuture(time.Minute)+`"}`), 409, "INVALID_STATE")
}

func TestPatchRefusals(t *testing.T) {
	w := newWorld(t)
	id := w.dispatch(1)
	for body, field := range map[string]string{
		`{"region":null}`: "region", `{"region":""}`: "region", `{"region":"x;y"}`: "region", `{"region":1}`: "region",
		`{"vehicle_class":null}`: "vehicle_class", `{"site_address":null}`: "site_address",
		`{"site_address":"` + strings.Repeat("x", 501) + `"}`: "site_address",
		`{"work_starts_at":null}`:                             "work_starts_at", `{"work_ends_at":null}`: "work_ends_at",
		`{"work_ends_at":"2020-01-01T00:00:00Z"}`:      "work_ends_at",
		`{"work_starts_at":"9000-01-01T00:00:00Z"}`:    "work_ends_at",
		`{"work_ends_at":"9999-12-31T23:59:59-12:00"}`: "work_ends_at",
		`{"fee":null}`: "fee", `{"fee":{"amount":1}}`: "fee.currency", `{"fee":{"amount":-1,"currency":"KRW"}}`: "fee.amount",
		`{"fee":{"amount":1,"currency":"KRW","x":1}}`: "fee.x", `{"fee":{"amount":"1","currency":"KRW"}}`: "fee.amount", `{"fee":1}`: "fee",
		`{"fee":{"currency":"KRW"}}`: "fee.amount", `{"fee":{"amount":null,"currency":"KRW"}}`: "fee.amount",
		`{"min_working_height_m":0}`: "min_working_height_m", `{"min_working_height_m":"20"}`: "min_working_height_m",
		`{"site_lat":91}`: "site_lat", `{"site_lat":null,"site_lng":127}`: "site_lat", `{"site_lng":null,"site_lat":37}`: "site_lat",
		`{"note":"` + strings.Repeat("x", 2001) + `"}`: "note", `{"note":false}`: "note",
		`{"opens_at":null}`: "opens_at", `{"expires_at":null}`: "expires_at", `{"expires_at":"2020-01-01T00:00:00Z"}`: "expires_at",
		`{"external_id":"x"}`: "external_id", `{"status":"CANCELED"}`: "status", `{"round":2}`: "round", `{"REGION":"x"}`: "REGION", `{"Region":null}`: "Region",
		`{"note":"x","nota":"x"}`: "nota", `{"expires_at":"tomorrow"}`: "expires_at",
	} {
		w.refused(body, w.change("PATCH", id, "", 1, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	for _, body := range []string{`null`, `{`, `{"note":"x"}{}`, "{\"note\":\"\xff\"}"} {
		w.refused(body, w.change("PATCH", id, "", 1, body), 400, "MALFORMED_REQUEST")
	}
	for _, body := range []string{`[]`, `"x"`, `1`} {
		w.ours(body, w.change("PATCH", id, "", 1, body))
	}
	w.untouched(id)
}

// TestChangesNeedAVersion and a dispatch.
func TestChangesNeedAVersion(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	later := `{"expires_at":"` + inFuture(time.Hour) + `"}`
	for action, body := range map[string]string{
		"": `{"note":"x"}`, "/reopen": "", "/extend": later, "/assign": `{"driver_id":"` + d.id + `"}`, "/unassign": "", "/cancel": "",
	} {
		method := "POST"
		if action == "" {
			method = "PATCH"
		}
		path := "/v1/admin/dispatches/" + id + action
		w.refused(action, w.call(method, path, key, body), 428, "PRECONDITION_REQUIRED")
		for _, v := range []string{`"0"`, `"2"`, `"-1"`, `"x"`, `"1.0"`, `x`} {
			w.refused(action, w.call(method, path, key, body, "If-Match", v), 412, "VERSION_MOVED")
		}
		w.refused(action, w.change(method, "dsp_"+strings.Repeat("0", 26), action, 1, body), 404, "DISPATCH_NOT_FOUND")
		w.refused(action, w.change(method, "x", action, 1, body), 404, "DISPATCH_NOT_FOUND")
		if action != "" {
			w.refused(action, w.change(method, id, action, 1, `{"driver":"x"}`), 422, "VALIDATION_FAILED")
		}
	}
	w.untouched(id)
	w.call("PATCH", "/v1/admin/dispatches/"+id, key, `{"note":"x"}`, "If-Match", `W/"1"`).want(200)
}

func TestReopen(t *testing.T) {
	w := newWorld(t)
	id := w.expired(1)
	for _, body := range []string{`{"expires_at":"` + inFuture(-time.Second) + `"}`, `{"opens_at":"9999-12-31T23:59:59-12:00"}`} {
		w.refused(body, w.change("POST", id, "/reopen", 1, body), 422, "VALIDATION_FAILED")
	}
	r := w.change("POST", id, "/reopen", 1, "").want(200, "status", "PENDING", "round", 2.0, "version", 2.0)
	later := w.change("POST", w.expired(2), "/reopen", 1, `{"opens_at":"`+inFuture(time.Hour)+`"}`).want(200, "status", "SCHEDULED")
	if w.lasts(r) != 10*time.Minute || w.lasts(later) != 10*time.Minute {
		t.Errorf("the windows last %v and %v, want the ten minutes of before", w.lasts(r), w.lasts(later))
	}
	w.refused("an open dispatch", w.change("POST", id, "/reopen", 2, ""), 409, "INVALID_STATE")
}

// lasts is how long the dispatch's window is.
func (w *world) lasts(r reply) time.Duration { return r.time("expires_at").Sub(r.time("opens_at")) }

func TestExtend(t *testing.T) {
	w := newWorld(t)
	id, later := w.dispatch(1), `{"expires_at":"`+inFuture(time.Hour)+`"}`
	asItIs := fmt.Sprintf(`{"expires_at":%q}`, w.read(id).text("expires_at"))
	for _, body := range []string{``, `{}`, `{"expires_at":null}`, asItIs, `{"expires_at":"9999-12-31T23:59:59-12:00"}`} {
		w.refused(body, w.change("POST", id, "/extend", 1, body), 422, "VALIDATION_FAILED")
	}
	if r := w.change("POST", id, "/extend", 1, later).want(200, "round", 1.0, "version", 2.0); w.lasts(r) < 59*time.Minute {
		t.Error(r.raw)
	}
	w.refused("an expired dispatch", w.change("POST", w.expired(2), "/extend", 1, later), 409, "INVALID_STATE")
}

func TestAssignAndUnassign(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(2), w.dispatch(1)
	to := func(v string) string { return `{"driver_id":"` + v + `"}` }
	far := w.drivers(1, `"regions":["jeju"],"vehicle_class":"28m"`)[0]
	for _, unknown := range []string{"x", "drv_" + strings.Repeat("0", 26)} {
		w.refused(unknown, w.change("POST", id, "/assign", 1, to(unknown)), 404, "DRIVER_NOT_FOUND")
	}
	r := w.change("POST", id, "/assign", 1, to(far.id)).want(403, "reasons", []any{"REGION", "VEHICLE_CLASS"})
	if w.refused("not eligible", r, 403, "NOT_ELIGIBLE"); strings.Contains(r.raw, "You can") {
		t.Errorf("the dispatcher's answer speaks to the driver: %s", r.raw)
	}
	w.call("PUT", "/v1/me/duty", d[0].token, `{"on_duty":false}`)
	r = w.change("POST", id, "/assign", 1, to(d[0].id)).want(200, "status", "ACCEPTED", "accepted_by", d[0].id, "round", 1.0).wantHeader("ETag", `"2"`)
	w.refused("to another", w.change("POST", id, "/assign", 2, to(d[1].id)), 409, "ALREADY_TAKEN")
	w.change("POST", id, "/assign", 2, to(d[0].id)).wantBody(r.raw)
	busy := w.change("POST", w.dispatch(1), "/assign", 1, to(d[0].id))
	w.refused("for the same hours", busy, 409, "DRIVER_BUSY")
	if strings.Contains(busy.raw, "you have") {
		t.Errorf("the dispatcher's answer speaks of their own work: %s", busy.raw)
	}
	w.change("POST", id, "/unassign", 2, `{"reason_code":"ILL"}`).want(200, "status", "PENDING", "round", 2.0, "accepted_by", nil, "version", 3.0)
	w.receipt(id, d[0]).want(200, "outcome", "UNASSIGNED")
	w.refused("a dispatch without a driver", w.change("POST", id, "/unassign", 3, ""), 409, "INVALID_STATE")
	w.refused("expired", w.change("POST", w.expired(5), "/assign", 1, to(d[1].id)), 410, "DISPATCH_EXPIRED")
}

func TestEventsOfADispatch(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	w.call("POST", "/v1/admin/dispatches/"+id+"/assign", key, `{"driver_id":"`+d.id+`"}`, "If-Match", "1", "X-Request-Id", "the-request")
	w.change("POST", id, "/unassign", 2, `{"reason_code":"ILL"}`)
	r := w.call("GET", "/v1/admin/dispatches/"+id+"/events?limit=3", key, "")
	var got []string
	for _, e := range items(r) {
		got = append(got, fmt.Sprint(e["type"], e["round"], e["driver_id"] == d.id, e["actor"], e["reason_code"]))
	}
	want := []string{"dispatch.created1 falsekey_first<nil>", "dispatch.accepted1 truekey_first<nil>", "dispatch.unassigned1 truekey_firstILL"}
	if !slices.Equal(got, want) || items(r)[1]["request_id"] != "the-request" {
		t.Errorf("%q, want %q; %s", got, want, r.raw)
	}
	rest := w.call("GET", "/v1/admin/dispatches/"+id+"/events?cursor="+r.text("next_cursor"), key, "").want(200, "next_cursor", nil)
	wantMembers(t, "the rest", rest.item(), "type", "dispatch.reopened")
	w.refused("of nothing", w.call("GET", "/v1/admin/dispatches/dsp_"+strings.Repeat("0", 26)+"/events", key, ""), 404, "DISPATCH_NOT_FOUND")
	w.refused("from nowhere", w.call("GET", "/v1/admin/dispatches/"+id+"/events?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	w.refused("none at all", w.call("GET", "/v1/admin/dispatches/"+id+"/events?limit=0", key, ""), 422, "VALIDATION_FAILED")
}

func TestPreviewOverHTTP(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(4)
	w.device(d[0], "phone", "a-token")
	w.call("PUT", "/v1/me/duty", d[1].token, `{"on_duty":false}`)
	w.accept(w.dispatch(1), d[2], "")
	r := w.call("POST", "/v1/admin/dispatches/preview", key, order(1))
	const want = `{"eligible":2,"reachable":1,"busy":1,"not_eligible":1,"reasons":{"OFF_DUTY":1,"REGION":0,"SUSPENDED":0,"VEHICLE_CLASS":0,"WORKING_HEIGHT":0}}`
	r.want(200).wantBody(want)
	r = w.call("POST", "/v1/admin/dispatches/preview", key, order(9, `"min_working_height_m":46`, `"region":"jeju"`))
	r.want(200, "not_eligible", 4.0, "reasons.WORKING_HEIGHT", 4.0, "reasons.REGION", 4.0, "eligible", 0.0)
	for _, body := range []string{
		"", order(1, `"region":"absent"`), order(1, `"x":1`), order(1, `"expires_at":"2020-01-01T00:00:00Z"`),
		order(1, `"work_ends_at":"9999-12-31T23:59:59-12:00"`),
	} {
		w.refused(body, w.call("POST", "/v1/admin/dispatches/preview", key, body), 422, "VALIDATION_FAILED")
	}
	w.call("GET", "/v1/admin/dispatches", key, "").want(200).wantItems(1)
}

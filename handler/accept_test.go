package handler

import (
	"strings"
	"testing"
	"time"
)

func TestAcceptWinsAndReplays(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1)
	first := w.accept(id, d[0], `{"round":1}`)
	if first.status != 200 || first.at("result") != "SUCCESS" || first.at("replayed") != false ||
		first.at("dispatch", "status") != "ACCEPTED" || first.at("claim", "round") != 1.0 ||
		!strings.HasPrefix(first.at("claim", "id").(string), "clm_") {
		t.Fatal(first.raw)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", first.at("claim", "accepted_at").(string)); err != nil {
		t.Error(err)
	}
	for _, body := range []string{`{"round":1}`, "", "{}", `{"round":null}`} {
		w.accept(id, d[0], body).want(200, "replayed", true, "claim.id", first.at("claim", "id"))
	}
	for _, body := range []string{`{"round":1}`, ""} {
		lost := w.accept(id, d[1], body)
		w.refused("a loser", lost, 409, "ALREADY_TAKEN").want(409, "final", true)
		if strings.Contains(lost.raw, d[0].id) {
			t.Errorf("a loser's answer names the winner: %s", lost.raw)
		}
	}
}

// Every code of the accept table.
func TestAcceptRefusals(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(3)
	open := w.dispatch(1)
	w.refused("a stale offer", w.accept(open, d[0], `{"round":2}`), 409, "OFFER_STALE")
	w.refused("unknown", w.accept("dsp_"+strings.Repeat("0", 26), d[0], ""), 404, "DISPATCH_NOT_FOUND")

	opens := inFuture(time.Hour)
	early := w.accept(w.dispatch(2, `"opens_at":"`+opens+`"`), d[0], "")
	w.refused("too early", early, 409, "NOT_OPEN_YET")
	if at, err := time.Parse(time.RFC3339, early.json["opens_at"].(string)); err != nil || time.Until(at) < 59*time.Minute {
		t.Errorf("opens_at: %s", early.raw)
	}

	canceled := w.dispatch(3)
	w.call("POST", "/v1/admin/dispatches/"+canceled+"/cancel", key, "", "If-Match", `"1"`).want(200)
	w.refused("canceled", w.accept(canceled, d[0], ""), 410, "DISPATCH_CANCELED")

	unfit := w.accept(w.dispatch(4, `"region":"jeju","vehicle_class":"28m","min_working_height_m":46`), d[0], "")
	w.refused("not eligible", unfit, 403, "NOT_ELIGIBLE")
	if got := unfit.json["reasons"]; len(got.([]any)) != 3 {
		t.Errorf("reasons: %s", unfit.raw)
	}
	w.call("PUT", "/v1/me/duty", d[2].token, `{"on_duty":false}`).want(200, "on_duty", false)
	w.refused("off duty", w.accept(open, d[2], ""), 403, "NOT_ELIGIBLE")

	w.accept(open, d[0], "").want(200)
	w.refused("busy", w.accept(w.dispatch(1), d[0], ""), 409, "DRIVER_BUSY")
	w.refused("done too early", w.on(open, "complete", d[0]), 409, "INVALID_STATE")
}

func TestAcceptWhileTheDatabaseIsAway(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	id := w.dispatch(1)
	noError(t, w.store.Close())
	w.refused("no database", w.accept(id, d, ""), 503, "CLAIM_UNAVAILABLE").hasHeader("Retry-After")
	w.refused("no database", w.call("GET", "/v1/me", d.token, ""), 503, "UNAVAILABLE")
	w.call("GET", "/readyz", "", "").want(503)
	w.call("GET", "/livez", "", "").want(200)
}

func TestLifecycle(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1)
	receipt := func(d caller) any { return w.call("GET", "/v1/me/dispatches/"+id+"/claim", d.token, "").at("outcome") }
	if got := receipt(d[0]); got != "PENDING" {
		t.Errorf("receipt before: %v", got)
	}
	steps := []struct {
		by     caller
		action string
		status string
	}{
		{d[0], "accept", ""}, {d[0], "withdraw", "PENDING"}, {d[0], "withdraw", "PENDING"},
		{d[1], "accept", ""}, {d[1], "start", "IN_PROGRESS"}, {d[1], "start", "IN_PROGRESS"},
		{d[1], "complete", "COMPLETED"}, {d[1], "complete", "COMPLETED"},
	}
	for _, s := range steps {
		r := w.on(id, s.action, s.by)
		if r.status != 200 || s.status != "" && r.at("status") != s.status {
			t.Fatalf("%s: %d %s", s.action, r.status, r.raw)
		}
		if s.action == "withdraw" && r.at("round") != 2.0 {
			t.Fatalf("withdrawn: %s", r.raw)
		}
	}
	for _, action := range []string{"withdraw", "start", "complete"} {
		if r := w.on(id, action, d[0]); action != "withdraw" && r.code() != "FORBIDDEN" {
			t.Errorf("%s by a driver who has withdrawn: %s", action, r.raw)
		}
	}
	if a, b := receipt(d[0]), receipt(d[1]); a != "WITHDRAWN" || b != "WON" {
		t.Errorf("receipts: %v, %v", a, b)
	}
	jobs := w.call("GET", "/v1/me/dispatches?status=COMPLETED", d[1].token, "")
	if items := jobs.json["items"].([]any); len(items) != 1 {
		t.Errorf("jobs: %s", jobs.raw)
	}
}

// A driver can't change the job of another, nor see it if they do not match its terms.
func TestJobOfAnotherDriver(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	far := w.drivers(1, `"regions":["jeju"]`)[0]
	id := w.dispatch(1)
	w.accept(id, d[0], "").want(200)
	for _, action := range []string{"withdraw", "start", "complete"} {
		w.refused(action, w.on(id, action, d[1]), 403, "FORBIDDEN")
		w.refused(action+" from afar", w.on(id, action, far), 404, "DISPATCH_NOT_FOUND")
	}
	w.refused("seen from afar", w.call("GET", "/v1/dispatches/"+id, far.token, ""), 404, "DISPATCH_NOT_FOUND")
	w.refused("receipt from afar", w.call("GET", "/v1/me/dispatches/"+id+"/claim", far.token, ""), 404, "DISPATCH_NOT_FOUND")
	seen := w.call("GET", "/v1/dispatches/"+id, d[1].token, "")
	if seen.status != 200 || strings.Contains(seen.raw, d[0].id) {
		t.Errorf("another driver sees %s", seen.raw)
	}
	w.call("GET", "/v1/admin/dispatches/"+id, key, "").want(200, "status", "ACCEPTED", "accepted_by", d[0].id, "version", 2.0)
}

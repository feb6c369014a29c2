//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
	"firsttap/repository/repositorytest"
)

// TestErasedDriver is signed out at the instance that erases at once and at others soon, is found by no name, and can't be changed.
func TestErasedDriver(t *testing.T) {
	url := repositorytest.URL(t, "mariadb")
	here, there := newWorldOn(t, url), newWorldOn(t, url)
	there.follows(t)
	d := here.drivers(2, `"name":"Kim Min-jun"`)
	me, path := d[0], "/v1/admin/drivers/"+d[0].id
	here.device(me, "phone", "push-token")
	there.call("GET", "/v1/me", me.token, "").want(200)

	id := here.dispatch(1)
	here.accept(id, me, `{"round":1}`).want(200)
	here.refused("with a job", here.call("POST", path+"/erase", key, ""), 409, "DRIVER_BUSY")
	here.call("GET", path, key, "").want(200, "name", "Kim Min-jun", "erased_at", nil)
	here.on(id, "start", me).want(200)
	here.refused("with a job that has begun", here.call("POST", path+"/erase", key, `{}`), 409, "DRIVER_BUSY")
	here.on(id, "complete", me).want(200)

	for range 2 {
		here.call("POST", path+"/erase", key, "").want(204).wantBody("")
		here.refused("an erased driver, here", here.call("GET", "/v1/me", me.token, ""), 401, "UNAUTHENTICATED")
	}
	testkit.Eventually(t, "the token is refused elsewhere", func() bool { return there.call("GET", "/v1/me", me.token, "").status == 401 })
	erased := there.call("GET", path, key, "").want(200, "name", dispatch.Pseudonym(dispatch.DriverID(me.id)), "phone", nil, "regions", []any{}, "vehicle_class", "",
		"firebase_uid", nil, "locale", nil, "on_duty", false, "suspended_until", nil)
	if erased.json["erased_at"] == nil {
		t.Error("the driver is not shown as erased")
	}
	here.call("GET", "/v1/admin/drivers?q=Kim", key, "").wantItems(1)
	here.call("GET", "/v1/admin/drivers", key, "").wantItems(1)
	here.call("GET", "/v1/admin/drivers?erased=true", key, "").wantItems(1)
	here.call("GET", path+"/devices", key, "").wantItems(0)
	here.call("GET", path+"/signals", key, "").want(200, "wins", 1.0)
	here.call("GET", "/v1/admin/dispatches/"+id, key, "").want(200, "accepted_by", me.id)
	for call, body := range map[string]string{"PATCH ": `{"name":"Kim"}`, "POST /suspend": `{}`, "POST /reinstate": `{}`, "POST /tokens": ``} {
		method, at, _ := strings.Cut(call, " ")
		here.refused(call, here.call(method, path+at, key, body), 409, "DRIVER_ERASED")
	}
	next := here.dispatch(2)
	here.refused("an assignment", here.change("POST", next, "/assign", 1, fmt.Sprintf(`{"driver_id":%q}`, me.id)), 403, "NOT_ELIGIBLE")
	here.refused("an unknown driver", here.call("POST", "/v1/admin/drivers/"+string(dispatch.NewDriverID(time.Now()))+"/erase", key, ""), 404, "DRIVER_NOT_FOUND")
}

// TestStreamOfAnErasedDriver has no offers any more, and ends.
func TestStreamOfAnErasedDriver(t *testing.T) {
	t.Parallel()
	l := newLive(t, stream.Options{})
	d := l.drivers(1)[0]
	open := l.open("/v1/stream", d.token, "")
	l.call("POST", "/v1/admin/drivers/"+d.id+"/erase", key, "").want(204)
	l.clock.pass(recheckInterval)
	l.tells(dispatch.EventOpened, "")
	l.clock.pass(recheckInterval)
	if name, text := open.next(); name != "end" {
		t.Errorf("%s %s", name, text)
	}
}

// TestExport has everything about the driver and nothing about others, and is audited.
func TestExport(t *testing.T) {
	w := newWorldWithLedger(t)
	d := w.drivers(2)
	me, other := d[0], d[1]
	path := "/v1/admin/drivers/" + me.id
	w.device(other, "phone", "shared-token")
	w.device(me, "phone", "shared-token")
	var ids []string
	for i := range 3 {
		id := w.dispatch(i + 1)
		ids = append(ids, id)
		w.on(id, "seen", me).want(204)
	}
	w.accept(ids[0], me, `{"round":1}`).want(200)
	w.accept(ids[0], other, `{"round":1}`).want(409)
	w.withdraw(ids[0], me, 1).want(200)
	w.accept(ids[0], me, `{"round":2}`).want(200)
	w.decline(ids[1], me, `{"reason_code":"TOO_FAR"}`).want(204)
	w.decline(ids[1], other, `{"reason_code":"OTHER"}`).want(204)
	w.accept(ids[2], other, `{"round":1}`).want(200)
	w.accept(ids[2], me, `{"round":1}`).want(409)
	w.tell()
	w.receipt(ids[0], me) // the ledger is written
	r := w.call("GET", path+"/export", key, "").want(200, "complete", true)
	r.wantHeader("Content-Disposition", `attachment; filename="`+me.id+`.json"`)
	if id := r.text("driver", "id"); id != me.id {
		t.Errorf("the driver is %s", id)
	}
	for member, want := range map[string]int{"devices": 1, "claims": 2, "offers": 3, "taps": 3} {
		if n := len(r.json[member].([]any)); n != want {
			t.Errorf("%d %s, want %d", n, member, want)
		}
	}
	kinds := map[any]int{}
	for _, e := range r.json["events"].([]any) {
		kinds[e.(map[string]any)["type"]]++
	}
	if kinds["dispatch.accepted"] != 2 || kinds["dispatch.withdrawn"] != 1 || kinds["dispatch.declined"] != 1 {
		t.Errorf("events: %v", kinds)
	}
	if len(r.json["notifications"].([]any)) == 0 {
		t.Error("no notifications")
	}
	for _, secret := range []string{other.id, "shared-token", "OTHER", me.token} {
		if strings.Contains(r.raw, secret) {
			t.Errorf("the export has %q:\n%s", secret, r.raw)
		}
	}
	if entry := w.call("GET", "/v1/admin/audit?target="+me.id+"&limit=1", key, "").want(200).item(); entry["action"] != "driver.export" {
		t.Errorf("audited as %v", entry)
	}
	w.refused("an unknown driver", w.call("GET", "/v1/admin/drivers/"+string(dispatch.NewDriverID(time.Now()))+"/export", key, ""), 404, "DRIVER_NOT_FOUND")
}

// TestExportThatFails is a 503 as long as nothing was sent, and ends without its last member afterwards.
func TestExportThatFails(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	db := w.tables()
	defer db.Close()
	_, err := db.ExecContext(t.Context(), "ALTER TABLE offers RENAME TO gone") // the database is this test's own
	noError(t, err)
	w.refused("a small export", w.call("GET", "/v1/admin/drivers/"+d.id+"/export", key, ""), 503, "UNAVAILABLE")
	w.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at)
		SELECT printf('clm_%026d', i), printf('dsp_%026d', i), 1, '` + d.id + `', i, 'WON', 1 FROM n`)
	rec := httptest.NewRecorder() // the answer is none that is documented
	w.api.ServeHTTP(rec, request(t.Context(), "GET", "/v1/admin/drivers/"+d.id+"/export", key, ""))
	if text := rec.Body.String(); json.Valid(rec.Body.Bytes()) || strings.Contains(text, "complete") || !strings.Contains(text, `"claims":[{`) {
		t.Errorf("the export: %.300s", text)
	}
}

// slowClient is a client as write says, with the deadline of its answer.
type slowClient struct {
	http.ResponseWriter
	deadline time.Time
	write    func([]byte) (int, error)
}

func (c *slowClient) SetWriteDeadline(at time.Time) error {
	c.deadline = at
	return nil
}

func (c *slowClient) Write(b []byte) (int, error) { return c.write(b) }

// TestAnExportEnds: a client that reads each part just in time holds its place no longer than exportTime.
func TestAnExportEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := &slowClient{}
		c.write = func(b []byte) (int, error) {
			time.Sleep(9 * time.Second)
			if time.Now().After(c.deadline) {
				return 0, os.ErrDeadlineExceeded
			}
			return len(b), nil
		}
		w, part := newExportWriter(c), make([]byte, exportBuffer/2)
		began := time.Now()
		for err := error(nil); err == nil && time.Since(began) < time.Hour; {
			_, err = w.Write(part)
		}
		if took := time.Since(began); took < exportTime || took > exportTime+9*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

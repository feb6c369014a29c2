package handler

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// untouched fails the test unless the dispatch is open, in its first round and version.
func (w *world) untouched(id string) {
	w.t.Helper()
	w.call("GET", "/v1/admin/dispatches/"+id, key, "").want(200, "status", "PENDING", "version", 1.0, "round", 1.0, "accepted_by", nil)
}

// TestWinnerIsASecret looks for the winner in every answer to other drivers and to anonymous callers.
func TestWinnerIsASecret(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(2), w.dispatch(1)
	won := w.accept(id, d[0], "")
	claim := fmt.Sprint(won.at("claim", "id"))
	look := func(stage string) {
		for _, r := range []reply{
			w.accept(id, d[1], ""), w.accept(id, d[1], `{"round":1}`), w.accept(id, d[1], `{"round":9}`),
			w.call("GET", "/v1/dispatches/"+id, d[1].token, ""), w.call("GET", "/v1/me/dispatches/"+id+"/claim", d[1].token, ""),
			w.call("GET", "/v1/me/offers", d[1].token, ""), w.call("GET", "/v1/me/dispatches", d[1].token, ""),
			w.on(id, "withdraw", d[1]), w.on(id, "start", d[1]), w.on(id, "complete", d[1]), w.accept(id, caller{}, ""),
		} {
			if all := r.raw + fmt.Sprint(r.header); strings.Contains(all, d[0].id) || strings.Contains(all, claim) || strings.Contains(all, "Kim 0") {
				t.Errorf("%s: %s", stage, all)
			}
		}
	}
	look("accepted")
	w.on(id, "start", d[0])
	look("begun")
	w.on(id, "complete", d[0])
	look("done")
}

// TestWrongMethods: each address accepts the methods of the contract and no others.
func TestWrongMethods(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for path, takes := range map[string]string{
		"/v1/dispatches/" + id + "/accept": "POST", "/v1/me/duty": "PUT", "/v1/dispatches/" + id: "GET", "/livez": "GET",
		"/v1/admin/drivers/bulk": "POST", "/v1/admin/dispatches/" + id + "/cancel": "POST", "/v1/dispatches/" + id + "/seen": "POST",
		"/v1/admin/notifications": "GET", "/v1/admin/notifications/ntf_1/redrive": "POST",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			if method == takes {
				continue
			}
			r := w.call(method, path, d.token, "")
			if method == "OPTIONS" && r.status == 204 {
				continue // the answer has the Allow header
			}
			w.ours(method+" "+path, r)
		}
	}
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/me/", "/v1//me", "/V1/me", "/v1/dispatches", "/v1/dispatches/" + id + "/", "/v1/dispatches/" + id + "/accept/x",
		"/v1/admin",
	} {
		w.ours(path, w.call("GET", path, d.token, ""))
	}
	w.untouched(id)
}

// TestExtremes: extreme values are refused, or stored and returned unchanged.
func TestExtremes(t *testing.T) {
	w := newWorld(t)
	for _, field := range []string{
		`"site_lng":1e308`, `"opens_at":"2026-02-30T00:00:00Z"`, `"opens_at":"+292277026596-12-04T15:30:07Z"`, `"expires_at":"0000-01-01T00:00:00Z"`,
		`"opens_at":"0001-01-01T00:00:00Z"`, `"work_starts_at":"9999-12-31T23:59:59Z","work_ends_at":"9999-12-31T23:59:59Z"`,
	} {
		w.ours(field, w.call("POST", "/v1/admin/dispatches", key, order(1, field)))
	}
	for _, c := range []struct {
		field, member string
		want          any
	}{
		{fmt.Sprintf(`"fee":{"amount":%d,"currency":"JPY"}`, int64(1)<<53-1), "fee.amount", float64(1<<53 - 1)},
		{`"fee":{"amount":0,"currency":"USD"}`, "fee.amount", 0.0},
		{`"region":"` + strings.Repeat("서", 64) + `"`, "region", strings.Repeat("서", 64)},
		{`"site_address":"` + strings.Repeat("🏗", 500) + `"`, "site_address", strings.Repeat("🏗", 500)},
		{`"external_id":"𠀀' OR 1=1 --"`, "external_id", "𠀀' OR 1=1 --"},
		{`"note":"` + strings.Repeat("한", 2000) + `"`, "note", strings.Repeat("한", 2000)},
		{`"note":"line\n<script>alert(1)</script>"`, "note", "line\n<script>alert(1)</script>"},
		{`"site_lat":-90,"site_lng":180`, "site_lat", -90.0},
		{`"work_starts_at":"9999-12-30T23:59:59Z","work_ends_at":"9999-12-31T23:59:59Z"`, "work_ends_at", "9999-12-31T23:59:59.000Z"},
		{`"work_starts_at":"1969-12-31T23:59:59Z"`, "work_starts_at", "1969-12-31T23:59:59.000Z"},
		{`"opens_at":"2026-01-01T09:00:00.123456789+09:00","expires_at":"` + inFuture(time.Hour) + `"`, "opens_at", "2026-01-01T00:00:00.123Z"},
	} {
		made := w.call("POST", "/v1/admin/dispatches", key, order(1, c.field)).want(201, c.member, c.want)
		w.call("GET", made.header.Get("Location"), key, "").want(200, c.member, c.want)
	}
	largest := strings.Replace(order(1), "350000", "9007199254740991", 1)
	huge := w.call("POST", "/v1/admin/dispatches", key, largest)
	if huge.status != 201 || !strings.Contains(w.call("GET", huge.header.Get("Location"), key, "").raw, `"amount":9007199254740991`) {
		t.Errorf("the largest amount: %s", huge.raw)
	}
	for _, amount := range []string{"9007199254740992", fmt.Sprint(int64(math.MaxInt64))} { // which browsers round
		over := strings.Replace(largest, "9007199254740991", amount, 1)
		for what, r := range map[string]reply{
			"made": w.call("POST", "/v1/admin/dispatches", key, over), "counted": w.call("POST", "/v1/admin/dispatches/preview", key, over),
			"changed": w.call("PATCH", huge.header.Get("Location"), key, `{"fee":{"amount":`+amount+`,"currency":"KRW"}}`, "If-Match", `"1"`),
		} {
			w.refused(what, r, 422, "VALIDATION_FAILED")
			if !strings.Contains(r.raw, `{"field":"fee.amount","message":"must be at most 9007199254740991"}`) {
				t.Errorf("%s: %s", what, r.raw)
			}
		}
	}
	w.noErrorLogged()
}

// TestBodyLimitIsExact: 64 KiB are accepted, one byte more is not, wherever it is.
func TestBodyLimitIsExact(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	fill := func(n int) string { return `{"round":2}` + strings.Repeat(" ", n-len(`{"round":2}`)) }
	w.refused("4 KiB", w.accept(id, d, fill(maxSmallBody)), 409, "OFFER_STALE")
	w.refused("4 KiB and a byte", w.accept(id, d, fill(maxSmallBody+1)), 413, "BODY_TOO_LARGE")
	w.refused("an Idempotency-Key", w.call("POST", "/v1/admin/dispatches", key, strings.Repeat(" ", maxBody)+`{}`, "Idempotency-Key", "k"), 413, "BODY_TOO_LARGE")
	w.refused("much more, in front", w.accept(id, d, strings.Repeat(" ", 10<<20)+`{}`), 413, "BODY_TOO_LARGE")
	w.refused("a dispatch", w.call("POST", "/v1/admin/dispatches", key, order(1, `"note":"`+strings.Repeat("x", maxBody)+`"`)), 413, "BODY_TOO_LARGE")
	w.refused("drivers", w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+strings.Repeat(" ", maxBulkBody)), 413, "BODY_TOO_LARGE")
	w.untouched(id)
}

// TestLists: filters, pages that neither repeat nor leave out, cursors of one's own making.
func TestLists(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	state := map[string]string{
		"PENDING": w.dispatch(1), "SCHEDULED": w.dispatch(2, `"opens_at":"`+inFuture(time.Hour)+`"`), "CANCELED": w.dispatch(3),
		"ACCEPTED": w.dispatch(4), "IN_PROGRESS": w.dispatch(6), "COMPLETED": w.dispatch(8), "EXPIRED": w.dispatch(10, `"region":"jeju"`),
	}
	w.call("POST", "/v1/admin/dispatches/"+state["CANCELED"]+"/cancel", key, "", "If-Match", `"1"`)
	for _, s := range []string{"ACCEPTED", "IN_PROGRESS", "COMPLETED"} {
		w.accept(state[s], d, "")
	}
	w.on(state["IN_PROGRESS"], "start", d)
	w.on(state["COMPLETED"], "start", d)
	w.on(state["COMPLETED"], "complete", d)
	w.expire(state["EXPIRED"], time.Hour, time.Minute)
	for s, id := range state {
		r := w.call("GET", "/v1/admin/dispatches?status="+s, key, "").want(200, "next_cursor", nil)
		wantMembers(t, s, r.item(), "id", id, "status", s)
		r.time("server_time")
	}
	for query, want := range map[string]int{
		"": 7, "region=jeju": 1, "region=JEJU": 0, "q=" + state["PENDING"]: 1, "q=강남": 7, "q=%25": 0, "q=_": 0, "q='": 0, "q=" + state["PENDING"][4:20]: 1,
		"status=PENDING&region=jeju": 0, "q=" + strings.Repeat("x", 5000): 0,
	} {
		w.call("GET", "/v1/admin/dispatches?"+query, key, "").want(200).wantItems(want)
	}
	w.pagesOf("/v1/admin/dispatches?limit=3", 3, len(state))
	w.call("GET", "/v1/me/dispatches", d.token, "").want(200).wantItems(3)
	for _, q := range []string{
		"limit=-1", "limit=0", "limit=201", "limit=x", "limit=1e2", "limit=%2b1x", "limit=99999999999999999999", "status=OPEN", "status=pending",
		"status=%00", "cursor=x", "cursor=%00", "cursor=%ff", "cursor=AAAAAAAAAAAAAA", "cursor=" + strings.Repeat("A", 5000),
	} {
		w.ours(q, w.call("GET", "/v1/admin/dispatches?"+q, key, ""))
		w.ours(q, w.call("GET", "/v1/me/dispatches?"+q, d.token, ""))
	}
}

// TestErrorTable checks the answers to errors that no other test here causes.
func TestErrorTable(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{claimError{dispatch.ErrUnknown}, 503, "CLAIM_UNAVAILABLE"},
		{claimError{dispatch.ErrUnavailable}, 503, "CLAIM_UNAVAILABLE"},
		{claimError{errors.Join(dispatch.ErrUnknown, errors.New("the table is full"))}, 503, "CLAIM_UNAVAILABLE"},
		{dispatch.ErrUnknown, 503, "UNAVAILABLE"},
		{claimError{&dispatch.TakenError{}}, 409, "ALREADY_TAKEN"},
		{claimError{dispatch.ErrNotFound}, 404, "DISPATCH_NOT_FOUND"},
		{errors.New("a table is missing at 10.0.0.1"), 500, "INTERNAL"},
	} {
		w := newWorld(t)
		h := &handler{API: API{Log: slog.New(slog.DiscardHandler)}}
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/x", nil)
		ctx := echo.New().NewContext(req, rec)
		ctx.Response().Header().Set("X-Request-Id", "r")
		h.answerError(c.err, ctx)
		r := replyTo(t, req, "", rec)
		w.refused(c.err.Error(), r, c.status, c.code)
		if (r.status == 503) != (r.header.Get("Retry-After") != "") {
			t.Errorf("%v: Retry-After %q", c.err, r.header.Get("Retry-After"))
		}
		if strings.Contains(r.raw, "table") {
			t.Errorf("the answer to a user contains details for operators: %s", r.raw)
		}
		if taken := new(dispatch.TakenError); errors.As(c.err, &taken) && r.at("final") != false {
			t.Errorf("not final: %s", r.raw)
		}
	}
}

package handler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

func TestAcceptWinsAndReplays(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1)
	first := w.accept(id, d[0], `{"round":1}`)
	first.want(200, "result", "SUCCESS", "replayed", false, "dispatch.status", "ACCEPTED", "claim.round", 1.0)
	if first.time("claim", "accepted_at"); !strings.HasPrefix(first.text("claim", "id"), "clm_") {
		t.Error(first.raw)
	}
	first.wantHeader("Content-Type", "application/json").want(200, "dispatch.accepted_at", first.at("claim", "accepted_at"))
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
	if time.Until(early.time("opens_at")) < 59*time.Minute {
		t.Errorf("opens_at: %s", early.raw)
	}

	canceled := w.dispatch(3)
	w.change("POST", canceled, "/cancel", 1, `{"reason_code":"WEATHER"}`).want(200, "status", "CANCELED").wantHeader("ETag", `"2"`)
	w.refused("canceled twice", w.change("POST", canceled, "/cancel", 2, ""), 409, "INVALID_STATE")
	w.refused("canceled", w.accept(canceled, d[0], ""), 410, "DISPATCH_CANCELED")
	expired := w.expired(8)
	w.refused("expired", w.accept(expired, d[0], `{"round":1}`), 410, "DISPATCH_EXPIRED")
	w.refused("canceled too late", w.change("POST", expired, "/cancel", 1, ""), 409, "INVALID_STATE")
	w.receipt(expired, d[0]).want(200, "outcome", "EXPIRED")

	unfit := w.accept(w.dispatch(4, `"region":"jeju","vehicle_class":"28m","min_working_height_m":46`), d[0], "")
	w.refused("not eligible", unfit, 403, "NOT_ELIGIBLE")
	unfit.want(403, "reasons", []any{"REGION", "VEHICLE_CLASS", "WORKING_HEIGHT"})
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
	d, id := w.drivers(2), w.dispatch(1)
	w.receipt(id, d[0]).want(200, "outcome", "PENDING")
	w.on(id, "accept", d[0]).want(200)
	w.refused("a round that is to be", w.withdraw(id, d[0], 2), 409, "OFFER_STALE")
	for round := range 2 {
		w.withdraw(id, d[0], round).want(200, "status", "PENDING", "round", 2.0)
	}
	w.on(id, "accept", d[1]).want(200)
	for _, step := range []struct{ action, status string }{{"start", "IN_PROGRESS"}, {"complete", "COMPLETED"}} {
		for _, body := range []string{"", " null\n", `{"round":2}`} {
			w.call("POST", "/v1/dispatches/"+id+"/"+step.action, d[1].token, body).want(200, "status", step.status)
		}
		w.refused("a driver who has withdrawn", w.on(id, step.action, d[0]), 403, "FORBIDDEN")
	}
	w.receipt(id, d[0]).want(200, "outcome", "WITHDRAWN")
	w.receipt(id, d[1]).want(200, "outcome", "WON")
	w.call("GET", "/v1/me/dispatches?status=COMPLETED", d[1].token, "").want(200).wantItems(1)
}

func (w *world) withdraw(id string, d caller, round int) reply {
	body := "{}"
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d,"reason_code":"BREAKDOWN"}`, round)
	}
	return w.call("POST", "/v1/dispatches/"+id+"/withdraw", d.token, body)
}

// Accepting and giving back in turn comes to an end, and the answer says when it may go on.
func TestWithdrawnTooOften(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	for round := 1; round <= 2; round++ {
		w.accept(id, d, fmt.Sprintf(`{"round":%d}`, round))
		w.withdraw(id, d, round).want(200)
	}
	w.accept(id, d, `{"round":3}`)
	r := w.refused("the third of one dispatch", w.withdraw(id, d, 3), 429, "RATE_LIMITED")
	if wait, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || wait < 3000 || wait > 3600 || !strings.Contains(r.text("detail"), "call the office") {
		t.Errorf("Retry-After %q: %s", r.header.Get("Retry-After"), r.raw)
	}
	w.call("GET", "/v1/dispatches/"+id, d.token, "").want(200, "status", "ACCEPTED", "round", 3.0)
}

// A body without a length, and a long one. TestHangUpsWithinTheBody has one that ends before its length.
func TestAcceptBodies(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	id := w.dispatch(1)
	send := func(length int64, body string) reply {
		req := request(context.Background(), http.MethodPost, "/v1/dispatches/"+id+"/accept", d.token, body)
		req.ContentLength = length
		return w.serve(req, body)
	}
	w.refused("a stale round without a length", send(-1, `{"round":2}`), 409, "OFFER_STALE")
	w.refused("a long body", send(int64(len(`{"round":2}`)+100), `{"round":2}`+strings.Repeat(" ", 100)), 409, "OFFER_STALE")
	send(-1, `{"round":1}`).want(200)
}

// The prepared answers are what any other error is answered with.
func TestTakenAnswers(t *testing.T) {
	h := &handler{taken: newTakenAnswers()}
	for _, final := range []bool{true, false} {
		err := &dispatch.TakenError{Final: final}
		got, want := httptest.NewRecorder(), httptest.NewRecorder()
		on := func(rec *httptest.ResponseRecorder) echo.Context {
			return echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/v1/dispatches/dsp_1/accept", nil), rec)
		}
		noError(t, h.taken.answer(on(got), err))
		h.answerError(claimError{err}, on(want))
		if got.Code != want.Code || got.Body.String() != want.Body.String() || !reflect.DeepEqual(got.Header(), want.Header()) {
			t.Errorf("%d %v %s, want %d %v %s", got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
		}
	}
}

// blank is a http.ResponseWriter that keeps its header and the status.
type blank struct {
	header http.Header
	status int
}

func (b *blank) Header() http.Header         { return b.header }
func (b *blank) Write(p []byte) (int, error) { return len(p), nil }
func (b *blank) WriteHeader(status int)      { b.status = status }

// allocations is how many allocations a handler makes for a tap that loses. It is an average with a fraction: with the race detector a
// sync.Pool forgets one in four of the things that it is given.
func allocations(t *testing.T, api http.Handler, id, token string) float64 {
	t.Helper()
	const round = `{"round":1}`
	body := strings.NewReader("")
	req := request(context.Background(), http.MethodPost, "/v1/dispatches/"+id+"/accept", token, round)
	req.Body = io.NopCloser(body)
	w := &blank{header: http.Header{}}
	const taps = 1000
	return testing.AllocsPerRun(1, func() {
		for range taps {
			body.Reset(round)
			clear(w.header)
			if api.ServeHTTP(w, req); w.status != 409 {
				t.Errorf("the answer is %d", w.status)
			}
		}
	}) / taps
}

// A tap that loses makes seven allocations more than bare Echo: the request's id and its header, the context with the caller, the
// body, the answer, and the reservation of the rate limit.
func TestAllocationsOfALoser(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1)
	w.accept(id, d[0], `{"round":1}`).want(200)
	w.accept(id, d[1], `{"round":1}`).want(409)
	bare := echo.New()
	bare.POST("/v1/dispatches/:id/accept", func(c echo.Context) error { return c.JSONBlob(409, []byte("{}")) })
	const most = 7.5 // they are seven
	if n := allocations(t, w.api, id, d[1].token) - allocations(t, bare, id, d[1].token); n > most {
		t.Errorf("a loser makes %v allocations more than bare Echo, want at most %v", n, most)
	}
}

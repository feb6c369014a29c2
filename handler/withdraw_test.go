package handler

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func (w *world) withdraw(id string, d caller, round int) reply {
	body := "{}"
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d,"reason_code":"BREAKDOWN"}`, round)
	}
	return w.call("POST", "/v1/dispatches/"+id+"/withdraw", d.token, body)
}

// A withdrawal that names its round never ends a claim of a later round.
func TestLateWithdrawal(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1)
	w.accept(id, d[0], `{"round":1}`)
	for range 2 {
		w.withdraw(id, d[0], 1).want(200, "round", 2.0, "status", "PENDING")
	}
	w.accept(id, d[0], `{"round":2}`).want(200)
	// The first one's duplicate arrives now. It is answered, and changes nothing.
	w.withdraw(id, d[0], 1).want(200, "round", 2.0, "status", "ACCEPTED")
	w.refused("a round that is to be", w.withdraw(id, d[0], 3), 409, "OFFER_STALE")
	w.refused("another driver's", w.withdraw(id, d[1], 2), 403, "FORBIDDEN")
	w.refused("no round", w.call("POST", "/v1/dispatches/"+id+"/withdraw", d[0].token, `{"round":0}`), 422, "VALIDATION_FAILED")
	w.withdraw(id, d[0], 2).want(200, "round", 3.0)
	w.accept(id, d[1], `{"round":3}`)
	for _, round := range []int{0, 1, 2} {
		w.withdraw(id, d[0], round).want(200, "round", 3.0)
	}
	w.refused("never theirs", w.withdraw(id, d[0], 3), 403, "FORBIDDEN")
	w.withdraw(id, d[1], 0).want(200, "round", 4.0)
}

// Accepting and giving back in turn comes to an end, and the answer says when it may go on.
func TestWithdrawnTooOften(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(1)[0]
	tooOften := func(what string, r reply) {
		t.Helper()
		w.refused(what, r, 429, "RATE_LIMITED")
		if wait, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || wait < 3000 || wait > 3600 {
			t.Errorf("%s: Retry-After is %q", what, r.header.Get("Retry-After"))
		}
		if detail, _ := r.json["detail"].(string); !strings.Contains(detail, "call the office") {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	id := w.dispatch(1)
	for round := 1; round <= 2; round++ {
		w.accept(id, d, fmt.Sprintf(`{"round":%d}`, round))
		w.withdraw(id, d, round).want(200)
	}
	w.accept(id, d, `{"round":3}`)
	tooOften("the third of one dispatch", w.withdraw(id, d, 3))
	w.withdraw(id, d, 1).want(200)
	w.call("GET", "/v1/dispatches/"+id, d.token, "").want(200, "status", "ACCEPTED", "round", 3.0)
	for i := range 4 {
		id := w.dispatch(10 + 3*i)
		w.accept(id, d, "")
		if r := w.withdraw(id, d, 0); i < 3 && r.status != 200 {
			t.Fatal(r.raw)
		} else if i == 3 {
			tooOften("the sixth of all", r)
		}
	}
	w.on(id, "start", d).want(200)
	w.refused("once it has begun", w.withdraw(id, d, 3), 409, "INVALID_STATE")
	w.call("GET", "/v1/admin/drivers/"+d.id+"/signals", key, "").want(200, "withdrawn_24h", 5.0, "hopeless_taps_24h", 0.0)
}

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
		if r := w.withdraw(id, d[0], 1); r.status != 200 || r.at("round") != 2.0 || r.at("status") != "PENDING" {
			t.Fatalf("%d %s", r.status, r.raw)
		}
	}
	if r := w.accept(id, d[0], `{"round":2}`); r.status != 200 {
		t.Fatal(r.raw)
	}
	// The first one's duplicate arrives now. It is answered, and changes nothing.
	if r := w.withdraw(id, d[0], 1); r.status != 200 || r.at("round") != 2.0 || r.at("status") != "ACCEPTED" {
		t.Errorf("a late duplicate: %d %s", r.status, r.raw)
	}
	w.refused("a round that is to be", w.withdraw(id, d[0], 3), 409, "OFFER_STALE")
	w.refused("another driver's", w.withdraw(id, d[1], 2), 403, "FORBIDDEN")
	w.refused("no round", w.call("POST", "/v1/dispatches/"+id+"/withdraw", d[0].token, `{"round":0}`), 422, "VALIDATION_FAILED")
	if r := w.withdraw(id, d[0], 2); r.status != 200 || r.at("round") != 3.0 {
		t.Errorf("the current round: %d %s", r.status, r.raw)
	}
	w.accept(id, d[1], `{"round":3}`)
	for _, round := range []int{0, 1, 2} {
		if r := w.withdraw(id, d[0], round); r.status != 200 || r.at("round") != 3.0 {
			t.Errorf("repeated, round %d, now taken by another driver: %d %s", round, r.status, r.raw)
		}
	}
	w.refused("never theirs", w.withdraw(id, d[0], 3), 403, "FORBIDDEN")
	if r := w.withdraw(id, d[1], 0); r.status != 200 || r.at("round") != 4.0 {
		t.Errorf("without a round: %d %s", r.status, r.raw)
	}
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
		if r := w.withdraw(id, d, round); r.status != 200 {
			t.Fatal(r.raw)
		}
	}
	w.accept(id, d, `{"round":3}`)
	tooOften("the third of one dispatch", w.withdraw(id, d, 3))
	if r := w.withdraw(id, d, 1); r.status != 200 {
		t.Errorf("a repeated one does not count: %s", r.raw)
	}
	if r := w.call("GET", "/v1/dispatches/"+id, d.token, ""); r.at("status") != "ACCEPTED" || r.at("round") != 3.0 {
		t.Errorf("it stays theirs: %s", r.raw)
	}
	for i := range 4 {
		id := w.dispatch(10 + 3*i)
		w.accept(id, d, "")
		if r := w.withdraw(id, d, 0); i < 3 && r.status != 200 {
			t.Fatal(r.raw)
		} else if i == 3 {
			tooOften("the sixth of all", r)
		}
	}
	if r := w.on(id, "start", d); r.status != 200 {
		t.Errorf("the work can be done: %s", r.raw)
	}
	w.refused("once it has begun", w.withdraw(id, d, 3), 409, "INVALID_STATE")
	if r := w.call("GET", "/v1/admin/drivers/"+d.id+"/signals", key, ""); r.json["withdrawn_24h"] != 5.0 || r.json["hopeless_taps_24h"] != 0.0 {
		t.Errorf("the backoffice sees: %s", r.raw)
	}
}

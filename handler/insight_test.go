package handler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

func TestAttempts(t *testing.T) {
	w := newWorldWithLedger(t)
	d, id := w.drivers(3), w.dispatch(1)
	path := "/v1/dispatches/" + id + "/accept"
	w.call("POST", path, d[0].token, "", "X-App-Version", "2.3.1 (45)")
	for i, version := range []string{strings.Repeat("x", 65), "é", "a\tb", " x"} {
		w.call("POST", path, d[1+i%2].token, `{"round":1}`, "X-App-Version", version)
	}
	w.call("POST", path, d[0].token, "", "X-App-Version", strings.Repeat("x", 64))
	w.receipt(id, d[0]) // the ledger is written
	attempts := "/v1/admin/dispatches/" + id + "/attempts"
	all := items(w.call("GET", attempts, key, "").want(200, "next_cursor", nil).wantItems(3))
	want := []struct {
		driver, result string
		rank           float64
		version        any
	}{
		{d[0].id, "SUCCESS", 1, "2.3.1 (45)"}, {d[1].id, "ALREADY_TAKEN", 2, nil}, {d[2].id, "ALREADY_TAKEN", 3, nil},
	}
	after := -1.0
	for i, a := range all {
		wantMembers(t, "a tap", a, "driver_id", want[i].driver, "result", want[i].result, "rank", want[i].rank, "app_version", want[i].version,
			"instance", "here", "round", 1.0, "count", 2.0)
		us, _ := a["after_us"].(float64)
		reaction, _ := a["reaction_ms"].(float64)
		if us <= after || i == 0 && us != 0 || reaction <= 0 {
			t.Errorf("%d: %v", i, a)
		}
		after = us
	}
	if paged := slices.Concat(w.pages(attempts+"?round=1&limit=2", key)...); fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Errorf("by pages:\n%v\n%v", paged, all)
	}
	w.call("GET", attempts+"?round=2", key, "").want(200).wantItems(0)
	for _, path := range []string{"/attempts", "/offers"} {
		w.refused(path, w.call("GET", "/v1/admin/dispatches/"+id+path+"?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
		w.refused(path, w.call("GET", "/v1/admin/dispatches/"+string(dispatch.NewID(time.Now()))+path, key, ""), 404, "DISPATCH_NOT_FOUND")
	}
}

func TestReactionToAPush(t *testing.T) {
	w := newWorldWithLedger(t)
	id, d, _ := w.told(outbox.Sent, outbox.Pending)
	w.exec("UPDATE dispatches SET opens_at = opens_at - 60000000")
	w.exec("UPDATE events SET at = at - 60000000")
	w.exec("UPDATE notifications SET sent_at = sent_at - 30000000 WHERE state = 1")
	reaction := func(v caller) (ms float64) {
		w.accept(id, v, "")
		w.receipt(id, v)
		for _, a := range items(w.call("GET", "/v1/admin/dispatches/"+id+"/attempts", key, "")) {
			if a["driver_id"] == v.id {
				ms, _ = a["reaction_ms"].(float64)
			}
		}
		return ms
	}
	if ms := reaction(d[0]); ms < 30_000 || ms > 50_000 {
		t.Errorf("%v ms after the push", ms)
	}
	if ms := reaction(d[1]); ms < 60_000 || ms > 80_000 {
		t.Errorf("%v ms after the opening", ms)
	}
	if r := w.call("GET", "/v1/admin/drivers/"+d[0].id+"/signals", key, ""); r.json["fastest_reaction_ms"].(float64) > 50_000 {
		t.Errorf("%s", r.raw)
	}
}

func TestSignals(t *testing.T) {
	w := newWorldWithLedger(t)
	d := w.drivers(1)[0]
	path := "/v1/admin/drivers/" + d.id + "/signals"
	w.call("GET", path, key, "").want(200, "withdraw_rate", nil, "fastest_reaction_ms", nil, "median_reaction_ms", nil)
	for i := range 3 {
		id := w.dispatch(3 * (i + 1))
		w.accept(id, d, "")
		if i == 0 {
			w.on(id, "withdraw", d)
		}
		w.receipt(id, d)
		// The first tap comes 0.1, 1.1 and 2.1 s after the opening.
		const opened = " = (SELECT MIN(at) FROM taps WHERE dispatch_id = ?) - ? WHERE "
		w.exec("UPDATE dispatches SET opens_at"+opened+"id = ?", id, i*1_000_000+100_000, id)
		w.exec("UPDATE events SET at"+opened+"round = 1 AND type IN ('dispatch.created', 'dispatch.opened') AND dispatch_id = ?", id, i*1_000_000+100_000, id)
	}
	w.call("GET", path, key, "").want(200, "taps", 3.0, "wins", 3.0, "withdrawn", 1.0, "withdraw_rate", 1.0/3, "under_300_ms", 1.0,
		"fastest_reaction_ms", 100.0, "median_reaction_ms", 1100.0)
	w.call("PUT", "/v1/me/duty", d.token, `{"on_duty":false}`)
	id := w.dispatch(20)
	w.refused("off duty", w.accept(id, d, ""), 403, "NOT_ELIGIBLE")
	w.receipt(id, d)
	w.call("GET", path, key, "").want(200, "taps", 4.0, "withdrawn_24h", 1.0, "hopeless_taps_24h", 1.0)
	w.refused("an unknown driver", w.call("GET", "/v1/admin/drivers/"+string(dispatch.NewDriverID(time.Now()))+"/signals", key, ""), 404, "DRIVER_NOT_FOUND")
}

// New terms are a new offer: reaction times count from the change of the terms. A longer window is no
// new offer.
func TestNewTermsCountFromTheirOwnTime(t *testing.T) {
	w := newWorldWithLedger(t)
	d, id := w.drivers(1)[0], w.dispatch(1)
	w.exec("UPDATE dispatches SET opens_at = opens_at - 300000000, updated_at = updated_at - 300000000")
	w.exec("UPDATE events SET at = at - 300000000")
	w.change("POST", id, "/extend", 1, `{"expires_at":"`+inFuture(time.Hour)+`"}`).want(200)
	w.change("PATCH", id, "", 2, `{"note":"bring a helmet"}`).want(200, "round", 2.0)
	w.accept(id, d, `{"round":2}`)
	w.receipt(id, d)
	taps := items(w.call("GET", "/v1/admin/dispatches/"+id+"/attempts", key, ""))
	if ms, _ := taps[0]["reaction_ms"].(float64); ms <= 0 || ms > 20_000 {
		t.Errorf("%v ms after the new terms", ms)
	}
	w.call("GET", "/v1/admin/drivers/"+d.id+"/signals", key, "").want(200, "fastest_reaction_ms", taps[0]["reaction_ms"])
}

func TestBoardAndSupply(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	open, taken := w.dispatch(1), w.dispatch(3)
	w.dispatch(99, `"region":"busan"`)
	w.accept(taken, d[0], "")
	w.exec("UPDATE dispatches SET opens_at = opens_at - 61000000 WHERE id = ?", open)
	w.exec("UPDATE events SET at = at - 61000000 WHERE dispatch_id = ?", open)
	r := w.call("GET", "/v1/admin/board", key, "").want(200, "counts.PENDING", 2.0, "counts.ACCEPTED", 1.0, "counts.EXPIRED", 0.0,
		"unseen", 1.0, "unseen_ids", []any{open})
	const regions = "[map[on_duty:0 open:1 region:busan] map[on_duty:2 open:0 region:incheon] map[on_duty:2 open:1 region:seoul]]"
	if r.text("regions") != regions || r.time("since").After(r.time("server_time")) {
		t.Error(r.raw)
	}
	w.call("GET", "/v1/admin/board?region=busan", key, "").want(200, "counts.PENDING", 1.0, "unseen_ids", []any{})

	now := time.Now()
	for _, ago := range []time.Duration{200, 30, 23, 1} {
		for region, n := range map[string]int{"": 3, "busan": 1, "seoul": 2} {
			w.exec("INSERT INTO supply (at, region, on_duty, open) VALUES (?, ?, ?, ?)", now.Add(-ago*time.Hour).UnixMicro(), region, n, int(ago))
		}
	}
	for query, want := range map[string]string{
		"":                        "<nil> 3 23,busan 1 23,seoul 2 23,<nil> 3 1,busan 1 1,seoul 2 1",
		"?region=seoul&hours=1":   "",
		"?region=busan&hours=168": "busan 1 30,busan 1 23,busan 1 1",
	} {
		var got []string
		for _, s := range items(w.call("GET", "/v1/admin/supply"+query, key, "")) {
			got = append(got, fmt.Sprintf("%v %v %v", s["region"], s["on_duty"], s["open"]))
		}
		if s := strings.Join(got, ","); s != want {
			t.Errorf("%s: %s, want %s", query, s, want)
		}
	}
	for _, path := range []string{"supply?region=%00", "supply?region=%ff", "board?region=%ff", "dispatches?region=%ff"} {
		w.refused(path, w.call("GET", "/v1/admin/"+path, key, ""), 422, "VALIDATION_FAILED")
	}
}

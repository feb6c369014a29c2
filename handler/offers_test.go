package handler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/service"
)

// newWorldWithLedger is a world where every tap is written down, by an instance named here.
func newWorldWithLedger(t testing.TB) *world {
	t.Helper()
	var ledger *service.AttemptWriter
	w := newWorld(t, func(a *API) {
		store := storeOf(a)
		ledger = service.NewAttemptWriter(store.Offers, "here", a.Log)
		a.useStore(store, ledger)
		testkit.Run(t, ledger.Run)
	})
	w.ledger = ledger
	return w
}

func (w *world) offers(d caller, headers ...string) reply {
	return w.call("GET", "/v1/me/offers", d.token, "", headers...)
}

func (w *world) decline(id string, d caller, body string) reply {
	return w.call("POST", "/v1/dispatches/"+id+"/decline", d.token, body)
}

// stands is where the driver's offer of the dispatch stands, in the list and by itself.
func (w *world) stands(id string, d caller, want string) {
	w.t.Helper()
	w.call("GET", "/v1/dispatches/"+id, d.token, "").want(200, "offer_status", want)
	for _, o := range items(w.offers(d)) {
		if o["id"] == id && o["offer_status"] != want {
			w.t.Errorf("in the list: %v, want %s", o["offer_status"], want)
		}
	}
}

func TestDecline(t *testing.T) {
	w := newWorld(t)
	d, id := w.drivers(2), w.dispatch(1)
	for _, body := range []string{`{"reason_code":"TOO_FAR","round":1}`, "", `{"reason_code":"OTHER"}`} {
		w.decline(id, d[0], body).want(204)
	}
	w.untouched(id)
	declined := w.call("GET", "/v1/admin/dispatches/"+id+"/offers", key, "").item()
	wantMembers(t, "the offer", declined, "driver_id", d[0].id, "decline_reason", "TOO_FAR", "offer_status", "DECLINED", "round", 1.0, "seen_at", nil)
	w.receipt(id, d[0]).want(200, "outcome", "DECLINED").time("decided_at")
	w.refused("a round to come", w.decline(id, d[1], `{"round":2}`), 409, "OFFER_STALE")
	w.refused("no round", w.decline(id, d[1], `{"round":0}`), 422, "VALIDATION_FAILED").hasField("round")
	w.refused("no such", w.decline(string(dispatch.NewID(time.Now())), d[1], ""), 404, "DISPATCH_NOT_FOUND")
	w.accept(id, d[0], `{"round":1}`).want(200) // a driver may decline and then accept
	w.refused("mine", w.decline(id, d[0], ""), 409, "INVALID_STATE")
}

func TestWhereOffersStand(t *testing.T) {
	w := newWorld(t)
	id, d, _ := w.told(outbox.Sent, outbox.Pending)
	sent, waiting := d[0], d[1]
	w.stands(id, sent, "SENT")
	w.stands(id, waiting, "PENDING")
	w.accept(id, waiting, "").want(200)
	w.stands(id, sent, "TAKEN")
	wantMembers(t, "the job", w.call("GET", "/v1/me/dispatches", waiting.token, "").item(), "offer_status", "ACCEPTED")
	w.on(id, "withdraw", waiting).want(200)
	w.on(id, "seen", waiting)
	first, second := "waiting 1 WITHDRAWN", "sent 1 TAKEN"
	if sent.id < waiting.id {
		first, second = second, first
	}
	for query, want := range map[string][]string{"limit=1": {first, second, "waiting 2 SEEN"}, "round=2": {"waiting 2 SEEN"}, "round=3": nil} {
		var got []string
		for _, o := range slices.Concat(w.pages("/v1/admin/dispatches/"+id+"/offers?"+query, key)...) {
			name := map[any]string{sent.id: "sent", waiting.id: "waiting"}[o["driver_id"]]
			got = append(got, fmt.Sprintf("%s %v %v", name, o["round"], o["offer_status"]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// The ETag of the offers changes with their content only.
func TestOffersETag(t *testing.T) {
	w := newWorld(t)
	d := w.drivers(2)
	id := w.dispatch(1, `"opens_at":"`+inFuture(time.Hour)+`","expires_at":"`+inFuture(2*time.Hour)+`"`)
	last := w.offers(d[0])
	etag := last.header.Get("ETag")
	if last.status != 200 || !strings.HasPrefix(etag, `W/"`) || last.header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("%d %v", last.status, last.header)
	}
	strong := strings.TrimPrefix(etag, "W/")
	for _, header := range []string{etag, strong, "*", `"x", ` + etag, `"x",W/"y",` + strong, " " + etag + " "} {
		w.offers(d[0], "If-None-Match", header).want(304).wantHeader("ETag", etag).wantHeader("Content-Type", "").wantBody("")
	}
	for _, header := range []string{`"x"`, strings.ToUpper(etag), etag[:len(etag)-2] + `"`, "", "x"} {
		w.offers(d[0], "If-None-Match", header).want(200)
	}
	w.offers(d[1], "If-None-Match", etag).want(200)
	moved := func(what string, do func()) {
		t.Helper()
		do()
		r := w.offers(d[0], "If-None-Match", etag)
		if next := r.header.Get("ETag"); r.status != 200 || next == etag {
			t.Errorf("%s: %d, ETag %s as before", what, r.status, next)
		}
		etag = r.header.Get("ETag")
		w.offers(d[0], "If-None-Match", etag).want(304)
	}
	moved("it opens", func() { w.exec("UPDATE dispatches SET opens_at = 1") })
	moved("it is seen", func() { w.on(id, "seen", d[0]) })
	moved("it is declined", func() { w.decline(id, d[0], "") })
	moved("off duty", func() { w.call("PUT", "/v1/me/duty", d[0].token, `{"on_duty":false}`) })
	moved("on duty", func() { w.call("PUT", "/v1/me/duty", d[0].token, `{"on_duty":true}`) })
	moved("another", func() { w.dispatch(3) })
	moved("taken", func() { w.accept(id, d[1], "") })
	w.on(id, "seen", d[1])
	w.offers(d[0], "If-None-Match", etag).want(304)
}

func TestReceipts(t *testing.T) {
	w := newWorldWithLedger(t)
	d, id := w.drivers(2), w.dispatch(1)
	w.receipt(id, d[0]).want(200, "outcome", "PENDING", "rank", nil, "behind_ms", nil, "decided_at", nil)
	for _, v := range d {
		w.accept(id, v, `{"round":1}`)
	}
	w.receipt(id, d[0]).want(200, "outcome", "WON", "rank", 1.0, "behind_ms", 0.0).time("decided_at")
	r := w.receipt(id, d[1]).want(200, "outcome", "LOST", "rank", 2.0, "round", 1.0)
	if ms, _ := r.at("behind_ms").(float64); ms <= 0 {
		t.Error(r.raw)
	}
}

// A ledger that does not answer leaves it open whether there was a tap.
func TestReceiptWithoutTheLedger(t *testing.T) {
	w := newWorld(t, func(a *API) {
		store := storeOf(a)
		a.useStore(store, service.NewAttemptWriter(store.Offers, "here", a.Log)) // which does not run
	})
	d, id := w.drivers(2), w.dispatch(1)
	w.accept(id, d[0], "")
	w.exec("UPDATE dispatches SET accepted_at = accepted_at - 2000000")
	w.receipt(id, d[1]).want(200, "outcome", "PENDING")
}

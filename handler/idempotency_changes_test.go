package handler

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch/idempotency"
	"firsttap/internal/auth"
	"firsttap/repository/database"
)

// TestAChangeAfterADeath: a change that is repeated, after an instance died between its commit and its answer, gets the answer of
// the first attempt, and no 412.
func TestAChangeAfterADeath(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		d, id := w.drivers(1)[0], w.dispatch(1)
		change := func(id, action, body string) {
			t.Helper()
			version := w.read(id).header.Get("ETag")
			send := func() reply {
				return w.call("POST", "/v1/admin/dispatches/"+id+"/"+action, key, body, "Idempotency-Key", action, "If-Match", version)
			}
			first := send()
			p.dies()
			first.want(200)
			send().want(200).wantBody(first.raw)
			send().want(200).wantBody(first.raw).wantHeader("Idempotent-Replayed", "true")
		}
		change(id, "extend", `{"expires_at":"`+inFuture(time.Hour)+`"}`)
		change(id, "assign", `{"driver_id":"`+d.id+`"}`)
		change(id, "unassign", `{"reason_code":"X"}`)
		change(id, "cancel", `{"reason_code":"X"}`)
		w.lives(id, "dispatch.created", "dispatch.updated", "dispatch.accepted", "dispatch.unassigned", "dispatch.reopened", "dispatch.canceled")
	})
}

// TestAFreshVersionUnderTheSameKey: a request that was refused for its If-Match and is repeated with the current version is
// processed, and its answer is stored.
func TestAFreshVersionUnderTheSameKey(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		path, body := "/v1/admin/dispatches/"+w.dispatch(1)+"/extend", `{"expires_at":"`+inFuture(time.Hour)+`"}`
		send := func(version ...string) reply {
			return w.call("POST", path, key, body, append([]string{"Idempotency-Key", "k"}, version...)...)
		}
		w.refused("without a version", send(), 428, "PRECONDITION_REQUIRED")
		w.refused("an old version", send("If-Match", `"7"`), 412, "VERSION_MOVED")
		w.refused("still the old version", send("If-Match", `"7"`), 412, "VERSION_MOVED")
		first := send("If-Match", `"1"`)
		first.want(200).wantHeader("Idempotent-Replayed", "")
		w.same("again", first, send("If-Match", `"1"`))
		w.same("again, with another version", first, send("If-Match", `"2"`))
	})
}

// lives checks that the dispatch has these events, each once and in this order.
func (w *world) lives(id string, want ...string) {
	w.t.Helper()
	var events []string
	for _, e := range items(w.call("GET", "/v1/admin/dispatches/"+id+"/events", key, "")) {
		events = append(events, fmt.Sprint(e["type"]))
	}
	if !slices.Equal(events, want) {
		w.t.Errorf("%v, want %v", events, want)
	}
}

// TestAnswerIsStoredAfterADisconnect: the answer stays stored if the client disconnects before a replay's COMMIT.
func TestAnswerIsStoredAfterADisconnect(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	armed := false
	w := newWorld(t)
	w.observe(func(c context.Context, s database.Statement) (context.Context, func(error)) {
		if armed && s.Operation == "commit" {
			armed = false
			hangUp()
		}
		return c, func(error) {}
	})
	path, body := "/v1/admin/dispatches/"+w.dispatch(1)+"/extend", `{"expires_at":"`+inFuture(time.Hour)+`"}`
	headers := []string{"Idempotency-Key", "k", "If-Match", `"1"`}
	first := w.call("POST", path, key, body, headers...).want(200)
	armed = true
	w.api.ServeHTTP(httptest.NewRecorder(), request(ctx, "POST", path, key, body, headers...))
	if armed {
		t.Fatal("the client did not disconnect")
	}
	w.same("after the disconnect", first, w.call("POST", path, key, body, headers...))
}

// TestAnswersAreSealed: the database has neither tokens nor keys in plain text, and no other secret decrypts an answer.
func TestAnswersAreSealed(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		made := w.post("/v1/admin/api-keys", `{"name":"ci","role":"viewer"}`, "the-name-of-the-request")
		secret := fmt.Sprint(made.at("key"))
		var caller, name, fingerprint, seed, leased, sealed string
		err := p.raw.QueryRowContext(t.Context(), "SELECT caller, name, fingerprint, seed, leased, answer FROM idempotency_keys").
			Scan(&caller, &name, &fingerprint, &seed, &leased, &sealed)
		noError(t, err)
		for _, plain := range []string{secret, "ci", "viewer", "the-name", key} {
			if all := strings.Join([]string{caller, name, fingerprint, seed, leased, sealed}, " "); strings.Contains(all, plain) && len(plain) > 3 {
				t.Errorf("%s can be read: %q", plain, all)
			}
		}
		once := idempotency.Request{Caller: caller, Name: name, Fingerprint: fingerprint}
		if a, err := newAnswerSeal(key, "the-name-of-the-request", once).open([]byte(sealed)); err != nil || !strings.Contains(string(a.Body), secret) {
			t.Errorf("its caller can't: %v", err)
		}
		other := once
		other.Fingerprint = strings.Repeat("0", 64)
		for what, s := range map[string]*answerSeal{
			"another secret":  newAnswerSeal("another", "the-name-of-the-request", once),
			"another name":    newAnswerSeal(key, "the-name", once),
			"another request": newAnswerSeal(key, "the-name-of-the-request", other),
		} {
			if _, err := s.open([]byte(sealed)); err == nil {
				t.Errorf("%s opens it", what)
			}
		}
		// The first key is replaced: its answers can't be decrypted any more, and nothing is created again.
		noError(t, w.store.Keys.EnsureKey(t.Context(), auth.FirstKey("replaced")))
		for range 2 {
			r := w.call("POST", "/v1/admin/api-keys", "replaced", `{"name":"ci","role":"viewer"}`, "Idempotency-Key", "the-name-of-the-request")
			w.refused("with the next key", r, 422, "IDEMPOTENCY_KEY_REUSED")
			p.dies()
		}
		if n := p.count("api_keys"); n != 3 { // the first, the one that replaced it, and the new one
			t.Errorf("%d keys", n)
		}
	})
}

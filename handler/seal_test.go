package handler

import (
	"fmt"
	"strings"
	"testing"

	"firsttap/idempotency"
	"firsttap/service"
)

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
		noError(t, service.NewKeys(w.store).StoreFirst(t.Context(), "replaced"))
		r := w.call("POST", "/v1/admin/api-keys", "replaced", `{"name":"ci","role":"viewer"}`, "Idempotency-Key", "the-name-of-the-request")
		w.refused("replaced", r, 422, "IDEMPOTENCY_KEY_REUSED")
		p.dies()
		r = w.call("POST", "/v1/admin/api-keys", "replaced", `{"name":"ci","role":"viewer"}`, "Idempotency-Key", "the-name-of-the-request")
		w.refused("replaced, and died", r, 422, "IDEMPOTENCY_KEY_REUSED")
		if n := p.count("api_keys"); n != 2 {
			t.Errorf("%d keys", n)
		}
	})
}

package firebase

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// FuzzForgedTokens: no text but one that Google has signed is anybody's token, and none is a panic.
func FuzzForgedTokens(f *testing.F) {
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"one":` + quoted(signers()[0].certificate) + `}`))
	}))
	f.Cleanup(keys.Close)
	c := &clock{t: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	ids, err := New(f.Context(), Options{Project: project, KeysURL: keys.URL, Now: c.now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(ids.Close)
	p := &place{IDTokens: ids, clock: c}
	claims := p.claims("kim")
	good := sign(f, signers()[0], "one", claims)
	if uid, _, err := ids.UID(f.Context(), good); err != nil || uid != "kim" {
		f.Fatalf("the good one: %q, %v", uid, err)
	}
	f.Add(good + ".")
	f.Add(sign(f, signers()[1], "one", claims))
	f.Add(part(map[string]any{"alg": "none", "kid": "one"}) + "." + part(claims) + ".")
	f.Add(hmacked(map[string]any{"alg": "RS256", "kid": "one"}, claims, []byte(signers()[0].certificate)))
	f.Fuzz(func(t *testing.T, token string) {
		if uid, _, err := ids.UID(t.Context(), token); token != good && (err == nil || uid != "") {
			t.Errorf("%q is taken for %q", token, uid)
		}
	})
}

package firebase

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestGoodToken(t *testing.T) {
	p := newPlace(t, false)
	token := p.token("kim")
	for range 3 {
		p.is("a good token", token, "kim")
	}
	testkit.Equal(t, "requests for keys", 1, p.google.times("/keys"))
	testkit.Equal(t, "lookups without credentials", 0, p.google.times(lookups))
	testkit.Equal(t, "lines about missing credentials in the log", 1, strings.Count(p.log.String(), "no credentials for Firebase Auth"))
	p.clock.pass(time.Hour + leeway)
	p.fails("a token that has ended, though it was good", token, ErrRefused)
}

// TestSignedIn: the time of the sign-in is not that of the token's issue.
func TestSignedIn(t *testing.T) {
	p := newPlace(t, false)
	claims, at := p.claims("kim"), p.clock.now().Add(-time.Hour)
	claims["auth_time"] = at.Unix()
	token := sign(t, signers()[0], "one", claims)
	for range 2 { // computed, and from the cache
		if uid, signedIn, err := p.UID(t.Context(), token); err != nil || uid != "kim" || !signedIn.Equal(at) {
			t.Errorf("%s signed in at %s, %v, want %s", uid, signedIn, err, at)
		}
	}
}

// TestRotation: a new key is fetched when a token names it, and tokens of a removed key are refused.
func TestRotation(t *testing.T) {
	p := newPlace(t, false)
	p.is("the first key", p.token("kim"), "kim")
	p.google.set(func() { p.google.keys["two"] = signers()[1].certificate })
	late := sign(t, signers()[1], "two", p.claims("lee"))
	p.fails("a key that was asked for a moment ago", late, ErrRefused)
	p.clock.pass(refetchPause)
	p.is("the new key", late, "lee")
	p.is("the old key, still there", p.token("kim"), "kim")
	p.google.set(func() { delete(p.google.keys, "one") })
	p.clock.pass(time.Hour)
	p.is("a stale key, renewed behind the request", p.token("park"), "park")
	p.settled()
	p.clock.pass(refetchPause)
	p.fails("a key that is gone", p.token("choi"), ErrRefused)
	testkit.Equal(t, "counted fetches", p.google.times("/keys"), p.counted(p.counts.keys, "ok"))
}

// TestGoogleIsDown: tokens of known keys are accepted, others get ErrUnavailable, and requests to Google are limited.
func TestGoogleIsDown(t *testing.T) {
	p := newPlace(t, false)
	p.is("before", p.token("kim"), "kim")
	p.google.set(func() { p.google.down = true })
	p.clock.pass(30 * time.Hour)
	for range 5 {
		p.is("by a stale key", p.token("lee"), "lee")
		p.settled()
	}
	p.fails("by an unknown key", sign(t, signers()[1], "two", p.claims("kim")), dispatch.ErrUnavailable)
	p.fails("forged by the name of a stale key", sign(t, signers()[1], "one", p.claims("kim")), ErrRefused)
	testkit.Equal(t, "requests for keys", 2, p.google.times("/keys"))
	testkit.Equal(t, "lines about the failure in the log", 1, strings.Count(p.log.String(), "not fetched"))
	p.clock.pass(retryPause)
	p.is("and again", p.token("park"), "park")
	p.settled()
	p.google.set(func() { p.google.down = false; p.google.keys["two"] = signers()[1].certificate })
	p.clock.pass(retryPause)
	p.is("Google is back", sign(t, signers()[1], "two", p.claims("kim")), "kim")
	if !strings.Contains(p.log.String(), "are fetched again") || p.counted(p.counts.keys, "failed") != 2 {
		t.Errorf("%d failed: %s", p.counted(p.counts.keys, "failed"), p.log)
	}
}

// TestGoogleWasNeverReachable: without keys, tokens are neither accepted nor refused.
func TestGoogleWasNeverReachable(t *testing.T) {
	p := newPlace(t, false)
	p.google.set(func() { p.google.down = true })
	p.fails("no keys at all", p.token("kim"), dispatch.ErrUnavailable)
	p.google.set(func() { p.google.down = false })
	p.clock.pass(retryPause)
	p.is("there at last", p.token("kim"), "kim")
}

// TestKeysAreFetchedOnce: concurrent requests share a fetch.
func TestKeysAreFetchedOnce(t *testing.T) {
	p := newPlace(t, false)
	p.crowd()
	testkit.Equal(t, "requests for keys", 1, p.google.times("/keys"))
}

func TestAnswersThatAreNoKeys(t *testing.T) {
	p := newPlace(t, false)
	p.is("before", p.token("kim"), "kim")
	for name, keys := range map[string]map[string]string{
		"none": {}, "not PEM": {"one": "x"}, "one of two is not": {"one": signers()[0].certificate, "two": "x"},
	} {
		p.google.set(func() { p.google.keys = keys })
		p.clock.pass(2 * maxAge)
		p.is(name, p.token("kim"), "kim")
		p.settled()
		p.is(name+", after", p.token("lee"), "lee")
		p.settled()
	}
}

func TestAge(t *testing.T) {
	for _, c := range []struct {
		control, age string
		want         time.Duration
	}{
		{"public, max-age=21600, must-revalidate, no-transform", "", 6 * time.Hour}, {"max-age=100", "40", time.Minute},
		{"max-age=100", "400", 0}, {"", "", defaultAge}, {"max-age=x", "", defaultAge}, {"max-age=99999999", "", maxAge}, {"no-store", "", defaultAge},
	} {
		h := http.Header{"Cache-Control": {c.control}, "Age": {c.age}}
		testkit.Equal(t, fmt.Sprintf("%q, Age %q", c.control, c.age), c.want, freshFor(h))
	}
}

package firebase

import (
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/testkit"
)

// TestGoodToken until it ends. The time of the sign-in is not that of the token's issue. Without credentials, nobody is looked up.
func TestGoodToken(t *testing.T) {
	p := newPlace(t, false)
	claims, signedIn := p.claims("kim"), p.clock.now().Add(-time.Hour)
	claims["auth_time"] = signedIn.Unix()
	token := sign(t, signers()[0], "one", claims)
	for range 3 {
		p.is("a good token", token, "kim")
	}
	if v, err := p.Verify(t.Context(), token); err != nil || !v.SignedIn.Equal(signedIn) || v.ExpiresAt.Unix() != claims["exp"] {
		t.Errorf("%+v, %v", v, err)
	}
	testkit.Equal(t, "requests for keys", 1, p.fake.times("/keys"))
	testkit.Equal(t, "lookups without credentials", 0, p.fake.times(lookups))
	testkit.Equal(t, "lines about missing credentials in the log", 1, strings.Count(p.log.String(), "no credentials for Firebase Auth"))
	if asked, err := p.CheckLookup(t.Context()); asked || err != nil {
		t.Errorf("the doctor's lookup without credentials: %v, %v", asked, err)
	}
	p.clock.pass(time.Hour + leeway)
	p.fails("a token that has ended, though it was good", token, auth.ErrTokenEnded)
}

// TestRotation: a new key is fetched when a token names it, and tokens of a removed key are refused.
func TestRotation(t *testing.T) {
	p := newPlace(t, false)
	p.is("the first key", p.token("kim"), "kim")
	p.fake.set(func() { p.fake.keys["two"] = signers()[1].certificate })
	late := sign(t, signers()[1], "two", p.claims("lee"))
	p.fails("a key that was asked for a moment ago", late, auth.ErrUnauthenticated)
	p.clock.pass(keysPause)
	p.is("the new key", late, "lee")
	p.is("the old key, still there", p.token("kim"), "kim")
	p.fake.set(func() { delete(p.fake.keys, "one") })
	p.clock.pass(time.Hour)
	p.is("a stale key, renewed behind the request", p.token("park"), "park")
	p.settled()
	p.clock.pass(keysPause)
	p.fails("a key that is gone", p.token("choi"), auth.ErrUnauthenticated)
	testkit.Equal(t, "counted fetches", p.fake.times("/keys"), counted(p.keys.counts, "ok"))
}

// TestGoogleIsDown: tokens of known keys are accepted, others get ErrUnavailable, and requests to Google are limited.
func TestGoogleIsDown(t *testing.T) {
	p := newPlace(t, false)
	p.fake.set(func() { p.fake.down = true })
	p.fails("no keys at all", p.token("kim"), dispatch.ErrUnavailable)
	p.fake.set(func() { p.fake.down = false })
	p.clock.pass(retryPause)
	p.is("before", p.token("kim"), "kim")
	p.fake.set(func() { p.fake.down = true })
	p.clock.pass(30 * time.Hour)
	for range 5 {
		p.is("by a stale key", p.token("lee"), "lee")
		p.settled()
	}
	p.fails("by an unknown key", sign(t, signers()[1], "two", p.claims("kim")), dispatch.ErrUnavailable)
	p.fails("forged by the name of a stale key", sign(t, signers()[1], "one", p.claims("kim")), auth.ErrUnauthenticated)
	testkit.Equal(t, "requests for keys", 3, p.fake.times("/keys"))
	testkit.Equal(t, "lines about the failures in the log", 2, strings.Count(p.log.String(), "not fetched"))
	p.clock.pass(retryPause)
	p.is("and again", p.token("park"), "park")
	p.settled()
	p.fake.set(func() { p.fake.down = false; p.fake.keys["two"] = signers()[1].certificate })
	p.clock.pass(retryPause)
	p.is("Google is back", sign(t, signers()[1], "two", p.claims("kim")), "kim")
	testkit.Equal(t, "lines that say that it is over", 2, strings.Count(p.log.String(), "are fetched again"))
	testkit.Equal(t, "counted failures", 3, counted(p.keys.counts, "failed"))
}

func TestAnswersThatAreNoKeys(t *testing.T) {
	p := newPlace(t, false)
	p.is("before", p.token("kim"), "kim")
	for name, keys := range map[string]map[string]string{
		"none": {}, "not PEM": {"one": "x"}, "one of two is not": {"one": signers()[0].certificate, "two": "x"},
	} {
		p.fake.set(func() { p.fake.keys = keys })
		p.clock.pass(2 * keysAge)
		p.is(name, p.token("kim"), "kim")
		p.settled()
		p.is(name+", after", p.token("lee"), "lee")
		p.settled()
	}
}

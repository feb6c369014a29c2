package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"firsttap/dispatch"
	. "firsttap/repository/repositorytest"
)

var secret = []byte("the-secret-of-this-test")

// newTokens returns Tokens with the test's secret, at a time that is fixed, without revocations, unless o says other.
func newTokens(t testing.TB, o TokenOptions) *Tokens {
	t.Helper()
	if o.Secret == nil {
		o.Secret = secret
	}
	if o.Now == nil {
		o.Now = (&clock{fixed}).now
	}
	if o.Revocations == nil {
		var err error
		o.Revocations, err = NewRevocations(t.Context(), &revoked{}, Quiet)
		Must(t, err)
	}
	return NewTokens(o)
}

// mustAccept fails the test unless the token is want's, or refused where want is "".
func (k *Tokens) mustAccept(t testing.TB, token string, want dispatch.DriverID) {
	t.Helper()
	got, err := k.Authenticate(t.Context(), token)
	if got != want || want != "" && err != nil || want == "" && !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("%.80s: got %q, %v, want %q", token, got, err, want)
	}
}

func goodClaims() map[string]any {
	return map[string]any{
		"iss": "firsttap", "aud": "driver", "sub": string(driver), "iat": fixed.Unix(), "exp": fixed.Add(time.Hour).Unix(),
	}
}

func part(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// signed returns a token with that header and those claims, signed with HMAC-SHA256 whatever the header says.
func signed(header, claims any, key []byte) string {
	text := part(header) + "." + part(claims)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

var hs256 = map[string]any{"alg": "HS256", "typ": "JWT"}

// with returns a valid token with changed claims; a nil value removes a claim.
func with(changes map[string]any) string {
	claims := goodClaims()
	for k, v := range changes {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	return signed(hs256, claims, secret)
}

// by returns the valid claims, signed by another method.
func by(t *testing.T, method jwt.SigningMethod, key any) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, jwt.MapClaims(goodClaims())).SignedString(key)
	Must(t, err)
	return token
}

// TestGoodTokens: a token counts until its end, to the second, at each instance, also if the clock of the one that issued it is a little
// ahead.
func TestGoodTokens(t *testing.T) {
	c, ahead := &clock{fixed}, &clock{fixed.Add(clockTolerance)}
	tokens := newTokens(t, TokenOptions{Now: c.now})
	issued, until, err := tokens.Issue(driver, 0)
	if err != nil || !until.Equal(fixed.Add(TokenTTL)) {
		t.Fatalf("until %s, %v", until, err)
	}
	early, _, err := newTokens(t, TokenOptions{Now: ahead.now}).Issue(driver, 0)
	Must(t, err)
	for _, token := range []string{
		issued, early, with(nil), with(map[string]any{"aud": []string{"x", "driver"}}), with(map[string]any{"nbf": fixed.Unix()}),
	} {
		for range 2 { // computed, and from the cache
			tokens.mustAccept(t, token, driver)
		}
	}
	for _, end := range []struct {
		at   time.Time
		want dispatch.DriverID
	}{{until.Add(-time.Nanosecond), driver}, {until, ""}, {until.Add(time.Hour), ""}} {
		c.Time = end.at
		tokens.mustAccept(t, issued, end.want)
	}
}

func TestForgedTokens(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	Must(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	tokens := newTokens(t, TokenOptions{})
	good := with(nil)
	tokens.mustAccept(t, good, driver) // the cache knows it
	p := strings.Split(good, ".")
	as := func(alg string) string { return signed(map[string]any{"alg": alg, "typ": "JWT"}, goodClaims(), secret) }
	other := with(map[string]any{"sub": "drv_" + strings.Repeat("2", 26)})

	// The last character of a signature has two unused bits: with other ones there, the cache would have four entries for one token.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, good[len(good)-1])
	spelled := func(bits int) string { return good[:len(good)-1] + string(alphabet[last|bits]) }

	for name, token := range map[string]string{
		"another spelling": spelled(1), "a third": spelled(2), "a fourth": spelled(3),
		"empty": "", "a dot": ".", "two dots": "..", "three dots": "...", "garbage": "x.y.z", "null": "null",
		"alg none, unsigned": part(map[string]any{"alg": "none"}) + "." + p[1] + ".",
		"alg none, signed":   as("none"), "alg None": as("None"), "alg nOnE, unsigned": part(map[string]any{"alg": "nOnE"}) + "." + p[1] + ".",
		"no alg": signed(map[string]any{"typ": "JWT"}, goodClaims(), secret), "alg hs256": as("hs256"), "alg a number": signed(map[string]any{"alg": 256}, goodClaims(), secret),
		"says RS256, signed with the secret": as("RS256"), "says HS512, signed as HS256": as("HS512"),
		"HS384": by(t, jwt.SigningMethodHS384, secret), "HS512": by(t, jwt.SigningMethodHS512, secret),
		"RS256": by(t, jwt.SigningMethodRS256, rsaKey), "PS256": by(t, jwt.SigningMethodPS256, rsaKey), "ES256": by(t, jwt.SigningMethodES256, ecKey),
		"a key of its own in the header": signed(map[string]any{"alg": "HS256", "jwk": map[string]any{"kty": "oct", "k": "eA"}}, goodClaims(), []byte("x")),
		"another secret":                 signed(hs256, goodClaims(), []byte("the-secret-of-another")),
		"an empty secret":                signed(hs256, goodClaims(), nil),
		"the secret, cut off":            signed(hs256, goodClaims(), secret[:len(secret)-1]),
		"no exp":                         with(map[string]any{"exp": nil}), "exp null": signed(hs256, map[string]any{"iss": "firsttap", "aud": "driver", "sub": driver, "exp": nil}, secret),
		"exp now": with(map[string]any{"exp": fixed.Unix()}), "expired": with(map[string]any{"exp": fixed.Unix() - 1}),
		"exp 0": with(map[string]any{"exp": 0}), "exp -1": with(map[string]any{"exp": -1}), "exp text": with(map[string]any{"exp": "never"}),
		"not before": with(map[string]any{"nbf": fixed.Unix() + 1}), "issued in the future": with(map[string]any{"iat": fixed.Add(clockTolerance + time.Second).Unix()}),
		"another issuer": with(map[string]any{"iss": "someone"}), "no issuer": with(map[string]any{"iss": nil}), "issuer's case": with(map[string]any{"iss": "FirstTap"}),
		"another audience": with(map[string]any{"aud": "admin"}), "no audience": with(map[string]any{"aud": nil}), "empty audience": with(map[string]any{"aud": []string{}}),
		"no subject": with(map[string]any{"sub": nil}), "empty subject": with(map[string]any{"sub": ""}), "a dispatch's": with(map[string]any{"sub": "dsp_" + strings.Repeat("1", 26)}),
		"an admin's": with(map[string]any{"sub": "key_first"}), "subject with more": with(map[string]any{"sub": string(driver) + "/../x"}), "subject a number": with(map[string]any{"sub": 1}),
		"cut off": good[:len(good)-1], "half of it": good[:len(good)/2], "no signature": p[0] + "." + p[1] + ".", "two parts": p[0] + "." + p[1],
		"more dots": good + ".", "a fourth part": good + "." + p[2], "space before": " " + good, "space after": good + " ",
		"upper case": strings.ToUpper(good), "lower case": strings.ToLower(good), "padded": good + "=",
		"the payload of another token": p[0] + "." + strings.Split(other, ".")[1] + "." + p[2], "the signature of another token": p[0] + "." + p[1] + "." + strings.Split(other, ".")[2],
		"claims a list": signed(hs256, []int{1}, secret), "huge": strings.Repeat("a", 1<<20), "huge, three parts": p[0] + "." + strings.Repeat("a", 1<<20) + "." + p[2],
		"newline": good + "\n", "newlines": p[0] + ".\r\n" + p[1] + "." + p[2],
		"two algs":                base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","alg":"none"}`)) + "." + p[1] + ".",
		"two algs, the other way": base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","alg":"HS256"}`)) + "." + p[1] + ".",
		"kid a path":              signed(map[string]any{"alg": "HS256", "kid": "../../../dev/null"}, goodClaims(), nil), "kid SQL": signed(map[string]any{"alg": "HS256", "kid": "x' UNION SELECT 'k"}, goodClaims(), []byte("k")),
		"subject a list": with(map[string]any{"sub": []string{string(driver)}}), "subject null": signed(hs256, map[string]any{"iss": "firsttap", "aud": "driver", "sub": nil, "exp": fixed.Unix() + 9}, secret),
		"crit":        signed(map[string]any{"alg": "HS256", "crit": []string{"exp"}, "exp": 1}, goodClaims(), secret),
		"crit, empty": signed(map[string]any{"alg": "HS256", "crit": []string{}}, goodClaims(), secret),
		"crit, null":  signed(map[string]any{"alg": "HS256", "crit": nil}, goodClaims(), secret),
		"crit of b64": signed(map[string]any{"alg": "HS256", "b64": true, "crit": []string{"b64"}}, goodClaims(), secret),
		"no iat":      with(map[string]any{"iat": nil}),
		"too long":    with(map[string]any{"exp": fixed.Add(TokenTTL + time.Second).Unix()}),
		"exp huge":    with(map[string]any{"exp": 1e300}),
		"not base64":  p[0] + ".*." + p[2], "NUL": good + "\x00",
	} {
		if got, err := tokens.Authenticate(t.Context(), token); !errors.Is(err, ErrUnauthenticated) || got != "" {
			t.Errorf("%s: taken for %q, %v", name, got, err)
		}
	}
	if tokens.verified.Len() != 1 {
		t.Errorf("%d tokens are cached, and one was good", tokens.verified.Len())
	}
}

// TestSecretIsReplaced: tokens of a previous secret are valid until they expire, new ones use the current secret, and tokens of
// a removed secret are refused.
func TestSecretIsReplaced(t *testing.T) {
	c := &clock{fixed}
	first, second := secret, []byte("the-next-secret-of-this-test")
	old, until, err := newTokens(t, TokenOptions{Secret: first, Now: c.now}).Issue(driver, 0)
	Must(t, err)
	during, after := newTokens(t, TokenOptions{Secret: second, Now: c.now, Previous: [][]byte{first}}), newTokens(t, TokenOptions{Secret: second, Now: c.now})
	fresh, _, err := during.Issue(driver, 0)
	Must(t, err)
	for what, of := range map[string]struct {
		tokens *Tokens
		token  string
		want   dispatch.DriverID
	}{
		"old, during": {during, old, driver}, "new, during": {during, fresh, driver},
		"old, after": {after, old, ""}, "new, after": {after, fresh, driver},
		"new, where the secret is the old one": {newTokens(t, TokenOptions{Secret: first, Now: c.now}), fresh, ""},
		"new, where it is known already":       {newTokens(t, TokenOptions{Secret: first, Now: c.now, Previous: [][]byte{second}}), fresh, driver},
		"of a third one, during":               {during, signed(hs256, goodClaims(), []byte("another")), ""},
	} {
		t.Run(what, func(t *testing.T) { of.tokens.mustAccept(t, of.token, of.want) })
	}
	c.Time = until
	during.mustAccept(t, old, "")
}

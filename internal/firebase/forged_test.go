package firebase

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"firsttap/internal/auth"
	"firsttap/internal/testkit"
)

func part(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// hmacked returns a token signed with HMAC-SHA256, whatever the header says.
func hmacked(header, claims any, key []byte) string {
	text := part(header) + "." + part(claims)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// changed returns the good claims with changes; a nil value removes a claim.
func changed(good map[string]any, changes ...any) map[string]any {
	claims := maps.Clone(good)
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		if claims[name] = changes[i+1]; changes[i+1] == nil {
			delete(claims, name)
		}
	}
	return claims
}

// badClaims returns claims that are refused whatever the signature.
func badClaims(good map[string]any, now time.Time) map[string]map[string]any {
	with := func(changes ...any) map[string]any { return changed(good, changes...) }
	n := now.Unix()
	return map[string]map[string]any{
		"no exp": with("exp", nil), "expired": with("exp", n-11), "exp 0": with("exp", 0), "exp text": with("exp", "never"), "exp -1": with("exp", -1),
		"exp huge": with("exp", 1e300), "not before": with("nbf", n+11), "made in the future": with("iat", n+11), "no iat": with("iat", nil), "iat text": with("iat", "x"),
		"signed in later": with("auth_time", n+11), "never signed in": with("auth_time", nil),
		"another project": with("aud", "other"), "no audience": with("aud", nil), "audience's case": with("aud", strings.ToUpper(project)), "audience of none": with("aud", []string{}),
		"our own audience": with("aud", "driver", "iss", "firsttap"), "another issuer": with("iss", "https://securetoken.google.com/other"), "no issuer": with("iss", nil),
		"issuer's slash": with("iss", "https://securetoken.google.com/"+project+"/"), "a session cookie's": with("iss", "https://session.firebase.google.com/"+project),
		"a custom token's": with("iss", "x@y.iam.gserviceaccount.com", "aud", "https://identitytoolkit.googleapis.com/google.identity.identitytoolkit.v1.IdentityToolkit"),
		"no subject":       with("sub", nil), "empty subject": with("sub", ""), "subject a number": with("sub", 1), "subject a list": with("sub", []string{"kim"}),
		"subject null": with("sub", json.RawMessage("null")), "a long subject": with("sub", strings.Repeat("k", 129)),
	}
}

func TestForgedTokens(t *testing.T) {
	p := newPlace(t, false)
	good := p.token("kim")
	p.is("the good one", good, "kim")
	ours, other := signers()[0], signers()[1]
	claims := p.claims("kim")
	s := strings.Split(good, ".")
	public := []byte(ours.certificate)
	raw := func(header string) string { return base64.RawURLEncoding.EncodeToString([]byte(header)) }
	pss := jwt.NewWithClaims(jwt.SigningMethodPS256, jwt.MapClaims(claims))
	pss.Header["kid"] = "one"
	psText, err := pss.SignedString(ours.key)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	es := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims(claims))
	es.Header["kid"] = "one"
	esText, err := es.SignedString(ec)
	if err != nil {
		t.Fatal(err)
	}
	head := func(more ...any) map[string]any {
		return changed(map[string]any{"alg": "HS256", "typ": "JWT", "kid": "one"}, more...)
	}
	tokens := map[string]string{
		"empty": "", "dots": "..", "garbage": "x.y.z", "null": part(nil) + "." + part(nil) + ".",
		"alg none": part(head("alg", "none")) + "." + s[1] + ".", "alg none, signed": part(head("alg", "none")) + "." + s[1] + "." + s[2], "alg nOnE": part(head("alg", "nOnE")) + "." + s[1] + ".",
		"HS256 with the certificate": hmacked(head(), claims, public), "HS256 with the modulus": hmacked(head(), claims, ours.key.N.Bytes()), "HS256, empty": hmacked(head(), claims, nil),
		"says RS256, is HS256": hmacked(head("alg", "RS256"), claims, public), "alg a number": hmacked(head("alg", 256), claims, public), "no alg": hmacked(head("alg", nil), claims, public),
		"two algs": raw(`{"alg":"RS256","kid":"one","alg":"none"}`) + "." + s[1] + ".", "two algs, the other way": raw(`{"alg":"none","kid":"one","alg":"RS256"}`) + "." + s[1] + ".",
		"crit": signHeader(t, ours, map[string]any{"kid": "one", "crit": []string{"exp"}}, claims), "crit, empty": signHeader(t, ours, map[string]any{"kid": "one", "crit": []string{}}, claims),
		"another key": sign(t, other, "one", claims), "no kid": sign(t, ours, nil, claims), "empty kid": sign(t, ours, "", claims), "kid a number": sign(t, ours, 1, claims),
		"kid a list": sign(t, ours, []string{"one"}, claims), "kid null": sign(t, ours, json.RawMessage("null"), claims),
		"kid a path": sign(t, other, "../../../dev/null", claims), "kid SQL": sign(t, other, "x' UNION SELECT 'k", claims), "kid with NUL": sign(t, other, "one\x00", claims), "a long kid": sign(t, other, strings.Repeat("k", 1<<14), claims),
		"PS256": psText, "ES256": esText, "cut off": good[:len(good)-2], "no signature": s[0] + "." + s[1] + ".", "two parts": s[0] + "." + s[1], "a trailing dot": good + ".", "a fourth part": good + "." + s[2],
		"space before": " " + good, "padded": good + "==", "lower case": strings.ToLower(good), "another's payload": s[0] + "." + part(p.claims("lee")) + "." + s[2],
		"claims a list": s[0] + "." + part([]int{1}) + "." + s[2], "deep claims": s[0] + "." + raw(strings.Repeat("[", 1e5)) + "." + s[2], "huge": strings.Repeat("a", 1<<20), "NUL": good + "\x00",
	}
	for name, bad := range badClaims(claims, p.clock.now()) {
		tokens[name] = sign(t, ours, "one", bad)
	}
	for name, token := range tokens {
		p.fails(name, token, auth.ErrUnauthenticated)
	}
}

// newEmulated trusts an emulator at addr.
func newEmulated(t testing.TB, addr string) *place {
	t.Helper()
	p := &place{t: t, clock: &clock{t: time.Now()}, log: &testkit.LogBuffer{}}
	p.start(Options{Project: project, Emulator: addr, Now: p.clock.now, Log: slog.New(slog.NewTextHandler(p.log, nil))})
	p.users.client.Timeout = testkit.Patience
	return p
}

// TestForgedForTheEmulator: the emulator's tokens are not signed, but their claims are checked.
func TestForgedForTheEmulator(t *testing.T) {
	p := newPlace(t, false)
	emulated := newEmulated(t, "127.0.0.1:1")
	claims := p.claims("kim")
	none := map[string]any{"alg": "none", "typ": "JWT"}
	testkit.Equal(t, "warnings of the emulator", 1, emulated.log.Count("EMULATOR IS TRUSTED"))
	good := part(none) + "." + part(claims) + "."
	if _, err := emulated.Verify(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	p.fails("the emulator's, where it is not set", good, auth.ErrUnauthenticated)
	tokens := map[string]string{
		"signed by Google": p.token("kim"), "HS256": hmacked(map[string]any{"alg": "HS256"}, claims, nil), "a signature": good + "eA", "no dot": strings.TrimSuffix(good, "."),
		"another dot": good + ".", "no alg": part(map[string]any{}) + "." + part(claims) + ".", "alg None": part(map[string]any{"alg": "None"}) + "." + part(claims) + ".", "huge": good + strings.Repeat("a", 1<<20),
	}
	for name, bad := range badClaims(claims, p.clock.now()) {
		tokens[name] = part(none) + "." + part(bad) + "."
	}
	for name, token := range tokens {
		emulated.fails(name, token, auth.ErrUnauthenticated)
	}
}

package firebase

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const project = "demo-firsttap"

// clock stands still until a test moves it.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// signer has a key and its certificate, as Google publishes them.
type signer struct {
	key         *rsa.PrivateKey
	certificate string
}

var signers = sync.OnceValue(func() [2]signer { return [2]signer{newSigner(), newSigner()} })

func newSigner() signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return signer{key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// google is a fake of Google's keys and users, with faults.
type google struct {
	*httptest.Server
	mu      sync.Mutex
	keys    map[string]string
	control string
	bearer  string // the token that a lookup needs, if not ""
	down    bool
	users   map[string]map[string]any
	asked   map[string]int
	hold    chan struct{} // holds each answer until it is closed, if not nil
	entered chan struct{}
}

func newGoogle(t *testing.T) *google {
	g := &google{
		keys: map[string]string{"one": signers()[0].certificate}, control: "public, max-age=3600, must-revalidate",
		users: map[string]map[string]any{}, asked: map[string]int{}, entered: make(chan struct{}, 100),
	}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked[r.URL.Path]++
	hold, down := g.hold, g.down
	g.mu.Unlock()
	g.entered <- struct{}{}
	if hold != nil {
		<-hold
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case down:
		w.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == "/token":
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"access_token":"an-access-token","token_type":"Bearer","expires_in":3600}`))
	case r.URL.Path == lookups && g.bearer != "" && r.Header.Get("Authorization") != g.bearer:
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Path == "/keys":
		w.Header().Set("Cache-Control", g.control)
		json.NewEncoder(w).Encode(g.keys)
	default:
		var req struct{ LocalID []string }
		json.NewDecoder(r.Body).Decode(&req)
		var found []any
		if u := g.users[req.LocalID[0]]; u != nil {
			found = append(found, u)
		}
		json.NewEncoder(w).Encode(map[string]any{"users": found})
	}
}

func (g *google) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *google) times(path string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[path]
}

const lookups = "/v1/projects/" + project + "/accounts:lookup"

// place is IDTokens over a fake Google, with their log and metrics.
type place struct {
	*IDTokens
	t      *testing.T
	clock  *clock
	google *google
	log    *testkit.LogBuffer
	counts *metrics
}

// newPlace returns a place that looks users up only if withUsers.
func newPlace(t *testing.T, withUsers bool) *place {
	t.Helper()
	g, log := newGoogle(t), &testkit.LogBuffer{}
	c := &clock{t: time.Now().Truncate(time.Second)}
	registry := prometheus.NewRegistry()
	o := Options{
		Project: project, KeysURL: g.URL + "/keys", UsersURL: g.URL, Now: c.now, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: registry,
	}
	ids, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if withUsers {
		ids.users.client = ids.background.client(lookupTimeout)
	}
	t.Cleanup(ids.Close)
	return &place{ids, t, c, g, log, ids.users.metrics}
}

func (p *place) claims(uid string) map[string]any {
	now := p.clock.now().Unix()
	return map[string]any{
		"iss": "https://securetoken.google.com/" + project, "aud": project, "sub": uid, "user_id": uid,
		"iat": now - 5, "exp": now + 3600, "auth_time": now - 5,
	}
}

// sign returns a token with kid and claims, signed with the signer's key.
func sign(t testing.TB, s signer, kid any, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims(claims))
	if kid != nil {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (p *place) token(uid string) string { return sign(p.t, signers()[0], "one", p.claims(uid)) }

// is fails the test unless the token is uid's.
func (p *place) is(what, token, uid string) {
	p.t.Helper()
	if got, _, err := p.UID(p.t.Context(), token); err != nil || got != uid {
		p.t.Errorf("%s: %q, %v", what, got, err)
	}
}

func (p *place) fails(what, token string, as error) {
	p.t.Helper()
	if got, _, err := p.UID(p.t.Context(), token); !is(err, as) || got != "" {
		p.t.Errorf("%s: %q, %v, want %v", what, got, err, as)
	}
}

func (p *place) counted(c *prometheus.CounterVec, result string) int {
	return int(testutil.ToFloat64(c.WithLabelValues(result)))
}

func (p *place) settled() {
	p.t.Helper()
	p.background.Wait()
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

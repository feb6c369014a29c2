package firebase

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
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

	"firsttap/internal/auth"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
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

// fake stands for Google: its keys and users, with faults.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	keys    map[string]string
	bearer  string // the token that a lookup needs, if not ""
	down    bool
	users   map[string]map[string]any
	asked   map[string]int
	hold    chan struct{} // holds each answer until it is closed, if not nil
	entered chan struct{}
}

func newFake(t testing.TB) *fake {
	g := &fake{
		keys: map[string]string{"one": signers()[0].certificate}, users: map[string]map[string]any{}, asked: map[string]int{}, entered: make(chan struct{}, 100),
	}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		json.NewEncoder(w).Encode(g.keys)
	default:
		var req struct{ LocalID []string }
		json.NewDecoder(r.Body).Decode(&req)
		if req.LocalID[0] == oddUID {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var found []any
		if u := g.users[req.LocalID[0]]; u != nil {
			found = append(found, u)
		}
		json.NewEncoder(w).Encode(map[string]any{"users": found})
	}
}

func (g *fake) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *fake) times(path string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[path]
}

// oddUID is the user whose lookup is refused.
const oddUID = "odd"

const lookups = "/v1/projects/" + project + "/accounts:lookup"

// place is IDTokens over a fake Google, with their log.
type place struct {
	*IDTokens
	t     testing.TB
	clock *clock
	fake  *fake
	log   *testkit.LogBuffer
}

// newPlace returns a place that looks users up only if withUsers. Google may take as long as a busy machine needs.
func newPlace(t testing.TB, withUsers bool, edit ...func(*Options)) *place {
	t.Helper()
	p := &place{t: t, clock: &clock{t: time.Now().Truncate(time.Second)}, fake: newFake(t), log: &testkit.LogBuffer{}}
	o := Options{
		Project: project, KeysURL: p.fake.URL + "/keys", UsersURL: p.fake.URL, Now: p.clock.now,
		Log: slog.New(slog.NewTextHandler(p.log, nil)), Metrics: prometheus.NewRegistry(),
	}
	for _, e := range edit {
		e(&o)
	}
	p.start(o)
	if withUsers && p.users == nil {
		o.Metrics = nil // they are registered
		p.users = newUsers(o, p.google.client(0), p.google)
	}
	p.keys.client.Timeout = testkit.Patience
	if p.users != nil {
		p.users.client.Timeout = testkit.Patience
	}
	return p
}

func (p *place) start(o Options) {
	p.t.Helper()
	var err error
	if p.IDTokens, err = New(context.Background(), o); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.Close)
}

// uid returns the user of a token that is valid now.
func (p *place) uid(ctx context.Context, token string) (string, error) {
	t, err := p.Verify(ctx, token)
	if err == nil && !p.Allows(ctx, t) {
		return "", auth.ErrUnauthenticated
	}
	return t.UID, err
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
	header := map[string]any{}
	if kid != nil {
		header["kid"] = kid
	}
	return signHeader(t, s, header, claims)
}

// signHeader is sign with more in the header than the kid.
func signHeader(t testing.TB, s signer, header, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims(claims))
	maps.Copy(token.Header, header)
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
	if got, err := p.uid(p.t.Context(), token); err != nil || got != uid {
		p.t.Errorf("%s: %q, %v", what, got, err)
	}
}

func (p *place) fails(what, token string, as error) {
	p.t.Helper()
	if got, err := p.uid(p.t.Context(), token); !errors.Is(err, as) || got != "" {
		p.t.Errorf("%s: %q, %v, want %v", what, got, err, as)
	}
}

func counted(c *prometheus.CounterVec, result string) int {
	return int(testutil.ToFloat64(c.WithLabelValues(result)))
}

// hold makes Google's answers wait until release.
func (p *place) hold() (release func()) {
	hold := make(chan struct{})
	p.fake.set(func() { p.fake.hold = hold })
	return func() { close(hold) }
}

// crowd makes 20 requests with tokens of one user while Google's answers wait.
func (p *place) crowd() {
	p.t.Helper()
	release := p.hold()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { p.is("one of many", p.token("kim"), "kim") })
	}
	<-p.fake.entered
	release()
	all.Wait()
}

func (p *place) settled() {
	p.t.Helper()
	p.google.fetches.Wait()
}

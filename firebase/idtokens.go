// Package firebase verifies ID tokens of Firebase Auth, and checks that their users are still enabled.
//
// It does not use the Admin SDK, whose key address and HTTP client cannot be set, which holds a lock while it fetches keys,
// and which reads the emulator's address from the environment.
package firebase

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
)

// ErrRefused says that a token is not valid, or that its user is disabled, deleted, or signed out everywhere.
var ErrRefused = errors.New("the ID token is refused")

const (
	issuerPrefix = "https://securetoken.google.com/"
	googleKeys   = "https://www.googleapis.com/robot/v1/metadata/x509/securetoken@system.gserviceaccount.com"
	googleUsers  = "https://identitytoolkit.googleapis.com"
	// maxUID is the maximum length of a Firebase uid.
	maxUID = 128
	// leeway is the accepted difference between Google's clock and ours.
	leeway = 10 * time.Second
	// The bounds of the caches: several times the number of drivers.
	maxVerifiedTokens = 16384
	maxKnownUsers     = 16384
)

// Options configures IDTokens. Project, Now and Log are required.
type Options struct {
	Project string
	// Emulator is host:port of a Firebase Auth emulator, "" for Firebase itself. The emulator's tokens are not signed, so that
	// any client can pose as any driver.
	Emulator string
	// CredentialsFile has the credentials for looking up users; Detect uses the platform's own where it is "". With neither,
	// users are not looked up.
	CredentialsFile string
	Detect          bool
	// KeysURL and UsersURL are Google's if empty.
	KeysURL, UsersURL string
	Now               func() time.Time
	Log               *slog.Logger
	Metrics           prometheus.Registerer // nil for no registration
}

// IDTokens verifies ID tokens of one project. Safe for concurrent use. Close ends its background work.
type IDTokens struct {
	parser     *jwt.Parser
	keys       *keySet // nil with the emulator
	users      *users
	verified   *lru.Cache[[sha256.Size]byte, verified]
	now        func() time.Time
	background *background
}

type verified struct {
	uid      string
	signedIn time.Time
	issued   time.Time
	until    time.Time
}

// background is the work that outlasts the requests that started it, and its connections.
type background struct {
	sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	conns  *http.Transport
}

func (l *background) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: l.conns}
}

// New returns IDTokens for o. It sends no request; an error is about the credentials.
func New(ctx context.Context, o Options) (*IDTokens, error) {
	cache, err := lru.New[[sha256.Size]byte, verified](maxVerifiedTokens)
	if err != nil {
		return nil, err
	}
	work := &background{conns: http.DefaultTransport.(*http.Transport).Clone()}
	work.ctx, work.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t := &IDTokens{verified: cache, now: o.Now, background: work}
	counts := newMetrics(o.Metrics)
	method := jwt.SigningMethodRS256.Alg()
	if o.Emulator != "" {
		method = jwt.SigningMethodNone.Alg()
		o.Log.Warn("THE FIREBASE AUTH EMULATOR IS TRUSTED: its tokens are not signed, so that any client can pose as any driver",
			"emulator", o.Emulator)
	} else {
		t.keys = newKeySet(cmp.Or(o.KeysURL, googleKeys), o.Now, o.Log, counts, work)
	}
	t.parser = jwt.NewParser(jwt.WithValidMethods([]string{method}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithStrictDecoding(), jwt.WithIssuer(issuerPrefix+o.Project), jwt.WithAudience(o.Project),
		jwt.WithLeeway(leeway), jwt.WithTimeFunc(o.Now))
	if t.users, err = newUsers(o, counts, work); err != nil {
		work.cancel()
		return nil, err
	}
	return t, nil
}

// Close cancels the requests under way and waits for them.
func (t *IDTokens) Close() {
	t.background.cancel()
	t.background.Wait()
	t.background.conns.CloseIdleConnections()
}

// UID returns the token's user, and when the user signed in. ErrRefused; dispatch.ErrUnavailable while Google's keys are not
// known. A valid signature is cached until the token expires. The user is looked up regularly, and refused within a minute
// of being disabled, deleted or signed out. While lookups fail, the last known status counts, and an unknown user is
// accepted.
func (t *IDTokens) UID(ctx context.Context, token string) (uid string, signedIn time.Time, err error) {
	sum := sha256.Sum256([]byte(token))
	v, ok := t.verified.Get(sum)
	if !ok || !t.now().Before(v.until) {
		if v, err = t.verify(ctx, token); err != nil {
			return "", time.Time{}, err
		}
		t.verified.Add(sum, v)
	}
	if !t.users.allows(ctx, v.uid, v.issued) {
		return "", time.Time{}, ErrRefused
	}
	return v.uid, v.signedIn, nil
}

// CheckKeys fetches the keys that sign ID tokens, and returns how many there are. With the emulator there are none.
func (t *IDTokens) CheckKeys(ctx context.Context) (int, error) {
	if t.keys == nil {
		return 0, nil
	}
	keys, _, err := t.keys.request(ctx)
	return len(keys), err
}

// CheckLookup asks Google for a user who does not exist. Asked is false if the service has no credentials to ask with.
func (t *IDTokens) CheckLookup(ctx context.Context) (asked bool, err error) {
	if t.users.client == nil {
		return false, nil
	}
	_, err = t.users.request(ctx, "firsttap-doctor")
	return true, err
}

type claims struct {
	jwt.RegisteredClaims
	AuthTime *jwt.NumericDate `json:"auth_time"`
}

func (t *IDTokens) verify(ctx context.Context, token string) (verified, error) {
	if strings.ContainsAny(token, "\r\n") {
		return verified{}, ErrRefused // base64 decoding skips them
	}
	var c claims
	_, err := t.parser.ParseWithClaims(token, &c, func(parsed *jwt.Token) (any, error) {
		if _, critical := parsed.Header["crit"]; critical { // names what a verifier must understand, and this one understands none of it
			return nil, ErrRefused
		}
		if t.keys == nil {
			return jwt.UnsafeAllowNoneSignatureType, nil
		}
		id, _ := parsed.Header["kid"].(string)
		if id == "" {
			return nil, ErrRefused
		}
		return t.keys.key(ctx, id)
	})
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		return verified{}, err
	case err != nil:
		return verified{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case c.Subject == "" || len(c.Subject) > maxUID || c.IssuedAt == nil:
		return verified{}, ErrRefused
	case c.AuthTime == nil || c.AuthTime.After(t.now().Add(leeway)):
		return verified{}, ErrRefused
	}
	return verified{uid: c.Subject, signedIn: c.AuthTime.Time, issued: c.IssuedAt.Time, until: c.ExpiresAt.Time}, nil
}

// metrics counts the requests to Google.
type metrics struct {
	keys, lookups *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_firebase_key_fetches_total", Help: "Requests to Google for the keys that sign ID tokens, by result: ok, failed.",
		}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firsttap_firebase_lookups_total", Help: "Requests to Firebase for the status of a user, by result: ok, failed.",
		}, []string{"result"}),
	}
	if r != nil {
		r.MustRegister(m.keys, m.lookups)
	}
	return m
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

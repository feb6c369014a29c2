// Package firebase tells whose a Firebase Auth ID token is, and whether that user is still welcome.
//
// The Admin SDK does the same, and is not used for it: it takes its keys' address and HTTP client from nowhere but itself,
// holds a lock while it fetches them, and reads the environment for the emulator on its own.
package firebase

import (
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

// ErrRefused says that a token proves nothing, or that its user is disabled, deleted, or signed out everywhere.
var ErrRefused = errors.New("the ID token is refused")

const (
	issuerPrefix = "https://securetoken.google.com/"
	googleKeys   = "https://www.googleapis.com/robot/v1/metadata/x509/securetoken@system.gserviceaccount.com"
	googleUsers  = "https://identitytoolkit.googleapis.com"
	// maxUID is the longest uid that Firebase gives.
	maxUID = 128
	// leeway is how far Google's clock and ours may be apart.
	leeway = 10 * time.Second
	// verifiedTokens bounds the cache of tokens, knownUsers that of users: several times the drivers there are.
	verifiedTokens = 16384
	knownUsers     = 16384
)

// Options are what IDTokens stand on.
type Options struct {
	Project string
	// Emulator is host:port of a Firebase Auth emulator, "" for Firebase itself. The emulator's tokens are not signed:
	// whoever reaches the service can be anybody.
	Emulator string
	// CredentialsFile is for looking up whether a user is disabled; Detect has the platform's own credentials used where
	// it is "". With neither, nobody is looked up.
	CredentialsFile string
	Detect          bool
	// KeysURL and UsersURL are Google's where they are "".
	KeysURL, UsersURL string
	Now               func() time.Time
	Log               *slog.Logger
	Metrics           prometheus.Registerer // nil where nobody counts
}

// IDTokens verifies ID tokens of one project. Safe for concurrent use. Close ends what it does in the background.
type IDTokens struct {
	parser   *jwt.Parser
	keys     *keySet // nil with the emulator
	users    *users
	verified *lru.Cache[[sha256.Size]byte, verified]
	now      func() time.Time
	life     *life
}

type verified struct {
	uid      string
	signedIn time.Time
	issued   time.Time
	until    time.Time
}

// life is the work in the background, which outlasts the requests that started it, and the connections it keeps.
type life struct {
	sync.WaitGroup
	ctx   context.Context
	end   context.CancelFunc
	conns *http.Transport
}

// client is for requests that a driver may be waiting for.
func (l *life) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: l.conns}
}

// New returns IDTokens for o. It asks nobody yet; an error is of the credentials.
func New(ctx context.Context, o Options) (*IDTokens, error) {
	cache, err := lru.New[[sha256.Size]byte, verified](verifiedTokens)
	if err != nil {
		return nil, err
	}
	work := &life{conns: http.DefaultTransport.(*http.Transport).Clone()}
	work.ctx, work.end = context.WithCancel(context.WithoutCancel(ctx))
	t := &IDTokens{verified: cache, now: o.Now, life: work}
	counts := newMetrics(o.Metrics)
	method := jwt.SigningMethodRS256.Alg()
	if o.Emulator != "" {
		method = jwt.SigningMethodNone.Alg()
		o.Log.Warn("THE FIREBASE AUTH EMULATOR IS TRUSTED: its tokens are not signed, and anybody can be any driver",
			"emulator", o.Emulator)
	} else {
		t.keys = newKeySet(orElse(o.KeysURL, googleKeys), o.Now, o.Log, counts, work)
	}
	t.parser = jwt.NewParser(jwt.WithValidMethods([]string{method}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithStrictDecoding(), jwt.WithIssuer(issuerPrefix+o.Project), jwt.WithAudience(o.Project),
		jwt.WithLeeway(leeway), jwt.WithTimeFunc(o.Now))
	if t.users, err = newUsers(o, counts, work); err != nil {
		work.end()
		return nil, err
	}
	return t, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Close ends the requests under way and waits for them.
func (t *IDTokens) Close() {
	t.life.end()
	t.life.Wait()
	t.life.conns.CloseIdleConnections()
}

// UID returns the user whose token it is, and when they signed in. ErrRefused; dispatch.ErrUnavailable while nobody can tell, as Google's keys are
// not known. A token that was found good is not computed again until it ends; its user is looked up again and again, and
// is refused within a minute of being disabled, deleted or signed out. While nobody can be looked up, what was known last
// counts, and a user of whom nothing is known is let in.
func (t *IDTokens) UID(ctx context.Context, token string) (uid string, signedIn time.Time, err error) {
	sum := sha256.Sum256([]byte(token))
	v, ok := t.verified.Get(sum)
	if !ok || !t.now().Before(v.until) {
		if v, err = t.verify(ctx, token); err != nil {
			return "", time.Time{}, err
		}
		t.verified.Add(sum, v)
	}
	if !t.users.welcome(ctx, v.uid, v.issued) {
		return "", time.Time{}, ErrRefused
	}
	return v.uid, v.signedIn, nil
}

type claims struct {
	jwt.RegisteredClaims
	AuthTime *jwt.NumericDate `json:"auth_time"`
}

func (t *IDTokens) verify(ctx context.Context, token string) (verified, error) {
	if strings.ContainsAny(token, "\r\n") {
		return verified{}, ErrRefused // what decodes base64 skips them
	}
	var c claims
	_, err := t.parser.ParseWithClaims(token, &c, func(parsed *jwt.Token) (any, error) {
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

// metrics counts what was asked of Google.
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

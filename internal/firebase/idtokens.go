// Package firebase verifies ID tokens of Firebase Auth, and checks that their users are still enabled.
//
// It does not use the Admin SDK, which forgets the keys that it has when it can't renew them, fetches no new key before the old ones have
// expired, lets every request wait meanwhile, and accepts a token for five minutes after its end. None of that can be set: its address for
// keys, its HTTP client and its clock are its own, and it reads the emulator's address from the environment.
package firebase

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/internal/auth"
)

const (
	issuerPrefix = "https://securetoken.google.com/"
	// maxUID is the maximum length of a Firebase uid.
	maxUID = 128
	// leeway is the accepted difference between Google's clock and ours.
	leeway = 10 * time.Second
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
	parser *jwt.Parser
	keys   *keySet // nil with the emulator
	users  *users  // nil without credentials: users are not looked up
	google *google
}

var _ auth.IDTokens = (*IDTokens)(nil)

// New returns IDTokens for o. It sends no request; an error is about the credentials.
func New(ctx context.Context, o Options) (*IDTokens, error) {
	t := &IDTokens{google: newGoogle(ctx, o.Now)}
	method := jwt.SigningMethodRS256.Alg()
	if o.Emulator != "" {
		method = jwt.SigningMethodNone.Alg()
		o.Log.Warn("THE FIREBASE AUTH EMULATOR IS TRUSTED: its tokens are not signed, so that any client can pose as any driver",
			"emulator", o.Emulator)
	} else {
		t.keys = newKeySet(o, t.google)
	}
	t.parser = jwt.NewParser(jwt.WithValidMethods([]string{method}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithStrictDecoding(), jwt.WithIssuer(issuerPrefix+o.Project), jwt.WithAudience(o.Project),
		jwt.WithLeeway(leeway), jwt.WithTimeFunc(o.Now))
	client, err := lookupClient(o, t.google)
	if err != nil {
		t.google.close()
		return nil, err
	}
	if client == nil {
		o.Log.Warn("no credentials for Firebase Auth: disabled and signed-out users are accepted until their tokens expire, " +
			"within the hour")
		return t, nil
	}
	t.users = newUsers(o, client, t.google)
	return t, nil
}

// Close cancels the requests under way and waits for them.
func (t *IDTokens) Close() { t.google.close() }

// CheckKeys fetches the keys that sign ID tokens, and returns how many there are. With the emulator there are none.
func (t *IDTokens) CheckKeys(ctx context.Context) (int, error) {
	if t.keys == nil {
		return 0, nil
	}
	keys, err := t.keys.request(ctx)
	return len(keys), err
}

// CheckLookup asks Google for a user who does not exist. Asked is false if the service has no credentials to ask with.
func (t *IDTokens) CheckLookup(ctx context.Context) (asked bool, err error) {
	if t.users == nil {
		return false, nil
	}
	_, err = t.users.request(ctx, "firsttap-doctor")
	return true, err
}

type claims struct {
	jwt.RegisteredClaims
	AuthTime *jwt.NumericDate `json:"auth_time"`
}

// Verify implements auth.IDTokens. It returns dispatch.ErrUnavailable while Google's keys are not known.
func (t *IDTokens) Verify(ctx context.Context, token string) (auth.IDToken, error) {
	var c claims
	_, err := t.parser.ParseWithClaims(token, &c, func(parsed *jwt.Token) (any, error) {
		if _, critical := parsed.Header["crit"]; critical { // names what a verifier must understand, and this one understands none of it
			return nil, auth.ErrUnauthenticated
		}
		if t.keys == nil {
			return jwt.UnsafeAllowNoneSignatureType, nil
		}
		id, _ := parsed.Header["kid"].(string)
		if id == "" {
			return nil, auth.ErrUnauthenticated
		}
		return t.keys.key(ctx, id)
	})
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		return auth.IDToken{}, err
	case errors.Is(err, jwt.ErrTokenExpired):
		return auth.IDToken{}, auth.ErrTokenEnded
	case err != nil, c.Subject == "" || len(c.Subject) > maxUID, c.IssuedAt == nil:
		return auth.IDToken{}, auth.ErrUnauthenticated
	case c.AuthTime == nil || c.AuthTime.After(t.google.now().Add(leeway)):
		return auth.IDToken{}, auth.ErrUnauthenticated
	}
	return auth.IDToken{UID: c.Subject, SignedIn: c.AuthTime.Time, IssuedAt: c.IssuedAt.Time, ExpiresAt: c.ExpiresAt.Time}, nil
}

// Allows implements auth.IDTokens. The user is looked up regularly, and refused within a minute of being disabled, deleted or signed out.
// While lookups fail, the last known status counts, and an unknown user is accepted.
func (t *IDTokens) Allows(ctx context.Context, token auth.IDToken) bool {
	return t.users == nil || t.users.allows(ctx, token.UID, token.IssuedAt)
}

package service

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

// ErrUnauthenticated says that a token or key proves nothing.
var ErrUnauthenticated = errors.New("the credentials are missing, wrong or expired")

// ErrTokenOver is an ErrUnauthenticated of a token that was good until its time was over or it was revoked: nobody has
// guessed it.
var ErrTokenOver = fmt.Errorf("%w: the token's time is over, or it was revoked", ErrUnauthenticated)

const (
	// TokenTTL is how long a driver's token is good for.
	TokenTTL     = 30 * 24 * time.Hour
	tokenIssuer  = "firsttap"
	tokenPurpose = "driver"
	// maxVerifiedTokens bounds the cache: several times the drivers there are.
	maxVerifiedTokens = 16384
)

// Tokens issues drivers' tokens and tells whose they are. Safe for concurrent use.
type Tokens struct {
	secret      []byte
	keys        jwt.VerificationKeySet // the secret, then those that only verify
	parser      *jwt.Parser
	verified    *lru.Cache[string, verifiedToken]
	now         func() time.Time
	firebase    *firebaseUsers // nil where only our own tokens count
	revocations *Revocations   // nil where nobody revokes any
}

type verifiedToken struct {
	driver     dispatch.DriverID
	generation int
	until      time.Time
}

// driverClaims are what a token says. Those of before there were generations say none, and are of the first, 0.
type driverClaims struct {
	jwt.RegisteredClaims
	Generation int `json:"gen,omitempty"`
}

// NewTokens returns Tokens under secret. Tokens that were issued under a previous secret are good too.
func NewTokens(secret []byte, now func() time.Time, previous ...[]byte) *Tokens {
	verified, err := lru.New[string, verifiedToken](maxVerifiedTokens)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	keys := jwt.VerificationKeySet{Keys: []jwt.VerificationKey{secret}}
	for _, p := range previous {
		keys.Keys = append(keys.Keys, p)
	}
	return &Tokens{secret: secret, keys: keys, now: now, verified: verified, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // or a token could choose "none"
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithStrictDecoding(),
		jwt.WithIssuer(tokenIssuer), jwt.WithAudience(tokenPurpose), jwt.WithTimeFunc(now),
	)}
}

// Heed has the tokens refused that were revoked. It must be called before the first Caller.
func (t *Tokens) Heed(revoked *Revocations) { t.revocations = revoked }

// Issue returns a token of the generation for the driver, and when it ends.
func (t *Tokens) Issue(driver dispatch.DriverID, generation int) (string, time.Time, error) {
	now := t.now().Truncate(time.Second)
	until := now.Add(TokenTTL)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, driverClaims{Generation: generation, RegisteredClaims: jwt.RegisteredClaims{
		Issuer: tokenIssuer, Audience: jwt.ClaimStrings{tokenPurpose}, Subject: string(driver),
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(until),
	}}).SignedString(t.secret)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a token: %w", err)
	}
	return token, until, nil
}

// Driver returns whose token it is, or ErrUnauthenticated. A token that was found good once is not computed again
// until it ends; whether it was revoked is looked up each time, in memory.
func (t *Tokens) Driver(token string) (dispatch.DriverID, error) {
	v, ok := t.verified.Get(token)
	if !ok || !t.now().Before(v.until) {
		var err error
		if v, err = t.verify(token); err != nil {
			return "", err
		}
		t.verified.Add(token, v)
	}
	if t.revocations.isRevoked(v.driver, v.generation) {
		return "", ErrTokenOver
	}
	return v.driver, nil
}

func (t *Tokens) verify(token string) (verifiedToken, error) {
	if strings.ContainsAny(token, "\r\n") {
		return verifiedToken{}, ErrUnauthenticated // what decodes base64 skips them
	}
	var claims driverClaims
	_, err := t.parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return t.keys, nil })
	if errors.Is(err, jwt.ErrTokenExpired) { // which is looked at once the signature is found good
		return verifiedToken{}, ErrTokenOver
	}
	if err != nil {
		return verifiedToken{}, ErrUnauthenticated
	}
	driver, err := dispatch.ParseDriverID(claims.Subject)
	if err != nil || claims.IssuedAt == nil || claims.ExpiresAt.Sub(claims.IssuedAt.Time) > TokenTTL {
		return verifiedToken{}, ErrUnauthenticated
	}
	return verifiedToken{driver: driver, generation: claims.Generation, until: claims.ExpiresAt.Time}, nil
}

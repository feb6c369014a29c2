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

// ErrTokenOver is an ErrUnauthenticated of a token that was good until its time was over: nobody has guessed it.
var ErrTokenOver = fmt.Errorf("%w: the token's time is over", ErrUnauthenticated)

const (
	// TokenTTL is how long a driver's token is good for.
	TokenTTL     = 30 * 24 * time.Hour
	tokenIssuer  = "firsttap"
	tokenPurpose = "driver"
	// verifiedTokens bounds the cache: several times the drivers there are.
	verifiedTokens = 16384
)

// Tokens issues drivers' tokens and tells whose they are. Safe for concurrent use.
type Tokens struct {
	secret   []byte
	parser   *jwt.Parser
	verified *lru.Cache[string, verifiedToken]
	now      func() time.Time
	trust    *trust // nil where only our own tokens count
}

type verifiedToken struct {
	driver dispatch.DriverID
	until  time.Time
}

// NewTokens returns Tokens under secret.
func NewTokens(secret []byte, now func() time.Time) *Tokens {
	verified, err := lru.New[string, verifiedToken](verifiedTokens)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &Tokens{secret: secret, now: now, verified: verified, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // or a token could choose "none"
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithStrictDecoding(),
		jwt.WithIssuer(tokenIssuer), jwt.WithAudience(tokenPurpose), jwt.WithTimeFunc(now),
	)}
}

// Issue returns a token for the driver and when it ends.
func (t *Tokens) Issue(driver dispatch.DriverID) (string, time.Time, error) {
	now := t.now().Truncate(time.Second)
	until := now.Add(TokenTTL)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer: tokenIssuer, Audience: jwt.ClaimStrings{tokenPurpose}, Subject: string(driver),
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(until),
	}).SignedString(t.secret)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a token: %w", err)
	}
	return token, until, nil
}

// Driver returns whose token it is, or ErrUnauthenticated. A token that was found good once is not computed again
// until it ends.
func (t *Tokens) Driver(token string) (dispatch.DriverID, error) {
	if v, ok := t.verified.Get(token); ok && t.now().Before(v.until) {
		return v.driver, nil
	}
	if strings.ContainsAny(token, "\r\n") {
		return "", ErrUnauthenticated // what decodes base64 skips them
	}
	var claims jwt.RegisteredClaims
	_, err := t.parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return t.secret, nil })
	if errors.Is(err, jwt.ErrTokenExpired) { // which is looked at once the signature is found good
		return "", ErrTokenOver
	}
	if err != nil {
		return "", ErrUnauthenticated
	}
	driver, err := dispatch.ParseDriverID(claims.Subject)
	if err != nil {
		return "", ErrUnauthenticated
	}
	t.verified.Add(token, verifiedToken{driver: driver, until: claims.ExpiresAt.Time})
	return driver, nil
}

package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

const (
	// TokenTTL is the lifetime of a driver's token.
	TokenTTL = 30 * 24 * time.Hour
	// clockTolerance is how far the clock of the instance that issued a token may be ahead of this one's.
	clockTolerance = time.Minute
	tokenIssuer    = "firsttap"
	tokenPurpose   = "driver"
	// maxVerifiedTokens bounds the cache: several times the number of drivers.
	maxVerifiedTokens = 16384
)

// TokenOptions configures Tokens. Secret and Now are required.
type TokenOptions struct {
	Secret []byte
	// Previous are earlier secrets, whose tokens stay valid.
	Previous [][]byte
	Now      func() time.Time
	// IDTokens verifies Firebase Auth's ID tokens, and Drivers finds their drivers; without them such tokens are refused.
	IDTokens IDTokens
	Drivers  DriversByUID
	// Revocations has the tokens that are refused before they expire. Required.
	Revocations *Revocations
}

// Tokens issues drivers' tokens and returns the driver of a token. Safe for concurrent use.
type Tokens struct {
	secret      []byte
	keys        jwt.VerificationKeySet // the secret, then the previous ones
	parser      *jwt.Parser
	idTokens    IDTokens // nil without Firebase
	users       *users
	revocations *Revocations
	verified    *lru.Cache[string, verifiedToken]
	now         func() time.Time
}

// verifiedToken is what a token with a valid signature says until it expires: its driver, or Firebase's user.
type verifiedToken struct {
	driver     dispatch.DriverID
	generation int
	user       IDToken
	until      time.Time
}

// driverClaims are a token's claims. A token without a generation is of generation 0.
type driverClaims struct {
	jwt.RegisteredClaims
	Generation int `json:"gen,omitempty"`
}

// NewTokens returns Tokens. It panics without Revocations.
func NewTokens(o TokenOptions) *Tokens {
	verified, err := lru.New[string, verifiedToken](maxVerifiedTokens)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	keys := jwt.VerificationKeySet{Keys: []jwt.VerificationKey{o.Secret}}
	for _, p := range o.Previous {
		keys.Keys = append(keys.Keys, p)
	}
	if o.Revocations == nil {
		panic("auth: TokenOptions.Revocations is missing")
	}
	t := &Tokens{
		secret: o.Secret, keys: keys, idTokens: o.IDTokens, users: newUsers(o.Drivers), revocations: o.Revocations,
		verified: verified, now: o.Now,
	}
	t.parser = jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // or a token could choose "none"
		jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
		jwt.WithIssuer(tokenIssuer), jwt.WithAudience(tokenPurpose), jwt.WithTimeFunc(o.Now),
	)
	return t
}

// Issue returns a token of that generation for the driver, and its expiry.
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

// Authenticate returns the driver of a token, ours or Firebase's. ErrUnauthenticated also for a Firebase user who is not a driver,
// ErrUnavailable where the token cannot be verified now. A valid signature is remembered until the token expires; whether the token was
// revoked, or its user disabled, is checked each time. A Firebase user who signed in before the driver's tokens were revoked must sign in
// again.
func (t *Tokens) Authenticate(ctx context.Context, token string) (dispatch.DriverID, error) {
	v, ok := t.verified.Get(token)
	if !ok || !t.now().Before(v.until) {
		var err error
		if v, err = t.verify(ctx, token); err != nil {
			return "", err
		}
		t.verified.Add(token, v)
	}
	if v.user.UID == "" {
		if t.revocations.isRevoked(v.driver, v.generation) {
			return "", ErrTokenEnded
		}
		return v.driver, nil
	}
	if !t.idTokens.Allows(ctx, v.user) {
		return "", ErrUnauthenticated
	}
	driver, err := t.users.driver(ctx, v.user.UID, t.now())
	if err == nil && t.revocations.revokedSince(driver, v.user.SignedIn) {
		return "", ErrTokenEnded
	}
	return driver, err
}

func (t *Tokens) verify(ctx context.Context, token string) (verifiedToken, error) {
	if strings.ContainsAny(token, "\r\n") {
		return verifiedToken{}, ErrUnauthenticated // base64 decoding skips them
	}
	v, err := t.verifyOwn(token)
	if err == nil || errors.Is(err, ErrTokenEnded) || t.idTokens == nil {
		return v, err
	}
	user, err := t.idTokens.Verify(ctx, token)
	return verifiedToken{user: user, until: user.ExpiresAt}, err
}

func (t *Tokens) verifyOwn(token string) (verifiedToken, error) {
	var claims driverClaims
	_, err := t.parser.ParseWithClaims(token, &claims, func(parsed *jwt.Token) (any, error) {
		if _, critical := parsed.Header["crit"]; critical { // names what a verifier must understand, and this one understands none of it
			return nil, jwt.ErrTokenUnverifiable
		}
		return t.keys, nil
	})
	if errors.Is(err, jwt.ErrTokenExpired) { // the parser checks it after the signature
		return verifiedToken{}, ErrTokenEnded
	}
	if err != nil {
		return verifiedToken{}, ErrUnauthenticated
	}
	driver, err := dispatch.ParseDriverID(claims.Subject)
	if err != nil || claims.IssuedAt == nil || claims.IssuedAt.After(t.now().Add(clockTolerance)) ||
		claims.ExpiresAt.Sub(claims.IssuedAt.Time) > TokenTTL {
		return verifiedToken{}, ErrUnauthenticated
	}
	return verifiedToken{driver: driver, generation: claims.Generation, until: claims.ExpiresAt.Time}, nil
}

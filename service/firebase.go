package service

import (
	"context"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

// IDTokens verifies ID tokens of Firebase Auth.
type IDTokens interface {
	// UID returns the token's user and when the user signed in, to the second. dispatch.ErrUnavailable says that the token
	// cannot be verified now, any other error that it is not valid.
	UID(ctx context.Context, token string) (uid string, signedIn time.Time, err error)
}

// noIDTokens is for a service without Firebase Auth.
type noIDTokens struct{}

func (noIDTokens) UID(context.Context, string) (string, time.Time, error) {
	return "", time.Time{}, ErrUnauthenticated
}

// DriversByUID finds the driver of a Firebase user.
type DriversByUID interface {
	// DriverByFirebaseUID returns ErrDriverNotFound where no driver has the uid.
	DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error)
}

const (
	// uidTTL is how long a user's driver is cached, and unknownUIDTTL how long the lack of one is: a driver who has just been
	// added must not wait for long.
	uidTTL        = 30 * time.Second
	unknownUIDTTL = 2 * time.Second
	maxKnownUIDs  = 16384
)

// firebaseUsers finds the drivers of ID tokens.
type firebaseUsers struct {
	idTokens IDTokens
	drivers  DriversByUID
	known    *lru.Cache[string, cachedDriver]
}

// cachedDriver has the driver "" for a user who is not a driver.
type cachedDriver struct {
	driver dispatch.DriverID
	until  time.Time
}

func newFirebaseUsers(ids IDTokens, drivers DriversByUID) *firebaseUsers {
	known, err := lru.New[string, cachedDriver](maxKnownUIDs)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &firebaseUsers{idTokens: ids, drivers: drivers, known: known}
}

// Authenticate returns the driver of a token, ours or Firebase's. ErrUnauthenticated also for a Firebase user who is not a driver,
// ErrUnavailable where the token cannot be verified now. A changed firebase_uid takes effect within half a minute. A user who
// signed in before the driver's tokens were revoked must sign in again.
func (t *Tokens) Authenticate(ctx context.Context, token string) (dispatch.DriverID, error) {
	driver, err := t.Driver(token)
	if err == nil || errors.Is(err, ErrTokenEnded) {
		return driver, err
	}
	uid, signedIn, err := t.firebase.idTokens.UID(ctx, token)
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		return "", err
	case errors.Is(err, jwt.ErrTokenExpired):
		return "", ErrTokenEnded
	case err != nil:
		return "", ErrUnauthenticated
	}
	driver, err = t.firebase.driver(ctx, uid, t.now())
	if err == nil && t.revocations.revokedSince(driver, signedIn) {
		return "", ErrTokenEnded
	}
	return driver, err
}

func (t *firebaseUsers) driver(ctx context.Context, uid string, now time.Time) (dispatch.DriverID, error) {
	v, ok := t.known.Get(uid)
	if !ok || !now.Before(v.until) {
		driver, err := t.drivers.DriverByFirebaseUID(ctx, uid)
		switch {
		case errors.Is(err, dispatch.ErrDriverNotFound):
			v = cachedDriver{until: now.Add(unknownUIDTTL)}
		case err != nil:
			return "", err
		default:
			v = cachedDriver{driver: driver, until: now.Add(uidTTL)}
		}
		t.known.Add(uid, v)
	}
	if v.driver == "" {
		return "", ErrUnauthenticated
	}
	return v.driver, nil
}

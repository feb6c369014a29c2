package service

import (
	"context"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

// IDTokens tells whose an ID token of Firebase Auth is, the uid, and when they signed in, to the second;
// dispatch.ErrUnavailable when nobody can tell, any other error when it proves nothing.
type IDTokens interface {
	UID(ctx context.Context, token string) (uid string, signedIn time.Time, err error)
}

// UIDs finds the driver of a Firebase user. ErrDriverNotFound.
type UIDs interface {
	DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error)
}

const (
	// uidTTL is for how long a user's driver is not looked up again, and unknownUID for how long a user is known not to
	// be one: a driver that has just been added need not wait for long.
	uidTTL        = 30 * time.Second
	unknownUIDTTL = 2 * time.Second
	maxKnownUIDs  = 16384
)

// firebaseUsers is whom else but ourselves we believe.
type firebaseUsers struct {
	idTokens IDTokens
	drivers  UIDs
	known    *lru.Cache[string, cachedDriver]
}

// cachedDriver has no driver where the user is none.
type cachedDriver struct {
	driver dispatch.DriverID
	until  time.Time
}

// Trust has ID tokens of Firebase Auth taken beside our own. It must be called before the first Caller.
func (t *Tokens) Trust(ids IDTokens, drivers UIDs) {
	known, err := lru.New[string, cachedDriver](maxKnownUIDs)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	t.firebase = &firebaseUsers{idTokens: ids, drivers: drivers, known: known}
}

// Caller returns whose token it is, ours or Firebase's: ErrUnauthenticated also when the Firebase user is no driver's.
// ErrUnavailable when nobody can tell. A driver's changed firebase_uid counts within half a minute. A Firebase user who signed in
// before the driver's tokens were revoked has to sign in again.
func (t *Tokens) Caller(ctx context.Context, token string) (dispatch.DriverID, error) {
	driver, err := t.Driver(token)
	if err == nil || t.firebase == nil || errors.Is(err, ErrTokenOver) {
		return driver, err
	}
	uid, signedIn, err := t.firebase.idTokens.UID(ctx, token)
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		return "", err
	case errors.Is(err, jwt.ErrTokenExpired):
		return "", ErrTokenOver
	case err != nil:
		return "", ErrUnauthenticated
	}
	driver, err = t.firebase.driver(ctx, uid, t.now())
	if err == nil && t.revocations.revokedSince(driver, signedIn) {
		return "", ErrTokenOver
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

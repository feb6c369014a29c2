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
	// knownUID is for how long a user's driver is not looked up again, and unknownUID for how long a user is known not to
	// be one: a driver that has just been added need not wait for long.
	knownUID   = 30 * time.Second
	unknownUID = 2 * time.Second
	knownUIDs  = 16384
)

// trust is whom else but ourselves we believe.
type trust struct {
	ids     IDTokens
	drivers UIDs
	known   *lru.Cache[string, knownDriver]
}

// knownDriver has no driver where the user is none.
type knownDriver struct {
	driver dispatch.DriverID
	until  time.Time
}

// Trust has ID tokens of Firebase Auth taken beside our own. It must be called before the first Caller.
func (t *Tokens) Trust(ids IDTokens, drivers UIDs) {
	known, err := lru.New[string, knownDriver](knownUIDs)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	t.trust = &trust{ids: ids, drivers: drivers, known: known}
}

// Caller returns whose token it is, ours or Firebase's: ErrUnauthenticated also when the Firebase user is no driver's.
// ErrUnavailable when nobody can tell. A driver's changed firebase_uid counts within half a minute. A Firebase user who signed in
// before the driver's tokens were revoked has to sign in again.
func (t *Tokens) Caller(ctx context.Context, token string) (dispatch.DriverID, error) {
	driver, err := t.Driver(token)
	if err == nil || t.trust == nil || errors.Is(err, ErrTokenOver) {
		return driver, err
	}
	uid, signedIn, err := t.trust.ids.UID(ctx, token)
	switch {
	case errors.Is(err, dispatch.ErrUnavailable):
		return "", err
	case errors.Is(err, jwt.ErrTokenExpired):
		return "", ErrTokenOver
	case err != nil:
		return "", ErrUnauthenticated
	}
	driver, err = t.trust.driver(ctx, uid, t.now())
	if err == nil && t.revoked.signedOut(driver, signedIn) {
		return "", ErrTokenOver
	}
	return driver, err
}

func (t *trust) driver(ctx context.Context, uid string, now time.Time) (dispatch.DriverID, error) {
	v, ok := t.known.Get(uid)
	if !ok || !now.Before(v.until) {
		driver, err := t.drivers.DriverByFirebaseUID(ctx, uid)
		switch {
		case errors.Is(err, dispatch.ErrDriverNotFound):
			v = knownDriver{until: now.Add(unknownUID)}
		case err != nil:
			return "", err
		default:
			v = knownDriver{driver: driver, until: now.Add(knownUID)}
		}
		t.known.Add(uid, v)
	}
	if v.driver == "" {
		return "", ErrUnauthenticated
	}
	return v.driver, nil
}

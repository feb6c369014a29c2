package auth

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

// IDToken is what an ID token of Firebase Auth says. Its times are in whole seconds.
type IDToken struct {
	UID                           string
	SignedIn, IssuedAt, ExpiresAt time.Time
}

// IDTokens verifies ID tokens of Firebase Auth.
type IDTokens interface {
	// Verify checks the token itself. ErrUnauthenticated, ErrTokenEnded; dispatch.ErrUnavailable if it cannot be verified now.
	Verify(ctx context.Context, token string) (IDToken, error)
	// Allows reports whether the user of a valid token may still use it.
	Allows(ctx context.Context, t IDToken) bool
}

// DriversByUID finds the driver of a Firebase user.
type DriversByUID interface {
	// DriverByFirebaseUID returns ErrDriverNotFound where no driver has the uid.
	DriverByFirebaseUID(ctx context.Context, uid string) (dispatch.DriverID, error)
}

const (
	// uidTTL is how long it is remembered which driver a user is.
	uidTTL = 30 * time.Second
	// unknownUIDTTL is how long it is remembered that a user is no driver. It is short, because the user may become one at any moment.
	unknownUIDTTL = 2 * time.Second
	maxKnownUIDs  = 16384
)

// users finds the drivers of Firebase's users. A changed firebase_uid takes effect within uidTTL.
type users struct {
	store DriversByUID
	known *lru.Cache[string, knownUser]
}

// knownUser is what is remembered of a user, until a time. The driver is "" if the user is no driver.
type knownUser struct {
	driver dispatch.DriverID
	until  time.Time
}

func newUsers(store DriversByUID) *users {
	known, err := lru.New[string, knownUser](maxKnownUIDs)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &users{store: store, known: known}
}

// driver returns the user's driver, ErrUnauthenticated for none, or ErrUnavailable.
func (u *users) driver(ctx context.Context, uid string, now time.Time) (dispatch.DriverID, error) {
	v, ok := u.known.Get(uid)
	if !ok || !now.Before(v.until) {
		driver, err := u.store.DriverByFirebaseUID(ctx, uid)
		switch {
		case errors.Is(err, dispatch.ErrDriverNotFound):
			v = knownUser{until: now.Add(unknownUIDTTL)}
		case err != nil:
			return "", err
		default:
			v = knownUser{driver: driver, until: now.Add(uidTTL)}
		}
		u.known.Add(uid, v)
	}
	if v.driver == "" {
		return "", ErrUnauthenticated
	}
	return v.driver, nil
}

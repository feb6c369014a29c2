// Package auth says who is calling: which driver a token names, and which key a secret is.
//
//   - tokens.go: drivers' tokens, our own and Firebase's; firebase.go finds the drivers of Firebase's users
//   - revocations.go: which of our tokens ended before their time
//   - keys.go: admins' keys, and the list of those in force
//   - signins.go: how many sign-ins may fail, and where the failures are written
//
// How a request shows its credentials, sessions' cookies among them, is the business of package handler.
package auth

import (
	"errors"
	"fmt"
)

// ErrUnauthenticated says that a token or key is not valid.
var ErrUnauthenticated = errors.New("the credentials are missing, wrong or expired")

// ErrTokenEnded is an ErrUnauthenticated of a token that was valid until it expired or was revoked, so it was not guessed.
var ErrTokenEnded = fmt.Errorf("%w: the token has expired or was revoked", ErrUnauthenticated)

// Package lock holds named leases: at most one owner of a name at a time, for as long as the lease lasts.
//
// A lease is advice, not proof. A paused process, a failover or a flush can leave two owners; whoever writes must
// let the resource itself refuse the second one. The package knows names, and nothing of what they stand for.
package lock

import (
	"errors"
	"fmt"
)

var (
	// ErrHeld says that the name has an owner.
	ErrHeld = errors.New("lock: held")
	// ErrUnavailable says that nobody can tell whether the name has an owner.
	ErrUnavailable = errors.New("lock: unavailable")
	// ErrLost says that the lease is no longer the caller's.
	ErrLost = errors.New("lock: lost")
)

// HeldError is ErrHeld with who has the name.
type HeldError struct{ Owner string }

func (e *HeldError) Error() string { return fmt.Sprintf("lock: held by %s", e.Owner) }

// Unwrap makes every HeldError an ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

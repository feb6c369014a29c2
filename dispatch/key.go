package dispatch

import (
	"errors"
	"time"
)

// Role is the role of an admin's key. Each role includes the ones before it.
type Role int

// The roles.
const (
	Viewer Role = iota + 1
	Dispatcher
	Admin
)

var roleNames = [...]string{Viewer: "viewer", Dispatcher: "dispatcher", Admin: "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole returns the role of that name, 0 for none.
func ParseRole(name string) Role {
	for r := Viewer; r <= Admin; r++ {
		if roleNames[r] == name {
			return r
		}
	}
	return 0
}

// Key is an admin's key. Only the hash of its secret is stored.
type Key struct {
	ID   string
	Name string
	Role Role
	Hash string
}

// FirstKeyID is the key that the settings define.
const FirstKeyID = "key_first"

// ErrFirstKey says that the settings define the key, so that it cannot be revoked.
var ErrFirstKey = errors.New("FIRSTTAP_ADMIN_KEY defines this key: replace it there, as it cannot be revoked")

// KeyRecord is a stored key, for the backoffice.
type KeyRecord struct {
	Key
	CreatedAt time.Time
	RevokedAt *time.Time
}

// ErrOldSecret says that a secret was in force once and was replaced, or revoked: it does not come back.
var ErrOldSecret = errors.New("the secret was replaced or revoked before")

// Fingerprint names a secret without telling it: the beginning of its hash, which is in hexadecimal digits.
func Fingerprint(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

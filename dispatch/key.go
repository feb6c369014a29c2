package dispatch

import (
	"errors"
	"time"
)

// Role is what an admin's key may do; each includes the ones before it.
type Role int

// The roles.
const (
	Viewer Role = iota + 1
	Dispatcher
	Admin
)

var roleNames = [...]string{Viewer: "viewer", Dispatcher: "dispatcher", Admin: "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole returns the role of that name; 0, which may do nothing, if there is none.
func ParseRole(name string) Role {
	for r := Viewer; r <= Admin; r++ {
		if roleNames[r] == name {
			return r
		}
	}
	return 0
}

// Key is an admin's key, of which only the hash is known.
type Key struct {
	ID   string
	Name string
	Role Role
	Hash string
}

// FirstKeyID names the key that the settings give.
const FirstKeyID = "key_first"

// ErrFirstKey says that the key is the settings': it is replaced there, and can't be revoked.
var ErrFirstKey = errors.New("this key is the one in FIRSTTAP_ADMIN_KEY: it can't be revoked, only replaced there")

// KeyRecord is a key as the backoffice sees it.
type KeyRecord struct {
	Key
	CreatedAt time.Time
	RevokedAt *time.Time
}

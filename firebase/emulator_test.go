package firebase

import (
	"testing"
	"time"

	"firsttap/servertest"
)

// TestRealEmulator: what Firebase's own emulator says of its users, and how soon it counts.
func TestRealEmulator(t *testing.T) {
	e := servertest.StartFirebaseAuth(t)
	for name, end := range map[string]func(uid string){
		"disabled": func(uid string) { e.Disable(uid, true) },
		"revoked":  func(uid string) { e.Revoke(uid, time.Now().Add(time.Minute).Unix()) },
		"deleted":  e.Delete,
	} {
		c := &clock{t: time.Now()}
		ids, _ := newEmulated(t, e.Addr(), c)
		uid, token := e.SignUp(name + "@example.com")
		c.pass(time.Second) // it may be the next one by now
		for range 2 {
			if got, _, err := ids.UID(t.Context(), token); err != nil || got != uid {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		end(uid)
		if _, _, err := ids.UID(t.Context(), token); err != nil {
			t.Errorf("%s: looked up within half a minute: %v", name, err)
		}
		c.pass(time.Minute)
		if got, _, err := ids.UID(t.Context(), token); !is(err, ErrRefused) {
			t.Errorf("%s, a minute ago: %q, %v", name, got, err)
		}
	}
}

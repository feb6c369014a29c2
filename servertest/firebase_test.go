package servertest

import (
	"strings"
	"testing"
)

func TestFirebaseAuth(t *testing.T) {
	e := StartFirebaseAuth(t)
	uid, token := e.SignUp("kim@example.com")
	if uid == "" || len(strings.Split(token, ".")) != 3 {
		t.Errorf("%q, %q", uid, token)
	}
	e.Disable(uid, true)
	e.Revoke(uid, 1)
	e.Delete(uid)
}

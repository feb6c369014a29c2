package servertest

import (
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

func TestFirebaseAuth(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	e := StartFirebaseAuth(t)
	uid, token := e.SignUp("kim@example.com")
	if uid == "" || len(strings.Split(token, ".")) != 3 {
		t.Errorf("%q, %q", uid, token)
	}
	e.Disable(uid, true)
	e.Revoke(uid, 1)
	e.Delete(uid)
}

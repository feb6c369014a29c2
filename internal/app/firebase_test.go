package app

import (
	"testing"

	"firsttap/handler"
	"firsttap/internal/config"
	"firsttap/internal/testkit"
)

// TestBrowsersSignInWithFirebase where there is a key for it, or an emulator, which takes any.
func TestBrowsersSignInWithFirebase(t *testing.T) {
	signIn := func(key, emulator string) *handler.FirebaseSignIn {
		return &handler.FirebaseSignIn{Project: "p", APIKey: key, Emulator: emulator}
	}
	for name, c := range map[string]struct {
		project, key, emulator string
		want                   *handler.FirebaseSignIn
	}{
		"nothing":                             {"", "", "", nil},
		"a project only":                      {"p", "", "", nil},
		"a key":                               {"p", "AIza", "", signIn("AIza", "")},
		"an emulator":                         {"p", "", "127.0.0.1:9099", signIn("emulator", "http://127.0.0.1:9099")},
		"an emulator, and a key":              {"p", "AIza", "auth-emulator:9099", signIn("AIza", "http://auth-emulator:9099")},
		"an emulator that listens everywhere": {"p", "", "0.0.0.0:9099", signIn("emulator", "http://localhost:9099")},
		"the same, in short":                  {"p", "", ":9099", signIn("emulator", "http://localhost:9099")},
		"an emulator by IPv6":                 {"p", "", "[::1]:9099", signIn("emulator", "http://localhost:9099")},
	} {
		config, err := config.Read(testkit.Settings(
			"FIRSTTAP_FIREBASE_PROJECT", c.project, "FIRSTTAP_FIREBASE_WEB_KEY", c.key, "FIREBASE_AUTH_EMULATOR_HOST", c.emulator))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testkit.Equal(t, name, c.want, browserSignIn(config.Push))
	}
}

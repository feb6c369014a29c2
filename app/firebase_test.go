package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/config"
	"firsttap/handler"
	"firsttap/testkit"
)

// TestBrowsersSignInWithFirebase where there is a key for it, or an emulator, which takes any.
func TestBrowsersSignInWithFirebase(t *testing.T) {
	for name, c := range map[string]struct {
		pairs []string
		want  *handler.FirebaseSignIn
	}{
		"nothing":        {nil, nil},
		"a project only": {[]string{"FIRSTTAP_FIREBASE_PROJECT", "p"}, nil},
		"a key":          {[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIRSTTAP_FIREBASE_WEB_KEY", "AIza"}, &handler.FirebaseSignIn{Project: "p", APIKey: "AIza"}},
		"an emulator": {
			[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", "127.0.0.1:9099"},
			&handler.FirebaseSignIn{Project: "p", APIKey: "emulator", Emulator: "http://127.0.0.1:9099"},
		},
		"an emulator, and a key": {
			[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", "auth-emulator:9099", "FIRSTTAP_FIREBASE_WEB_KEY", "AIza"},
			&handler.FirebaseSignIn{Project: "p", APIKey: "AIza", Emulator: "http://auth-emulator:9099"},
		},
		"an emulator that listens everywhere": {
			[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", "0.0.0.0:9099"},
			&handler.FirebaseSignIn{Project: "p", APIKey: "emulator", Emulator: "http://localhost:9099"},
		},
		"the same, in short": {
			[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", ":9099"},
			&handler.FirebaseSignIn{Project: "p", APIKey: "emulator", Emulator: "http://localhost:9099"},
		},
		"an emulator by IPv6": {
			[]string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", "[::1]:9099"},
			&handler.FirebaseSignIn{Project: "p", APIKey: "emulator", Emulator: "http://localhost:9099"},
		},
	} {
		config, err := config.Read(testkit.Settings(c.pairs...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, browserSignIn(config.Push)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

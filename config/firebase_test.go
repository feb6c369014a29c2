package config

import (
	"strings"
	"testing"

	"firsttap/testkit"
)

// TestEmulatorIsRefused where anything is real, and where nobody would be asked for its tokens.
func TestEmulatorIsRefused(t *testing.T) {
	for name, pairs := range map[string][]string{
		"credentials":  {"FIRSTTAP_FIREBASE_PROJECT", "p", "GOOGLE_APPLICATION_CREDENTIALS", "key.json"},
		"the real FCM": {"FIRSTTAP_FIREBASE_PROJECT", "p", "FIRSTTAP_PUSH", "fcm"},
		"no project":   {},
	} {
		_, err := Read(testkit.Settings(append(pairs, "FIREBASE_AUTH_EMULATOR_HOST", "127.0.0.1:9099")...))
		if err == nil || !strings.Contains(err.Error(), "FIREBASE_AUTH_EMULATOR_HOST") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "http://127.0.0.1:9099", "h:x", "h;script-src *:9099", "*:9099", "a b:9099", "h'self':9099", "auth_emulator:9099", "[2001:db8::1]:9099"} {
		_, err := Read(testkit.Settings("FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", host))
		if err == nil || !strings.Contains(err.Error(), "FIREBASE_AUTH_EMULATOR_HOST") {
			t.Errorf("%s was taken: %v", host, err)
		}
	}
}

// TestEmulatorPushesNothing unless it is said where to: there are no credentials for FCM.
func TestEmulatorPushesNothing(t *testing.T) {
	emulated := []string{"FIRSTTAP_FIREBASE_PROJECT", "p", "FIREBASE_AUTH_EMULATOR_HOST", "127.0.0.1:9099"}
	c, err := Read(testkit.Settings(emulated...))
	if err != nil || c.Push.FCM || c.Push.AuthEmulator != "127.0.0.1:9099" {
		t.Errorf("%v, %+v", err, c.Push)
	}
	c, err = Read(testkit.Settings(append(emulated, "FIRSTTAP_FCM_ENDPOINT", "http://127.0.0.1:1/v1")...))
	if err != nil || !c.Push.FCM {
		t.Errorf("%v, %+v", err, c.Push)
	}
}

// TestWebKeysThatAreNone: not a service account's file, and nothing that would mean something else in an address.
func TestWebKeysThatAreNone(t *testing.T) {
	for _, bad := range []string{`{"type":"service_account"}`, "AIza?x", "AIza&x=1", "AI za", "열쇠", "AIza\n"} {
		_, err := Read(testkit.Settings("FIRSTTAP_FIREBASE_PROJECT", "p", "FIRSTTAP_FIREBASE_WEB_KEY", bad))
		if err == nil || !strings.Contains(err.Error(), "FIRSTTAP_FIREBASE_WEB_KEY") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

package firebase

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firsttap/testkit"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServiceAccount: lookups use the file's access token, and requests for keys use none.
func TestServiceAccount(t *testing.T) {
	p := newPlace(t, true, func(o *Options) { o.CredentialsFile = testkit.ServiceAccount(t, o.UsersURL+"/token") })
	p.user("kim", "disabled", true)
	p.user("lee")
	p.google.set(func() { p.google.bearer = "Bearer an-access-token" })
	p.fails("disabled", p.token("kim"), ErrRefused)
	p.is("enabled", p.token("lee"), "lee")
	testkit.Equal(t, "the log", "", p.log.String())
}

func TestBadCredentials(t *testing.T) {
	for name, file := range map[string]string{
		"no file": "/nowhere/key.json", "no JSON": writeFile(t, "x"), "no type": writeFile(t, "{}"), "no account": writeFile(t, `{"type":"service_account"}`),
	} {
		ids, err := New(t.Context(), Options{Project: project, CredentialsFile: file, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			ids.Close()
			t.Errorf("%s: started", name)
		} else if !strings.Contains(err.Error(), "credentials of Firebase Auth") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

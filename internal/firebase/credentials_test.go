package firebase

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firsttap/internal/auth"
	"firsttap/internal/testkit"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServiceAccount: lookups use the file's access token, and requests for keys use none. The doctor asks both.
func TestServiceAccount(t *testing.T) {
	p := newPlace(t, true, func(o *Options) { o.CredentialsFile = testkit.ServiceAccount(t, o.UsersURL+"/token") })
	p.user("kim", "disabled", true)
	p.user("lee")
	p.fake.set(func() { p.fake.bearer = "Bearer an-access-token" })
	p.fails("disabled", p.token("kim"), auth.ErrUnauthenticated)
	p.is("enabled", p.token("lee"), "lee")
	testkit.Equal(t, "the log", "", p.log.String())
	if n, err := p.CheckKeys(t.Context()); n != 1 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
	if asked, err := p.CheckLookup(t.Context()); !asked || err != nil {
		t.Errorf("asked %v, %v", asked, err)
	}
	p.fake.set(func() { p.fake.down = true })
	if _, err := p.CheckKeys(t.Context()); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("the keys while Google is away: %v", err)
	}
	if _, err := p.CheckLookup(t.Context()); err == nil {
		t.Error("a lookup while Google is away")
	}
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

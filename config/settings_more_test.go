package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firsttap/systemtest"
	"firsttap/testkit"
)

// TestEmptySecretIsNoSecret: with an empty file beside the database everybody could sign tokens.
func TestEmptySecretIsNoSecret(t *testing.T) {
	for _, content := range []string{"", "\n", "  \n"} {
		dir := t.TempDir()
		for _, name := range []string{"data.admin-key", "data.jwt-secret"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := configIn(dir)
		if err := c.MakeSecrets(); err == nil && (c.AdminKey == "" || c.JWTSecret == "") {
			t.Errorf("files that hold %q: the admin key is %q, the tokens' secret %q, and the start goes on", content, c.AdminKey, c.JWTSecret)
		}
	}
}

// TestShortSecretInAFile stops the start, and says which file it is without what is in it.
func TestShortSecretInAFile(t *testing.T) {
	long, short := strings.Repeat("a", minSecret), strings.Repeat("b", minSecret-1)
	for name, ending := range map[string]string{"admin-key": "data.admin-key", "jwt-secret": "data.jwt-secret"} {
		dir := t.TempDir()
		file := filepath.Join(dir, ending)
		for secret, good := range map[string]bool{short: false, long: true} {
			if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := configIn(dir)
			err := c.MakeSecrets()
			if (err == nil) != good {
				t.Errorf("%s of %d characters: %v", name, len(secret), err)
			}
			if err != nil && (!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the file") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s: %v", name, err)
			}
			c = configIn(dir)
			if err := c.FindAdminKey(); name == "admin-key" && (err == nil) != good {
				t.Errorf("found an admin key of %d characters: %v", len(secret), err)
			}
		}
	}
}

// TestPreviousSecret is another one than the current, in the environment as in the file beside the database.
func TestPreviousSecret(t *testing.T) {
	first, second := strings.Repeat("a", minSecret), strings.Repeat("b", minSecret)
	for current, good := range map[string]bool{second: true, first: false, "": true} {
		_, err := Read(testkit.Settings(jwtSecretVar, current, previousSecretVar, first))
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), previousSecretVar) {
			t.Errorf("the current secret is %q: %v", current, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data.jwt-secret"), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	for previous, good := range map[string]bool{second: true, first: false} {
		c := configIn(dir)
		c.PreviousJWTSecret = previous
		if err := c.MakeSecrets(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), previousSecretVar) {
			t.Errorf("the secret of before is %q: %v", previous, err)
		}
	}
}

// TestSettingsThatFailLater are found when the listeners and the database are opened, one by one, and not by ReadConfig.
func TestSettingsThatFailLater(t *testing.T) {
	for _, pair := range [][2]string{
		{"FIRSTTAP_ADDR", ":99999"}, {"FIRSTTAP_ADDR", ":-1"}, {"FIRSTTAP_ADDR", "http://x"},
		{"FIRSTTAP_DATABASE_URL", "mysql://"}, {"FIRSTTAP_DATABASE_URL", "mysql://h:3306"}, {"FIRSTTAP_DATABASE_URL", "mysql://u:p@h:x/n"},
	} {
		_, err := Read(testkit.Settings(pair[0], pair[1], adminKeyVar, systemtest.AdminKey, jwtSecretVar, systemtest.JWTSecret))
		if err == nil || !strings.Contains(err.Error(), pair[0]) {
			t.Errorf("%s=%s: %v", pair[0], pair[1], err)
		}
	}
}

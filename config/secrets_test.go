package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"firsttap/testkit"
)

// configIn is a configuration with its SQLite database in dir.
func configIn(t testing.TB, dir string) Config {
	t.Helper()
	c, err := Read(testkit.Settings("FIRSTTAP_DATABASE_URL", "sqlite://"+filepath.Join(dir, "data.db")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSecretsAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := configIn(t, dir), configIn(t, dir)
	if err := errors.Join(first.MakeSecrets(), second.MakeSecrets()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first.NewSecretFiles, first.SecretFiles) || second.NewSecretFiles != nil {
		t.Errorf("the first has made %v, and the second %v", first.NewSecretFiles, second.NewSecretFiles)
	}
	second.NewSecretFiles = first.NewSecretFiles
	if !reflect.DeepEqual(first, second) {
		t.Errorf("read again:\n%+v\n%+v", first, second)
	}
	if len(first.AdminKey) < 32 || len(first.JWTSecret) < 32 || first.AdminKey == first.JWTSecret {
		t.Errorf("secrets %q and %q", first.AdminKey, first.JWTSecret)
	}
	if want := []string{filepath.Join(dir, "data.admin-key"), filepath.Join(dir, "data.jwt-secret")}; !reflect.DeepEqual(first.SecretFiles, want) {
		t.Errorf("files %v, want %v", first.SecretFiles, want)
	}
	for i, name := range first.SecretFiles {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		raw, err := os.ReadFile(name)
		if want := []string{first.AdminKey, first.JWTSecret}[i]; err != nil || strings.TrimSpace(string(raw)) != want {
			t.Errorf("%s holds %q, %v; want %q", name, raw, err, want)
		}
	}
	testkit.MustHoldFiles(t, dir, "data.admin-key", "data.jwt-secret")

	elsewhere := configIn(t, t.TempDir())
	if err := elsewhere.MakeSecrets(); err != nil || elsewhere.AdminKey == first.AdminKey || elsewhere.JWTSecret == first.JWTSecret {
		t.Errorf("the same secrets elsewhere, %v", err)
	}
}

// TestSecretsMadeAtOnce are the same for all. Processes share only the files, so goroutines can stand for them.
func TestSecretsMadeAtOnce(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		configs, errs := make([]Config, 8), make([]error, 8)
		for i := range configs {
			configs[i] = configIn(t, dir)
		}
		testkit.Together(len(configs), func(i int) {
			errs[i] = configs[i].MakeSecrets()
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var made []string
		for i := range configs {
			made = append(made, configs[i].NewSecretFiles...)
			configs[i].NewSecretFiles = nil
		}
		if slices.Sort(made); !slices.Equal(made, configs[0].SecretFiles) {
			t.Errorf("made %v, want each file once", made)
		}
		for _, c := range configs[1:] {
			if !reflect.DeepEqual(c, configs[0]) {
				t.Fatalf("they don't agree:\n%+v\n%+v", configs[0], c)
			}
		}
		testkit.MustHoldFiles(t, dir, "data.admin-key", "data.jwt-secret")
	}
}

func TestSecretsOfTheEnvironmentAreKept(t *testing.T) {
	dir := t.TempDir()
	c := configIn(t, dir)
	c.AdminKey, c.JWTSecret = adminKey, jwtSecret
	if err := c.MakeSecrets(); err != nil || c.AdminKey != adminKey || c.JWTSecret != jwtSecret || len(c.SecretFiles) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	testkit.MustHoldFiles(t, dir)
	c.JWTSecret = ""
	if err := c.MakeSecrets(); err != nil || c.AdminKey != adminKey || c.JWTSecret == "" {
		t.Errorf("%+v, %v", c, err)
	}
	testkit.MustHoldFiles(t, dir, "data.jwt-secret")
}

func TestSecretsThatCannotBeHad(t *testing.T) {
	c := configIn(t, filepath.Join(t.TempDir(), "not", "there"))
	if err := c.MakeSecrets(); !errors.Is(err, fs.ErrNotExist) || c.AdminKey != "" {
		t.Errorf("no folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data.admin-key"), 0o700); err != nil {
		t.Fatal(err)
	}
	c = configIn(t, dir)
	if err := c.MakeSecrets(); err == nil {
		t.Errorf("a folder in place of the file: %q", c.AdminKey)
	}
}

// TestEmptySecretIsNoSecret: with an empty secret any client could sign tokens.
func TestEmptySecretIsNoSecret(t *testing.T) {
	for _, content := range []string{"", "\n", "  \n"} {
		dir := t.TempDir()
		for _, name := range []string{"data.admin-key", "data.jwt-secret"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := configIn(t, dir)
		if err := c.MakeSecrets(); err == nil && (c.AdminKey == "" || c.JWTSecret == "") {
			t.Errorf("files that hold %q: the admin key is %q, the tokens' secret %q, and the start goes on", content, c.AdminKey, c.JWTSecret)
		}
	}
}

// TestShortSecretInAFile: the error names the file and does not show the secret.
func TestShortSecretInAFile(t *testing.T) {
	long, short := strings.Repeat("a", minSecret), strings.Repeat("b", minSecret-1)
	for name, ending := range map[string]string{"admin-key": "data.admin-key", "jwt-secret": "data.jwt-secret"} {
		dir := t.TempDir()
		file := filepath.Join(dir, ending)
		for secret, good := range map[string]bool{short: false, long: true} {
			if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := configIn(t, dir)
			err := c.MakeSecrets()
			if (err == nil) != good {
				t.Errorf("%s of %d characters: %v", name, len(secret), err)
			}
			if err != nil && (!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the file") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s: %v", name, err)
			}
			c = configIn(t, dir)
			if err := c.FindAdminKey(); name == "admin-key" && (err == nil) != good {
				t.Errorf("found an admin key of %d characters: %v", len(secret), err)
			}
		}
	}
}

// TestPreviousSecret must differ from the current one, wherever that comes from.
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
		c := configIn(t, dir)
		c.PreviousJWTSecret = previous
		if err := c.MakeSecrets(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), previousSecretVar) {
			t.Errorf("the secret of before is %q: %v", previous, err)
		}
	}
}

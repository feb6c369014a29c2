package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"firsttap/internal/testkit"
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

// Each setting of ours may be in a file, whose name is in the variable with _FILE; a file that can't be used is named with its cause.
func TestSettingsInFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := Read(testkit.Settings(
		"FIRSTTAP_ADMIN_KEY_FILE", file("key", adminKey+"\n"), "FIRSTTAP_JWT_SECRET_FILE", file("secret", jwtSecret+"\r\n"),
		"FIRSTTAP_JWT_SECRET_PREVIOUS_FILE", file("previous", adminKey), "FIRSTTAP_DATABASE_URL_FILE", file("database", "mysql://u:p@h/n\n"),
		"FIRSTTAP_DATABASE_READ_URL_FILE", file("replica", "mysql://u:p@r/n"), "FIRSTTAP_REDIS_URL_FILE", file("redis", "redis://h\n"),
		"FIRSTTAP_JOB_LOCK", "quorum", "FIRSTTAP_QUORUM_URLS_FILE", file("quorum", "redis://a,redis://b,redis://c\n")))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "settings",
		[]string{adminKey, jwtSecret, adminKey, "mysql://u:p@h/n", "mysql://u:p@r/n", "redis://h", "redis://c"},
		[]string{c.AdminKey, c.JWTSecret, c.PreviousJWTSecret, c.DatabaseURL, c.ReadURL, c.RedisURL, c.QuorumURLs[2]})
	for _, bad := range [][]string{
		{"FIRSTTAP_ADMIN_KEY_FILE", filepath.Join(dir, "missing"), "missing: no such file"},
		{"FIRSTTAP_ADMIN_KEY_FILE", dir, dir + ": is a directory"},
		{"FIRSTTAP_ADMIN_KEY_FILE", file("empty", "\n"), "empty is empty"},
		{"FIRSTTAP_ADMIN_KEY_FILE", filepath.Join(dir, "key"), "FIRSTTAP_ADMIN_KEY is set, too", "FIRSTTAP_ADMIN_KEY", adminKey},
	} {
		_, err := Read(testkit.Settings(append(bad[:2:2], bad[3:]...)...))
		if err == nil || !strings.Contains(err.Error(), bad[0]+": ") || !strings.Contains(err.Error(), bad[2]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A name that begins as a setting and is none is a problem, with the setting that is near, if one is; what Kubernetes sets for services is
// none.
func TestUnknownNames(t *testing.T) {
	for name, nearest := range map[string]string{
		"FIRSTTAP_RETENTON": "FIRSTTAP_RETENTION", "FIRSTTAP_REDDIS_URL": "FIRSTTAP_REDIS_URL", "FIRSTTAP_ADMINKEY": "FIRSTTAP_ADMIN_KEY",
		"FIRSTTAP_DATABASE_URL_FIL": "FIRSTTAP_DATABASE_URL_FILE", "FIRSTTAP_JWT_SECRETS": "FIRSTTAP_JWT_SECRET", "FIRSTTAP_TIME_ZONE": "FIRSTTAP_TIMEZONE",
		"FIRSTTAP_PORT": "", "FIRSTTAP_": "",
	} {
		_, err := Read(testkit.Settings(name, "8080"), "PATH", name)
		next := "did you mean " + nearest + "?"
		if nearest == "" {
			next = "README.md lists the settings"
		}
		if err == nil || !strings.Contains(err.Error(), name+": there is no such setting; "+next) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Read(testkit.Settings("FIRSTTAP_PORT", "tcp://10.0.0.1:80", "FIRSTTAP_REDIS_PORT", "tcp://10.0.0.2:6379"), "FIRSTTAP_ADDR", "FIRSTTAP_PORT",
		"FIRSTTAP_SERVICE_HOST", "FIRSTTAP_SERVICE_PORT", "FIRSTTAP_SERVICE_PORT_HTTP", "FIRSTTAP_PORT_8080_TCP", "FIRSTTAP_PORT_8080_TCP_ADDR",
		"FIRSTTAP_PORT_8080_TCP_PROTO", "FIRSTTAP_PORT_8080_TCP_PORT", "FIRSTTAP_REDIS_SERVICE_HOST", "FIRSTTAP_REDIS_PORT",
		"FIRSTTAP_MYSQL_ROOT", "FIRSTTAP_TEST", "FIRSTTAP_TEST_REQUIRE", "FIRSTTAP_OPS_ADDR", "FIRSTTAP_FCM_ENDPOINT")
	if err != nil {
		t.Error(err)
	}
}

// TestSampleSecretsAreKnown: every secret of docker-compose.yml is found where it is set, and no other.
func TestSampleSecretsAreKnown(t *testing.T) {
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	samples := regexp.MustCompile(`:-(dev-only-[\w-]+)}`).FindAllStringSubmatch(string(text), -1)
	if len(samples) < 4 {
		t.Fatalf("docker-compose.yml has %d secrets", len(samples))
	}
	for _, sample := range samples {
		c := Config{AdminKey: sample[1], JWTSecret: sample[1], PreviousJWTSecret: sample[1]}
		c.DatabaseURL = "mysql://firsttap:" + sample[1] + "@mysql:3306/firsttap"
		if got := c.SampleSecrets(); len(got) != 4 {
			t.Errorf("%s is known as %s only", sample[1], got)
		}
	}
	own := Config{AdminKey: strings.Repeat("k", 32), JWTSecret: strings.Repeat("s", 32), DatabaseURL: "mysql://firsttap:dev@mysql/dev-only-db"}
	if got := own.SampleSecrets(); got != nil {
		t.Errorf("%s are called samples", got)
	}
}

package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"firsttap/systemtest"
	"firsttap/testkit"
)

func TestEveryDefault(t *testing.T) {
	got, err := Read(testkit.Settings())
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Addr: ":8080", OpsAddr: "127.0.0.1:9090", DatabaseURL: "sqlite://firsttap.db", AcceptLockTTL: 5 * time.Second, JobLock: "table",
		DriverRate: 20, AdminRate: 100, LogLevel: slog.LevelInfo, Drain: 5 * time.Second, Migrate: true,
		Push: Push{Zone: zone(t, "Asia/Seoul"), RemindBefore: time.Hour},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestSettings(t *testing.T) {
	got, err := Read(testkit.Settings(
		"FIRSTTAP_ADDR", "127.0.0.1:1", "FIRSTTAP_OPS_ADDR", "127.0.0.1:2", "FIRSTTAP_DATABASE_URL", "mysql://u:p@h:3306/n",
		"FIRSTTAP_REDIS_URL", "redis+sentinel://h1,h2,h3/master", "FIRSTTAP_ADMIN_KEY", systemtest.AdminKey, "FIRSTTAP_JWT_SECRET", systemtest.JWTSecret,
		"FIRSTTAP_ACCEPT_LOCK_TTL", "1500ms", "FIRSTTAP_RATE_LIMIT_DRIVER", "0.5/s", "FIRSTTAP_RATE_LIMIT_ADMIN", "7/s",
		"FIRSTTAP_FIREBASE_PROJECT", "p", "GOOGLE_APPLICATION_CREDENTIALS", "key.json", "FIRSTTAP_FCM_ENDPOINT", "http://h:1/v1",
		"FIRSTTAP_FIREBASE_WEB_KEY", "AIzaSy-_0", previousSecretVar, "the-secret-of-before-of-these-tests",
		"FIRSTTAP_RELAY", "leader", "FIRSTTAP_TIMEZONE", "Europe/Berlin", "FIRSTTAP_REMIND_BEFORE", "90m",
		"FIRSTTAP_DRAIN", "90ms", "OTEL_EXPORTER_OTLP_ENDPOINT", "https://h:4318",
		"FIRSTTAP_LOG", "WARN", "FIRSTTAP_JOB_LOCK", "quorum", "FIRSTTAP_QUORUM_URLS", "redis://a, redis://b,rediss://c:1"))
	want := Config{
		Addr: "127.0.0.1:1", OpsAddr: "127.0.0.1:2", DatabaseURL: "mysql://u:p@h:3306/n",
		RedisURL: "redis+sentinel://h1,h2,h3/master", AdminKey: systemtest.AdminKey, JWTSecret: systemtest.JWTSecret,
		PreviousJWTSecret: "the-secret-of-before-of-these-tests",
		JobLock:           "quorum", QuorumURLs: []string{"redis://a", "redis://b", "rediss://c:1"},
		AcceptLockTTL: 1500 * time.Millisecond, DriverRate: 0.5, AdminRate: 7, LogLevel: slog.LevelWarn,
		Drain: 90 * time.Millisecond, Tracing: true, Migrate: true,
		Push: Push{
			FCM: true, Project: "p", Credentials: "key.json", Endpoint: "http://h:1/v1", Leader: true, WebKey: "AIzaSy-_0",
			Zone: zone(t, "Europe/Berlin"), RemindBefore: 90 * time.Minute,
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// A project does not have to be pushed to.
func TestPushIsLogged(t *testing.T) {
	c, err := Read(testkit.Settings("FIRSTTAP_FIREBASE_PROJECT", "p", "FIRSTTAP_PUSH", "log"))
	if err != nil || c.Push.FCM {
		t.Errorf("%v, %+v", err, c.Push)
	}
}

// TestEachBadSetting alone is refused by its name; so are all of them together, in one message.
func TestEachBadSetting(t *testing.T) {
	bad := map[string][]string{
		"FIRSTTAP_ADDR":     {"8080", "localhost", "a:b:c", "::1"},
		"FIRSTTAP_OPS_ADDR": {"9090", "nonsense"},
		"FIRSTTAP_REDIS_URL": {"localhost:6379", "http://h", "redis://h:x", "redis://h/x", "redis+sentinel://h1,h2", "redis+cluster://",
			"redis://:p%zz@h"},
		"FIRSTTAP_JOB_LOCK":          {"etcd", "Table", "redis", "named", "rows"}, // without Redis, on SQLite
		"FIRSTTAP_QUORUM_URLS":       {"redis://a,redis://b", "redis://a,redis://b,redis://a", "redis://a,redis://b,redis+cluster://c", "a,b,c"},
		"FIRSTTAP_ACCEPT_LOCK_TTL":   {"5", "x", "-1s", "0s", "999ms", "1h5"},
		"FIRSTTAP_RATE_LIMIT_DRIVER": {"20", "0/s", "-1/s", "/s", "NaN/s", "Inf/s", "1e10/s", "20/m", "20 /s"},
		"FIRSTTAP_RATE_LIMIT_ADMIN":  {"x", "0/s", "100"},
		"FIRSTTAP_PUSH":              {"fcm", "sms", "LOG"}, // without a project
		"FIRSTTAP_FCM_ENDPOINT":      {"127.0.0.1:9099", "ftp://h/v1", "http://"},
		"FIRSTTAP_RELAY":             {"one", "All"},
		"FIRSTTAP_FIREBASE_WEB_KEY":  {"AIza", "a key", "{}"}, // without a project
		"FIRSTTAP_TIMEZONE":          {"Seoul", "+09:00"},
		"FIRSTTAP_REMIND_BEFORE":     {"60", "-1m", "an hour"},
		"FIRSTTAP_DRAIN":             {"5", "-1s", "61s", "soon"},
		otlpEndpointVar:              {"h:4318", "grpc://h:4317", "http://"},
		otlpTracesEndpointVar:        {"h:4318"},
		otlpProtocolVar:              {"grpc", "http/json"},
		otlpTracesProtocolVar:        {"grpc"},
		tracesExporterVar:            {"zipkin", "OTLP"},
		adminKeyVar:                  {"a", strings.Repeat("a", minSecret-1), strings.Repeat("열", minSecret-1)},
		jwtSecretVar:                 {"a", strings.Repeat("a", minSecret-1)},
		previousSecretVar:            {"b", strings.Repeat("a", minSecret-1)},
		"FIRSTTAP_LOG":               {"loud", "1", "info,debug"},
		"FIRSTTAP_DATABASE_URL": {"firsttap.db", "sqlite://", "sqlite://:memory:", "sqlite://file::memory:?cache=shared", "postgres://h/n",
			"mysql:h/n", "://", "SQLITE://x.db"},
	}
	var together []string
	for name, values := range bad {
		for _, v := range values {
			if _, err := Read(testkit.Settings(name, v)); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v", name, v, err)
			}
		}
		together = append(together, name, values[0])
	}
	_, err := Read(testkit.Settings(together...))
	for name := range bad {
		if err == nil || strings.Count(err.Error(), name+":") != 1 {
			t.Errorf("%s is not named once in:\n%v", name, err)
		}
	}
}

func TestMySQLNeedsSecrets(t *testing.T) {
	const url = "mysql://u:a-password@h:3306/n"
	for _, c := range []struct {
		env     func(string) (string, bool)
		missing []string
	}{
		{testkit.Settings("FIRSTTAP_DATABASE_URL", url), []string{adminKeyVar, jwtSecretVar}},
		{testkit.Settings("FIRSTTAP_DATABASE_URL", url, adminKeyVar, systemtest.AdminKey), []string{jwtSecretVar}},
		{testkit.Settings("FIRSTTAP_DATABASE_URL", url, jwtSecretVar, systemtest.JWTSecret), []string{adminKeyVar}},
	} {
		_, err := Read(c.env)
		for _, name := range c.missing {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("without %s: %v", name, err)
			}
		}
		if err != nil && strings.Contains(err.Error(), "a-password") {
			t.Errorf("the message shows the password: %v", err)
		}
	}
}

func TestMessagesShowNoPassword(t *testing.T) {
	for _, url := range []string{"redis://u:hunter2@h:x", "redis://u:hunter2%zz@h", "redis+cluster://u:hunter2%zz@h", "http://u:hunter2@h"} {
		if _, err := Read(testkit.Settings("FIRSTTAP_REDIS_URL", url)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
	if _, err := Read(testkit.Settings("FIRSTTAP_DATABASE_URL", "postgres://u:hunter2@h")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestReadingMakesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Read(testkit.Settings()); err != nil {
		t.Fatal(err)
	}
	testkit.MustHoldFiles(t, ".")
}

func configIn(dir string) Config {
	return Config{DatabaseURL: "sqlite://" + filepath.Join(dir, "data.db")}
}

func TestSecretsAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := configIn(dir), configIn(dir)
	if err := errors.Join(first.MakeSecrets(), second.MakeSecrets()); err != nil {
		t.Fatal(err)
	}
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

	elsewhere := configIn(t.TempDir())
	if err := elsewhere.MakeSecrets(); err != nil || elsewhere.AdminKey == first.AdminKey || elsewhere.JWTSecret == first.JWTSecret {
		t.Errorf("the same secrets elsewhere, %v", err)
	}
}

func TestSecretsOfTheEnvironmentAreKept(t *testing.T) {
	dir := t.TempDir()
	c := configIn(dir)
	c.AdminKey, c.JWTSecret = systemtest.AdminKey, systemtest.JWTSecret
	if err := c.MakeSecrets(); err != nil || c.AdminKey != systemtest.AdminKey || c.JWTSecret != systemtest.JWTSecret || len(c.SecretFiles) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	testkit.MustHoldFiles(t, dir)
	c.JWTSecret = ""
	if err := c.MakeSecrets(); err != nil || c.AdminKey != systemtest.AdminKey || c.JWTSecret == "" {
		t.Errorf("%+v, %v", c, err)
	}
	testkit.MustHoldFiles(t, dir, "data.jwt-secret")
}

// TestSecretsMadeAtOnce: the making knows nothing but files, so that goroutines stand for processes here.
func TestSecretsMadeAtOnce(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		configs, errs := make([]Config, 8), make([]error, 8)
		testkit.Together(len(configs), func(i int) {
			configs[i] = configIn(dir)
			errs[i] = configs[i].MakeSecrets()
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, c := range configs[1:] {
			if !reflect.DeepEqual(c, configs[0]) {
				t.Fatalf("they don't agree:\n%+v\n%+v", configs[0], c)
			}
		}
		testkit.MustHoldFiles(t, dir, "data.admin-key", "data.jwt-secret")
	}
}

func TestSecretsThatCannotBeHad(t *testing.T) {
	c := configIn(filepath.Join(t.TempDir(), "not", "there"))
	if err := c.MakeSecrets(); !errors.Is(err, fs.ErrNotExist) || c.AdminKey != "" {
		t.Errorf("no folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data.admin-key"), 0o700); err != nil {
		t.Fatal(err)
	}
	c = configIn(dir)
	if err := c.MakeSecrets(); err == nil {
		t.Errorf("a folder in place of the file: %q", c.AdminKey)
	}
}

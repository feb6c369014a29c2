package config

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/repository/retention"
)

const adminKey, jwtSecret = "an-admin-key-for-the-tests-of-config", "a-jwt-secret-for-the-tests-of-config"

func TestEveryDefault(t *testing.T) {
	got, err := Read(testkit.Settings())
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Roles: []string{RoleAPI, RoleRelay, RoleJobs},
		Addr:  ":8080", OpsAddr: "127.0.0.1:9090", DatabaseURL: "sqlite://firsttap.db", Namespace: "firsttap", AcceptLockTTL: 5 * time.Second, JobLock: "table",
		DriverRate: 20, AdminRate: 100, LogLevel: slog.LevelInfo, Drain: 5 * time.Second, Migrate: true,
		Retention: retention.Periods{Ended: 365 * 24 * time.Hour, Attempts: 90 * 24 * time.Hour},
		Push:      Push{Zone: zone(t, "Asia/Seoul"), RemindBefore: time.Hour}, Changed: map[string]string{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if c, err := Read(testkit.Settings("FIRSTTAP_OPS_ADDR", "")); err != nil || c.OpsAddr != "" {
		t.Errorf("an empty FIRSTTAP_OPS_ADDR does not turn the operations listener off: %q, %v", c.OpsAddr, err)
	}
}

func TestSettings(t *testing.T) {
	got, err := Read(testkit.Settings(
		"FIRSTTAP_ADDR", "127.0.0.1:1", "FIRSTTAP_OPS_ADDR", "127.0.0.1:2", "FIRSTTAP_DATABASE_URL", "mysql://u:p@h:3306/n",
		"FIRSTTAP_REDIS_URL", "redis+sentinel://h1,h2,h3/master", "FIRSTTAP_NAMESPACE", "acme-staging_2", "FIRSTTAP_ADMIN_KEY", adminKey, "FIRSTTAP_JWT_SECRET", jwtSecret,
		"FIRSTTAP_ACCEPT_LOCK_TTL", "1500ms", "FIRSTTAP_RATE_LIMIT_DRIVER", "0.5/s", "FIRSTTAP_RATE_LIMIT_ADMIN", "7/s",
		"FIRSTTAP_FIREBASE_PROJECT", "p", "GOOGLE_APPLICATION_CREDENTIALS", "key.json", "FIRSTTAP_FCM_ENDPOINT", "http://h:1/v1",
		"FIRSTTAP_FIREBASE_WEB_KEY", "AIzaSy-_0", previousSecretVar, "the-secret-of-before-of-these-tests",
		jobsVar, "expire-offers=@every 5s; remind = 0 0,30 * * * * , atMost=15s,atLeast=0s;supply=off;retention=atLeast=1m;", lockLeaseVar, "45s",
		rolesVar, "jobs, api", "FIRSTTAP_PUSH_ATTEMPTS", "3", "FIRSTTAP_RELAY", "leader", "FIRSTTAP_TIMEZONE", "Europe/Berlin", "FIRSTTAP_REMIND_BEFORE", "90m",
		retentionVar, "audit=730d, attempts=0", "FIRSTTAP_DRAIN", "90ms", "OTEL_EXPORTER_OTLP_ENDPOINT", "https://h:4318",
		privateWebhooksVar, "true", allowedOriginsVar, "capacitor://localhost, https://app.example.com,http://[::1]:8100", "FIRSTTAP_LOG", "WARN", "FIRSTTAP_JOB_LOCK", "quorum", "FIRSTTAP_QUORUM_URLS", "redis://a, redis://b,rediss://c:1"))
	minute := time.Minute
	want := Config{
		Roles: []string{RoleAPI, RoleJobs},
		Addr:  "127.0.0.1:1", OpsAddr: "127.0.0.1:2", DatabaseURL: "mysql://u:p@h:3306/n",
		RedisURL: "redis+sentinel://h1,h2,h3/master", Namespace: "acme-staging_2", AdminKey: adminKey, JWTSecret: jwtSecret,
		AllowedOrigins:    []string{"capacitor://localhost", "https://app.example.com", "http://[::1]:8100"},
		PreviousJWTSecret: "the-secret-of-before-of-these-tests",
		JobLock:           "quorum", QuorumURLs: []string{"redis://a", "redis://b", "rediss://c:1"},
		AcceptLockTTL: 1500 * time.Millisecond, DriverRate: 0.5, AdminRate: 7, LogLevel: slog.LevelWarn,
		Drain: 90 * time.Millisecond, Tracing: true, Migrate: true, PrivateWebhooks: true,
		Retention: retention.Periods{Ended: 365 * 24 * time.Hour, Audit: 730 * 24 * time.Hour},
		LockLease: 45 * time.Second, Jobs: []JobSetting{
			{Name: "expire-offers", When: "@every 5s"}, {Name: "remind", When: "0 0,30 * * * *", AtMost: 15 * time.Second, AtLeast: new(time.Duration)},
			{Name: "supply", Off: true}, {Name: "retention", AtLeast: &minute},
		},
		Push: Push{
			Attempts: 3,
			FCM:      true, Project: "p", Credentials: "key.json", Endpoint: "http://h:1/v1", Leader: true, WebKey: "AIzaSy-_0",
			Zone: zone(t, "Europe/Berlin"), RemindBefore: 90 * time.Minute,
		},
	}
	for name, shown := range map[string]string{
		"FIRSTTAP_ADDR": "127.0.0.1:1", "FIRSTTAP_LOG": "WARN", "FIRSTTAP_DATABASE_URL": "mysql://...", "FIRSTTAP_QUORUM_URLS": "redis://...",
		"FIRSTTAP_ADMIN_KEY": "set", previousSecretVar: "set", "FIRSTTAP_FIREBASE_WEB_KEY": "set",
	} {
		if got.Changed[name] != shown {
			t.Errorf("%s is shown as %q", name, got.Changed[name])
		}
	}
	for name, shown := range got.Changed {
		for _, secret := range []string{adminKey, jwtSecret, "u:p", "secret-of-before"} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s is shown as %q", name, shown)
			}
		}
	}
	got.Changed = nil
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

func TestReadCreatesNoFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Read(testkit.Settings()); err != nil {
		t.Fatal(err)
	}
	testkit.MustHoldFiles(t, ".")
}

// TestEachBadSetting: the error names the setting; one error names all settings that are bad together.
func TestEachBadSetting(t *testing.T) {
	key := strings.Repeat("a", minSecret)
	bad := map[string][]string{
		"FIRSTTAP_ADDR":     {"8080", "localhost", "a:b:c", "::1", ":99999", ":-1", "http://x"},
		"FIRSTTAP_OPS_ADDR": {"9090", "nonsense", "x"},
		"FIRSTTAP_REDIS_URL": {"localhost:6379", "http://h", "redis://h:x", "redis://h/x", "redis+sentinel://h1,h2", "redis+cluster://",
			"redis://:p%zz@h"},
		"FIRSTTAP_NAMESPACE": {"Firsttap", "a b", "a:b", "{a}", "앱", strings.Repeat("a", 33)},
		"FIRSTTAP_JOB_LOCK":  {"etcd", "Table", "redis", "named", "rows"}, // without Redis, on SQLite
		"FIRSTTAP_QUORUM_URLS": {"redis://a,redis://b", "redis://a,redis://b,redis://a", "redis://a,redis://b,redis+cluster://c", "a,b,c",
			"redis://a,redis://b,redis://c"}, // the last with another lock
		"FIRSTTAP_ACCEPT_LOCK_TTL":   {"5", "x", "-1s", "0s", "999ms", "1h5"},
		"FIRSTTAP_RATE_LIMIT_DRIVER": {"20", "0/s", "-1/s", "/s", "NaN/s", "Inf/s", "1e10/s", "20/m", "20 /s"},
		"FIRSTTAP_RATE_LIMIT_ADMIN":  {"x", "0/s", "100", "NaN/s"},
		"FIRSTTAP_PUSH":              {"fcm", "sms", "LOG"},                                      // without a project
		"FIRSTTAP_FCM_ENDPOINT":      {"127.0.0.1:9099", "ftp://h/v1", "http://", "http://h/v1"}, // the last with pushes that are logged
		"FIRSTTAP_RELAY":             {"one", "All"},
		"FIRSTTAP_FIREBASE_WEB_KEY":  {"AIza", "a key", "{}"}, // without a project
		"FIRSTTAP_TIMEZONE":          {"Seoul", "+09:00", "Local", "localtime", "right/Asia/Seoul"},
		"FIRSTTAP_REMIND_BEFORE":     {"60", "-1m", "an hour"},
		"FIRSTTAP_DRAIN":             {"5", "-1s", "61s", "soon"},
		"FIRSTTAP_PUSH_ATTEMPTS":     {"0", "-1", "1001", "three", "3.5"},
		rolesVar:                     {"all", "api,api", "api;jobs", ",", "API", "api,relay,jobs,x"},
		lockLeaseVar:                 {"2999ms", "10m1s", "30", "0s"},
		jobsVar: {
			"supply", "supply=", "supply=off;supply=off", "supply=off; =off;remind=", "supply=off,atmost=5s", "supply=off,atMost=5",
			"supply=off,atMost=5s,atMost=6s", "supply=off,atLeast=5s,atLeast=0s", "supply=off,atMost=999ms", "supply=off,atMost=25h", "supply=off,atLeast=-1s",
		},
		privateWebhooksVar: {"yes", "1", "True"},
		allowedOriginsVar: {
			"*", "null", "localhost", "app.example.com", "https://app.example.com/", "https://app.example.com/app", "https://*.example.com", "https://",
			"https://App.example.com", "https://app.example.com:443", "http://app.example.com:80", "https://u@app.example.com", "https://a.example.com https://b.example.com",
			"https://앱.example.com", "https://app.example.com?x", "capacitor://localhost,x",
		},
		retentionVar: {
			"365d", "ended", "ended=", "ended=365", "ended=-1d", "ended=0d", "ended=1.5d", "ended=+1d", "ended=24h", "ended=30m", "ended=1y", "Ended=1d",
			"ended=36501d", "ended=99999999999999999999d", "ended=1d,", ",", "ended=1d;audit=1d", "ended=1d,ended=2d", "taps=1d", "ended=1d audit=1d",
		},
		otlpEndpointVar:       {"h:4318", "grpc://h:4317", "http://"},
		otlpTracesEndpointVar: {"h:4318"},
		otlpProtocolVar:       {"grpc", "http/json"},
		otlpTracesProtocolVar: {"grpc"},
		tracesExporterVar:     {"zipkin", "OTLP"},
		adminKeyVar:           {"a", strings.Repeat("a", minSecret-1), strings.Repeat("열", minSecret-1), strings.Repeat("a", maxKey+1), key + "\n", " " + key, key + "\x00"},
		jwtSecretVar:          {"a", strings.Repeat("a", minSecret-1)},
		previousSecretVar:     {"b", strings.Repeat("a", minSecret-1)},
		"FIRSTTAP_LOG":        {"loud", "1", "info,debug"},
		"FIRSTTAP_DATABASE_URL": {"firsttap.db", "sqlite://", "sqlite://:memory:", "sqlite://file::memory:?cache=shared", "postgres://h/n",
			"mysql:h/n", "://", "SQLITE://x.db", "mysql://", "mysql://h:3306", "mysql://u:p@h:x/n", "mysql://u:p@h/n?ssl-mode=REQUIRED", "mysql://u:p@h/n?TLS=true", "mysql://u:p@h/n?tls=%zz",
			"mysql://u:p@h/n?tls=", "mysql://u:p@h/n?tls=true&tls=false", "mysql://u:p@h/n#x", "mysql://u:p@h:99999/n", "mysql://u:p@h:0/n",
			"sqlite://ft.db?_busy_timeout=5000&mode=rwc", "sqlite://ft.db?", "sqlite://ft.db#x", "sqlite://file:x.db", "sqlite://x%20y.db"},
		readURLVar: {"mysql://u:p@h/n", "sqlite://other.db", "h:3306", "postgres://h/n"}, // the first beside SQLite
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
	for missing, pairs := range map[string][]string{
		adminKeyVar: {jwtSecretVar, jwtSecret}, jwtSecretVar: {adminKeyVar, adminKey}, adminKeyVar + " and the other": {},
	} {
		_, err := Read(testkit.Settings(append(pairs, "FIRSTTAP_DATABASE_URL", url)...))
		if err == nil {
			t.Errorf("without %s: no error", missing)
			continue
		}
		for _, name := range []string{adminKeyVar, jwtSecretVar} {
			if strings.Contains(err.Error(), name) == slices.Contains(pairs, name) {
				t.Errorf("without %s: %v", missing, err)
			}
		}
		if strings.Contains(err.Error(), "a-password") {
			t.Errorf("the message shows the password: %v", err)
		}
	}
}

func TestReadURL(t *testing.T) {
	const primary, replica = "mysql://u:p@h:3306/n", "mysql://u:a-password@replica:3306/n"
	read := func(readURL string) (Config, error) {
		return Read(testkit.Settings("FIRSTTAP_DATABASE_URL", primary, adminKeyVar, adminKey, jwtSecretVar, jwtSecret, readURLVar, readURL))
	}
	if c, err := read(replica); err != nil || c.ReadURL != replica || !slices.Contains(c.SecretValues(), "a-password") {
		t.Errorf("%v, %q", err, c.ReadURL)
	}
	for _, bad := range []string{primary, "sqlite://x.db", "mysql://", "mysql://h:3306", "mysql://u:a-password@h:x/n"} {
		if _, err := read(bad); err == nil || !strings.Contains(err.Error(), readURLVar) || strings.Contains(err.Error(), "a-password") {
			t.Errorf("%s: %v", bad, err)
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

// TestEmulatorIsRefused beside real credentials or the real FCM, and without a project.
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
}

// TestInvalidFirebaseSettings: addresses that a page's Content-Security-Policy cannot name, and in place of a key a service account's
// file or characters that have a meaning in a URL.
func TestInvalidFirebaseSettings(t *testing.T) {
	for name, values := range map[string][]string{
		"FIREBASE_AUTH_EMULATOR_HOST": {
			"127.0.0.1", "http://127.0.0.1:9099", "h:x", "h;script-src *:9099", "*:9099", "a b:9099", "h'self':9099", "auth_emulator:9099",
			"[2001:db8::1]:9099",
		},
		"FIRSTTAP_FIREBASE_WEB_KEY": {`{"type":"service_account"}`, "AIza?x", "AIza&x=1", "AI za", "열쇠", "AIza\n"},
	} {
		for _, value := range values {
			_, err := Read(testkit.Settings("FIRSTTAP_FIREBASE_PROJECT", "p", name, value))
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}

// TestEmulatorPushesNothing without an endpoint: there are no credentials for the real FCM.
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

package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/repository/repositorytest"
)

// examined is what `firsttap doctor --json` said.
type examined struct {
	OK     bool
	Checks []struct{ Check, Status, Found, Next string }
	exit   int
	output string
}

// line is the finding of the check: status, what was found, and the next step.
func (x *examined) line(check string) string {
	for _, l := range x.Checks {
		if l.Check == check {
			return l.Status + " " + l.Found + " -> " + l.Next
		}
	}
	return "none"
}

// examine runs doctor with these settings, and no way out of this machine.
func examine(t *testing.T, settings ...string) *examined {
	t.Helper()
	x := &examined{}
	var stdout string
	stdout, x.output, x.exit = doctorCommand(t, settings, "--json")
	if err := json.Unmarshal([]byte(stdout), x); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, x.output)
	}
	if x.OK != (x.exit == 0) {
		t.Errorf("ok is %v and the exit code %d", x.OK, x.exit)
	}
	return x
}

// doctorCommand returns the standard output, all output, and the exit code.
func doctorCommand(t *testing.T, settings []string, flags ...string) (stdout, all string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"doctor"}, flags...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{
		runAsInstance + "=1", coverage(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + cmd.Dir, patientRedis,
		"FIRSTTAP_ADDR=127.0.0.1:0", "FIRSTTAP_OPS_ADDR=", "FIRSTTAP_ADMIN_KEY=" + AdminKey, "FIRSTTAP_JWT_SECRET=" + JWTSecret,
		"HTTPS_PROXY=http://" + testkit.FreeAddress(t),
	}, settings...)
	out, err := cmd.Output()
	failed := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if failed != nil {
		exit, all = failed.ExitCode(), string(failed.Stderr)
	}
	return string(out), string(out) + all, exit
}

// mustFail checks that the line fails with these words, and that the exit code is 1.
func (x *examined) mustFail(t *testing.T, check string, words ...string) {
	t.Helper()
	line := x.line(check)
	if x.exit != 1 || !strings.HasPrefix(line, "fails ") || strings.HasSuffix(line, "-> ") {
		t.Errorf("exit code %d, %s: %s\n%s", x.exit, check, line, x.output)
	}
	for _, w := range words {
		if !strings.Contains(line, w) {
			t.Errorf("%s does not say %q: %s", check, w, line)
		}
	}
}

// mustBe checks the statuses of all lines that are not ok.
func (x *examined) mustBe(t *testing.T, exit int, others ...string) {
	t.Helper()
	var got []string
	for _, l := range x.Checks {
		if l.Status != "ok" && l.Status+l.Check != "warningdatabase.privileges" { // the root of the tests may do everything
			got = append(got, l.Status+" "+l.Check)
		}
	}
	if !slices.Equal(got, others) || x.exit != exit {
		t.Errorf("exit code %d, not ok: %v, want %d and %v\n%s", x.exit, got, exit, others, x.output)
	}
}

// TestDoctorOnAGoodSetUp: everything works, also beside a running instance, and the doctor changes nothing.
func TestDoctorOnAGoodSetUp(t *testing.T) {
	t.Parallel()
	fcm := StartFCM(t)
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		redis := servertest.StartRedis(t)
		settings := PushSettings(repositorytest.URL(t, kind), fcm, "demo-doctor", "FIRSTTAP_REDIS_URL="+redis.URL())
		// What is not FCM, and what has no credentials, is no set-up for production; and nothing leaves this machine.
		warnings := []string{"warning firebase.push", "fails firebase.auth", "warning firebase.users"}
		examine(t, settings...).mustBe(t, 1, warnings...)
		settings = append(settings, "FIRSTTAP_PUSH=log", "FIRSTTAP_FIREBASE_PROJECT=", "FIRSTTAP_FCM_ENDPOINT=")
		x := examine(t, settings...)
		x.mustBe(t, 0, "warning firebase.push")
		for check, words := range map[string]string{
			"redis.connection": redis.Addr(), "redis.eviction": "noeviction", "redis.role": "takes writes", "redis.scripts": "commands",
			"database.role": "takes writes", "database.migrations": "all are applied", "settings.timezone": "Asia/Seoul", "jobs.lock": "redis",
		} {
			if line := x.line(check); !strings.Contains(line, words) {
				t.Errorf("%s: %s, want %s", check, line, words)
			}
		}
		if keys := askingWith(t, redisAt(t, redis.URL()))("DBSIZE"); keys != "0" {
			t.Errorf("the doctor left %s keys in Redis", keys)
		}
		text, _, exit := doctorCommand(t, settings)
		if exit != 0 || !strings.Contains(text, "\nok       redis.eviction          noeviction\n") || strings.Contains(text, "\x1b") || !strings.HasSuffix(text, "No check fails; read the warnings before production: "+strconv.Itoa(strings.Count(text, "\nwarning"))+"\n") {
			t.Errorf("exit code %d:\n%s", exit, text)
		}
		i := Start(t, append(settings, "FIRSTTAP_OPS_ADDR="+testkit.FreeAddress(t))...)
		testkit.Eventually(t, "it is seen to be ready", func() bool { // its probe waits no longer than a second for a server
			x = examine(t, append(settings, "FIRSTTAP_ADDR="+strings.TrimPrefix(i.URL, "http://"))...)
			return strings.Contains(x.line("ports.api"), "/readyz says 200")
		})
		x.mustBe(t, 0, "warning firebase.push")
		if line := x.line("ports.api"); !strings.Contains(line, "a FirstTap listens") {
			t.Error(line)
		}
	})
	if sends := fcm.Sends(); len(sends) == 0 || slices.ContainsFunc(sends, func(r fcmtest.Request) bool { return !r.ValidateOnly }) {
		t.Errorf("not only validated: %+v", sends)
	}
}

// TestDoctorOnFirebase: bad credentials, a push service that refuses or hangs up, and no way to Google.
func TestDoctorOnFirebase(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
	}))
	t.Cleanup(refuses.Close)
	project := "FIRSTTAP_FIREBASE_PROJECT=demo-doctor"
	x := examine(t, project, "GOOGLE_APPLICATION_CREDENTIALS="+testkit.ServiceAccount(t, refuses.URL))
	x.mustFail(t, "firebase.push", "the credentials are refused", "invalid_grant", "service accounts")
	x.mustFail(t, "firebase.users", "invalid_grant")
	x.mustFail(t, "firebase.auth", "can't be fetched", "www.googleapis.com")
	x = examine(t, project, "GOOGLE_APPLICATION_CREDENTIALS=/nowhere/key.json")
	x.mustFail(t, "firebase.push", "/nowhere/key.json", "service accounts")
	fcm := StartFCM(t)
	settings := []string{project, "FIRSTTAP_FCM_ENDPOINT=" + fcm.URL() + "/v1"}
	fcm.Close()
	examine(t, settings...).mustFail(t, "firebase.push", "can't be reached")
}

// TestDoctorOnTheEmulator: it is for development.
func TestDoctorOnTheEmulator(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	emulator := servertest.StartFirebaseAuth(t)
	settings := []string{"FIRSTTAP_FIREBASE_PROJECT=" + servertest.FirebaseProject, "FIREBASE_AUTH_EMULATOR_HOST=" + emulator.Addr()}
	x := examine(t, settings...)
	x.mustBe(t, 0, "warning firebase.push", "warning firebase.auth")
	if line := x.line("firebase.users"); !strings.Contains(line, "can be looked up") {
		t.Error(line)
	}
	emulator.Kill()
	examine(t, settings...).mustFail(t, "firebase.users", "refused")
}

// TestDoctorOnWrongSettings: all of them are reported, and what the others name is checked.
func TestDoctorOnWrongSettings(t *testing.T) {
	t.Parallel()
	redis := servertest.StartRedis(t)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	taken := strings.TrimPrefix(other.URL, "http://")
	x := examine(t, "FIRSTTAP_DATABASE_URL=nonsense", "FIRSTTAP_LOG=loud", "FIRSTTAP_TIMEZONE=Mars/Olympus", "FIRSTTAP_JWT_SECRET=short",
		"FIRSTTAP_REDIS_URL="+redis.URL(), "FIRSTTAP_ADDR="+taken, "FIRSTTAP_OPS_ADDR=192.0.2.1:9090")
	for _, name := range []string{"FIRSTTAP_DATABASE_URL", "FIRSTTAP_LOG", "FIRSTTAP_TIMEZONE", "FIRSTTAP_JWT_SECRET"} {
		if !strings.Contains(x.output, name+": ") {
			t.Errorf("%s is not reported:\n%s", name, x.output)
		}
	}
	x.mustFail(t, "ports.api", "another program listens at "+taken)
	x.mustFail(t, "ports.operations", "FIRSTTAP_OPS_ADDR")
	if line := x.line("database.connection"); !strings.HasPrefix(line, "skipped ") {
		t.Error(line)
	}
	if line := x.line("redis.eviction"); !strings.HasPrefix(line, "ok ") {
		t.Error(line)
	}
	examine(t, "FIRSTTAP_DATABASE_URL=mysql://u@127.0.0.1:1/x", "FIRSTTAP_ADMIN_KEY=").mustFail(t, "settings", "FIRSTTAP_ADMIN_KEY: it must be set with MySQL")
}

// TestDoctorPrintsNoSecret: one is planted in every setting that can have one, in good and in bad forms.
func TestDoctorPrintsNoSecret(t *testing.T) {
	t.Parallel()
	const secret, short = "pl4nted-s3cret-of-the-operator-0123456789", "sh0rt-s3cret"
	quoted := url.QueryEscape("p/l?4#nted@s3cret%")
	key := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(key, []byte(`{"type":"service_account","client_email":"a@b","private_key":"`+secret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := servertest.StartRedis(t, "--requirepass", redisPassword)
	db := withPassword(t, servertest.StartMariaDB(t).URL(t))
	good := []string{
		"FIRSTTAP_DATABASE_URL=" + db, "FIRSTTAP_REDIS_URL=redis://:" + redisPassword + "@" + redis.Addr(),
		"FIRSTTAP_ADMIN_KEY=" + secret, "FIRSTTAP_JWT_SECRET=" + secret + "-2", "FIRSTTAP_JWT_SECRET_PREVIOUS=" + secret + "-3",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + secret,
	}
	sets := [][]string{
		good,
		append(slices.Clone(good), "FIRSTTAP_DATABASE_URL=mysql://u:"+secret+"@127.0.0.1:1/x", "FIRSTTAP_REDIS_URL=redis://u:"+secret+"@127.0.0.1:1"),
		append(slices.Clone(good), "FIRSTTAP_DATABASE_URL=mysql://u:"+quoted+"@127.0.0.1:1/x", "FIRSTTAP_REDIS_URL=redis+sentinel://u:"+quoted+"@127.0.0.1:1,127.0.0.1:2/m"),
		append(slices.Clone(good), "FIRSTTAP_REDIS_URL=redis://:"+secret+"@"+redis.Addr(), "FIRSTTAP_DATABASE_URL="+strings.Replace(db, dbPassword, secret, 1)),
	}
	for _, text := range []string{"u:" + secret + "@127.0.0.1:1/x", "postgres://u:" + secret + "@h/x", "mysql://u:" + secret + "@bad host/x", "redis://u:" + secret + "@bad host:port"} {
		bad := []string{"FIRSTTAP_ADMIN_KEY=" + short, "FIRSTTAP_JWT_SECRET=" + short, "FIRSTTAP_JWT_SECRET_PREVIOUS=" + short, "FIRSTTAP_FIREBASE_PROJECT=p"}
		for _, name := range []string{"FIRSTTAP_DATABASE_URL", "FIRSTTAP_REDIS_URL", "FIRSTTAP_QUORUM_URLS", "FIRSTTAP_FCM_ENDPOINT", "FIRSTTAP_ADDR", "FIRSTTAP_OPS_ADDR", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
			bad = append(bad, name+"="+text)
		}
		sets = append(sets, bad)
	}
	firebase := "FIRSTTAP_FIREBASE_PROJECT=demo-doctor"
	sets = append(sets,
		[]string{firebase, "GOOGLE_APPLICATION_CREDENTIALS=" + key},
		[]string{firebase, `GOOGLE_APPLICATION_CREDENTIALS={"type":"service_account","private_key":"` + secret + `"}`},
		[]string{firebase, "FIRSTTAP_FCM_ENDPOINT=http://u:" + secret + "@127.0.0.1:1/v1"},
		[]string{firebase, "FIRSTTAP_FCM_ENDPOINT=http://127.0.0.1:1/v1?key=" + secret},
		[]string{"FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS=redis://u:" + secret + "@127.0.0.1:1,redis://u:" + secret + "@127.0.0.1:2,redis://:" + secret + "@" + redis.Addr()})
	for _, settings := range sets {
		for _, flags := range [][]string{nil, {"--json"}} {
			_, all, _ := doctorCommand(t, settings, flags...)
			if !strings.Contains(all, "ports.api") {
				t.Errorf("%v: nothing was checked:\n%s", settings, all)
			}
			for _, s := range []string{secret, short, quoted, "p/l?4#nted@s3cret%", dbPassword, redisPassword, "s3cret"} {
				if strings.Contains(all, s) {
					t.Errorf("%v: the output has %s:\n%s", settings, s, all)
				}
			}
		}
	}
}

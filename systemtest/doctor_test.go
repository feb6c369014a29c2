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
	"strings"
	"testing"
	"time"

	"firsttap/notify/fcmtest"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
	"firsttap/testkit"
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
		runAsInstance + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + cmd.Dir, patientRedis,
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
		if l.Status != "ok" {
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
		settings = append(settings, "FIRSTTAP_PUSH=log", "FIRSTTAP_FIREBASE_PROJECT=")
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
		if exit != 0 || !strings.Contains(text, "\nok       redis.eviction          noeviction\n") || strings.Contains(text, "\x1b") || !strings.HasSuffix(text, "production; warnings: 1\n") {
			t.Errorf("exit code %d:\n%s", exit, text)
		}
		i := Start(t, append(settings, "FIRSTTAP_OPS_ADDR="+testkit.FreeAddress(t))...)
		x = examine(t, append(settings, "FIRSTTAP_ADDR="+strings.TrimPrefix(i.URL, "http://"))...)
		x.mustBe(t, 0, "warning firebase.push")
		if line := x.line("ports.api"); !strings.Contains(line, "a FirstTap listens") || !strings.Contains(line, "/readyz says 200") {
			t.Error(line)
		}
	})
	if sends := fcm.Sends(); len(sends) == 0 || slices.ContainsFunc(sends, func(r fcmtest.Request) bool { return !r.ValidateOnly }) {
		t.Errorf("not only validated: %+v", sends)
	}
}

// TestDoctorOnABrokenDatabase finds each fault by its line.
func TestDoctorOnABrokenDatabase(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		server := servertest.StartDatabase(t, kind)
		raw := server.URL(t)
		withUser := withPassword(t, raw)
		x := examine(t, "FIRSTTAP_DATABASE_URL="+strings.Replace(withUser, dbPassword, "a-wrong-password", 1))
		x.mustFail(t, "database.connection", "Access denied for user 'app'", "password in FIRSTTAP_DATABASE_URL")
		if line := x.line("database.clock"); !strings.HasPrefix(line, "skipped ") {
			t.Error(line)
		}
		examine(t, "FIRSTTAP_DATABASE_URL="+raw+"x").mustFail(t, "database.connection", "CREATE DATABASE")
		db := OpenDatabase(t, raw)
		x = examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_MIGRATE=off")
		x.mustFail(t, "database.migrations", "FIRSTTAP_MIGRATE is off", "firsttap migrate up")
		x.mustBe(t, 1, "fails database.migrations", "warning redis.connection", "warning firebase.push")
		x = examine(t, "FIRSTTAP_DATABASE_URL="+raw)
		x.mustBe(t, 0, "warning database.migrations", "warning redis.connection", "warning firebase.push") // the start applies them
		if n := db.Count("information_schema.tables WHERE table_schema = DATABASE()"); n != 0 {
			t.Errorf("the doctor made %d tables", n)
		}
		repositorytest.Migrate(t, raw)
		examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_MIGRATE=off").mustBe(t, 0, "warning redis.connection", "warning firebase.push")
		db.exec("DELETE FROM goose_db_version ORDER BY version_id DESC LIMIT 1")
		examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_MIGRATE=off").mustFail(t, "database.migrations", "not applied: 1")

		db.exec("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.durability", "innodb_flush_log_at_trx_commit=2, should be 1", "docs/operations.md")
		db.exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		db.exec("SET GLOBAL read_only = ON")
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.role", "read_only", "primary")
		db.exec("SET GLOBAL read_only = OFF")
		x = examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_JOB_LOCK=memory")
		x.mustBe(t, 0, "warning redis.connection", "warning jobs.lock", "warning firebase.push")
		server.Freeze()
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.connection", "firewall")
		server.Thaw()
		server.Kill()
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.connection", "refused", "check that the server runs")
	})
}

// TestDoctorOnAWrongClock names the direction.
func TestDoctorOnAWrongClock(t *testing.T) {
	t.Parallel()
	for offset, word := range map[time.Duration]string{10 * time.Second: "10s ahead of", -10 * time.Second: "s behind"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			x := examine(t, "FIRSTTAP_DATABASE_URL="+servertest.StartMariaDBSkewed(t, offset).URL(t))
			x.mustFail(t, "database.clock", word+" this machine's", "NTP")
		})
	}
}

// TestDoctorOnASQLiteFile does not create the file, and finds one that can't be used.
func TestDoctorOnASQLiteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "my.db")
	x := examine(t, "FIRSTTAP_DATABASE_URL=sqlite://"+file, "FIRSTTAP_ADMIN_KEY=", "FIRSTTAP_JWT_SECRET=")
	x.mustBe(t, 0, "warning firebase.push")
	testkit.MustHoldFiles(t, dir)
	examine(t, "FIRSTTAP_DATABASE_URL=sqlite://"+filepath.Join(dir, "not", "there")).mustFail(t, "database.connection", "create the folder")
	if err := os.WriteFile(file, []byte("not a database, but a text that is long enough to look like one: "+strings.Repeat("x", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	examine(t, "FIRSTTAP_DATABASE_URL=sqlite://"+file).mustFail(t, "database.connection", "FirstTap's database")
	key := filepath.Join(dir, "my.admin-key")
	if err := os.WriteFile(key, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	examine(t, "FIRSTTAP_DATABASE_URL=sqlite://"+file, "FIRSTTAP_ADMIN_KEY=").mustFail(t, "settings.secrets", key)
}

// TestDoctorOnABrokenRedis finds each fault by its line.
func TestDoctorOnABrokenRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	ask := askingWith(t, redisAt(t, server.URL()))
	at := func(settings ...string) *examined {
		t.Helper()
		return examine(t, append([]string{"FIRSTTAP_REDIS_URL=" + server.URL()}, settings...)...)
	}
	ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	at().mustFail(t, "redis.eviction", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")
	ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
	ask("CONFIG", "SET", "maxmemory", "1")
	at().mustFail(t, "redis.eviction", "Redis is full", "raise maxmemory")
	ask("CONFIG", "SET", "maxmemory", "0")

	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("app", "a-wrong-password")
	ask("ACL", "SETUSER", "app", "on", ">"+redisPassword, "+@all", "~dispatch:*", "~rate:*", "~firsttap:*", "~job-lock:*", "~{job-lock:*", "&job-lock:*")
	examine(t, "FIRSTTAP_REDIS_URL="+u.String()).mustFail(t, "redis.connection", "WRONGPASS", "password in FIRSTTAP_REDIS_URL")
	u.User = url.UserPassword("app", redisPassword)
	examine(t, "FIRSTTAP_REDIS_URL="+u.String()).mustBe(t, 0, "warning firebase.push")
	for change, refused := range map[string]string{"-xadd": "xadd firsttap:stream", "-evalsha": "evalsha", "resetchannels": "publish job-lock:firsttap:doctor:freed"} {
		ask("ACL", "SETUSER", "app", change)
		examine(t, "FIRSTTAP_REDIS_URL="+u.String()).mustFail(t, "redis.scripts", "may not send", refused, "ACL SETUSER")
		ask("ACL", "SETUSER", "app", "+@all", "&*")
	}
	ask("ACL", "SETUSER", "app", "-eval")
	examine(t, "FIRSTTAP_REDIS_URL="+u.String()).mustFail(t, "redis.scripts", "no script runs", "+eval")
	ask("ACL", "SETUSER", "app", "+@all", "-info")
	examine(t, "FIRSTTAP_REDIS_URL="+u.String(), "FIRSTTAP_JOB_LOCK=table").mustFail(t, "redis.scripts", "info memory")

	replica := servertest.StartRedis(t, "--replicaof", strings.Replace(server.Addr(), ":", " ", 1))
	examine(t, "FIRSTTAP_REDIS_URL="+replica.URL()).mustFail(t, "redis.role", "slave", "the master, which is "+server.Addr())
	examine(t, "FIRSTTAP_REDIS_URL=redis+cluster://"+server.Addr()).mustFail(t, "redis.connection", "redis://host:port")
	server.Freeze()
	at().mustFail(t, "redis.connection", "firewall")
	server.Thaw()
	server.Kill()
	x := at()
	x.mustFail(t, "redis.connection", "refused", "through the database alone")
	if line := x.line("redis.latency"); !strings.HasPrefix(line, "skipped ") {
		t.Error(line)
	}
}

// TestDoctorOnHalfACluster: masters that are gone are named, although the others still believe in them.
func TestDoctorOnHalfACluster(t *testing.T) {
	t.Parallel()
	c := servertest.StartRedisCluster(t)
	x := examine(t, "FIRSTTAP_REDIS_URL="+c.URL())
	x.mustBe(t, 0, "warning firebase.push")
	if line := x.line("redis.cluster"); !strings.Contains(line, "16384 slots") {
		t.Error(line)
	}
	examine(t, "FIRSTTAP_REDIS_URL="+c.Nodes[0].URL()).mustFail(t, "redis.connection", "a node of a cluster", "redis+cluster://")
	askingWith(t, redisAt(t, c.Nodes[1].URL()))("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	examine(t, "FIRSTTAP_REDIS_URL="+c.URL()).mustFail(t, "redis.eviction", c.Nodes[1].Addr())
	askingWith(t, redisAt(t, c.Nodes[1].URL()))("CONFIG", "SET", "maxmemory-policy", "noeviction")
	for _, node := range c.Nodes[1:] {
		node.Kill()
		examine(t, "FIRSTTAP_REDIS_URL="+c.URL()).mustFail(t, "redis.cluster", node.Addr(), "redis-cli --cluster")
	}
	c.Nodes[0].Kill()
	examine(t, "FIRSTTAP_REDIS_URL="+c.URL()).mustFail(t, "redis.connection", "refused")
}

func TestDoctorOnSentinels(t *testing.T) {
	t.Parallel()
	s := servertest.StartRedisSentinel(t)
	x := examine(t, "FIRSTTAP_REDIS_URL="+s.URL())
	x.mustBe(t, 0, "warning firebase.push")
	if line := x.line("redis.connection"); !strings.Contains(line, "master mymaster at "+s.Master.Addr()) {
		t.Error(line)
	}
	examine(t, "FIRSTTAP_REDIS_URL="+s.URL()+"x").mustFail(t, "redis.sentinels", `knows no master "mymasterx"`)
	examine(t, "FIRSTTAP_REDIS_URL="+s.Sentinels[0].URL()).mustFail(t, "redis.connection", "is a sentinel", "redis+sentinel://")
	s.Sentinels[2].Kill()
	examine(t, "FIRSTTAP_REDIS_URL="+s.URL()).mustBe(t, 0, "warning redis.sentinels", "warning firebase.push")
	s.Sentinels[1].Kill()
	examine(t, "FIRSTTAP_REDIS_URL="+s.URL()).mustFail(t, "redis.sentinels", s.Sentinels[1].Addr(), s.Sentinels[2].Addr(), "CKQUORUM")
}

// TestDoctorOnJobLocks: a quorum needs a majority, and a lock has to fit the database.
func TestDoctorOnJobLocks(t *testing.T) {
	t.Parallel()
	servers := []*servertest.Redis{servertest.StartRedis(t), servertest.StartRedis(t), servertest.StartRedis(t)}
	settings := []string{
		"FIRSTTAP_JOB_LOCK=quorum", "FIRSTTAP_QUORUM_URLS=" + servers[0].URL() + "," + servers[1].URL() + "," + servers[2].URL(),
	}
	examine(t, settings...).mustBe(t, 0, "warning firebase.push")
	servers[0].Kill()
	x := examine(t, settings...)
	x.mustBe(t, 0, "warning jobs.quorum.1", "warning jobs.lock", "warning firebase.push")
	askingWith(t, redisAt(t, servers[1].URL()))("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	x = examine(t, settings...)
	x.mustFail(t, "jobs.lock", "1 of 3", "no majority")
	if line := x.line("jobs.quorum.2"); !strings.Contains(line, "allkeys-lru") {
		t.Error(line)
	}
}

// TestDoctorOnGalera: named locks are no locks there.
func TestDoctorOnGalera(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	raw := servertest.StartGalera(t).Nodes[0].URL(t)
	repositorytest.Migrate(t, raw)
	examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustBe(t, 0, "warning redis.connection", "warning firebase.push")
	for _, lock := range []string{"named", "rows"} {
		examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_JOB_LOCK="+lock).mustFail(t, "jobs.lock", "Galera", "table or redis")
	}
}

// TestDoctorOnReplication: a replica that may lack claims, and one that is named instead of the primary.
func TestDoctorOnReplication(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		r := servertest.StartReplication(t, kind)
		examine(t, "FIRSTTAP_DATABASE_URL="+r.Primary.URL(t)).mustFail(t, "database.durability", "may lack claims")
		examine(t, "FIRSTTAP_DATABASE_URL="+r.Replica.URL(t)).mustFail(t, "database.role", "replica", "primary")
	})
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

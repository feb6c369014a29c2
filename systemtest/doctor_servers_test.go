package systemtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/repositorytest"
)

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
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.durability", "innodb_flush_log_at_trx_commit=2, should be 1", "docs/database.md")
		db.exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		db.exec("SET GLOBAL read_only = ON")
		examine(t, "FIRSTTAP_DATABASE_URL="+raw).mustFail(t, "database.role", "read_only", "primary")
		db.exec("SET GLOBAL read_only = OFF")
		x = examine(t, "FIRSTTAP_DATABASE_URL="+raw, "FIRSTTAP_JOB_LOCK=memory")
		x.mustBe(t, 0, "warning database.migrations", "warning redis.connection", "warning jobs.lock", "warning firebase.push")
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
	for offset, word := range map[time.Duration]string{10 * time.Second: "s ahead of", -10 * time.Second: "s behind"} {
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
	examine(t, "FIRSTTAP_DATABASE_URL=sqlite://"+file).mustFail(t, "database.connection", "the file is no SQLite database")
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
	ask("ACL", "SETUSER", "app", "on", ">"+redisPassword, "+@all", "~dispatch:lock:*", "~firsttap:*", "~job-lock:firsttap:*", "~{job-lock:firsttap:*", "&job-lock:firsttap:*")
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

// Two installations on one Redis see each other: the second one that uses a namespace is warned, before its start and at it. With a
// namespace of its own it is told of the other one only.
func TestDoctorOnTwoInstallations(t *testing.T) {
	t.Parallel()
	redis, first, second := servertest.StartRedis(t), mariaDB(t), mariaDB(t)
	settings := func(url string, more ...string) []string {
		return append(more, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+redis.URL())
	}
	Start(t, settings(first)...)
	if line := examine(t, settings(first)...).line("redis.namespace"); !strings.Contains(line, "no other installation") {
		t.Error(line)
	}
	x := examine(t, settings(second)...)
	x.mustBe(t, 0, "warning redis.namespace", "warning firebase.push")
	if line := x.line("redis.namespace"); !strings.Contains(line, "the namespace firsttap was last used with the database firsttap_") {
		t.Error(line)
	}
	const warning = "the namespace in Redis was last used with another database"
	if late := Start(t, settings(second)...); !strings.Contains(late.log.String(), warning) {
		t.Errorf("no warning at the start:\n%s", late.log)
	}
	own := settings(second, "FIRSTTAP_NAMESPACE=second")
	if i := Start(t, own...); strings.Contains(i.log.String(), warning) {
		t.Errorf("a warning of its own namespace:\n%s", i.log)
	}
	x = examine(t, own...)
	x.mustBe(t, 0, "warning redis.namespace", "warning firebase.push")
	if line := x.line("redis.namespace"); !strings.Contains(line, "have keys there: firsttap") {
		t.Error(line)
	}
}

// askingWith sends commands with a client.
func askingWith(t *testing.T, c redis.UniversalClient) func(words ...string) string {
	return func(words ...string) string {
		t.Helper()
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		answer, err := c.Do(t.Context(), args...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("%v: %v", words, err)
		}
		return fmt.Sprint(answer)
	}
}

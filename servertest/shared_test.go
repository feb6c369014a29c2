package servertest

import (
	"fmt"
	"strings"
	"testing"
)

func TestRedisURL(t *testing.T) {
	t.Setenv("FIRSTTAP_TEST_REDIS_URL", "")
	u := RedisURL(t)
	if again := RedisURL(t); again != u {
		t.Errorf("not shared: %s and %s", u, again)
	}
	dial(t, strings.TrimPrefix(u, "redis://")).ask(t, "PING", "+PONG")

	t.Setenv("FIRSTTAP_TEST_REDIS_URL", "redis://example:6379/3")
	if got := RedisURL(t); got != "redis://example:6379/3" {
		t.Errorf("got %s, want what the environment names", got)
	}
}

func TestDatabaseURLs(t *testing.T) {
	for name, freshURL := range map[string]func(testing.TB) string{mariadb: MariaDBURL, mysql: MySQLURL} {
		t.Run(name, func(t *testing.T) {
			variable := "FIRSTTAP_TEST_" + strings.ToUpper(name) + "_URL"
			t.Setenv(variable, "")
			kept := freshURL(t)
			host := strings.TrimSuffix(kept, nameOf(kept))
			dsn := config("root", "", strings.Trim(strings.TrimPrefix(host, "mysql://root@"), "/"), nameOf(kept)).FormatDSN()
			db := open(t, dsn)

			var dropped string
			t.Run("a test that ends", func(t *testing.T) {
				t.Setenv(variable, host+"?tls=false")
				dropped = freshURL(t)
				if !strings.HasPrefix(dropped, host) || !strings.HasSuffix(dropped, "?tls=false") {
					t.Errorf("got %s, want a database of %s", dropped, host)
				}
			})
			dropped = nameOf(strings.TrimSuffix(dropped, "?tls=false"))
			mustScan(t, db, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+dropped+"'", "0")
			mustScan(t, db, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+nameOf(kept)+"'", "1")
		})
	}
}

// verdict is a testing.TB that records how its test ended.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Skipf(format string, args ...any)  { v.skipped = fmt.Sprintf(format, args...) }
func (v *verdict) Fatalf(format string, args ...any) { v.failed = fmt.Sprintf(format, args...) }

func TestMissingServerIsSkippedUnlessRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := redisInstalled()
	if err == nil {
		t.Fatal("found redis-server in an empty folder")
	}

	t.Setenv("FIRSTTAP_TEST_REQUIRE", "mariadb,mysql")
	skipped := &verdict{TB: t}
	if require(skipped, "redis", err); !strings.Contains(skipped.skipped, "redis-server") {
		t.Errorf("skipped with %q, which does not say why", skipped.skipped)
	}

	t.Setenv("FIRSTTAP_TEST_REQUIRE", "mariadb,redis")
	failed := &verdict{TB: t}
	if require(failed, "redis", err); !strings.Contains(failed.failed, "servertest/install.sh") {
		t.Errorf("failed with %q, which does not say what to do", failed.failed)
	}
}

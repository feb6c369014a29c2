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

func TestEmptyURL(t *testing.T) {
	OnEach(t, EveryServer(), func(t *testing.T, kind string) {
		variable := environmentOf(kind)
		t.Setenv(variable, "")
		kept := EmptyURL(t, kind)
		server := strings.TrimSuffix(kept, nameOf(kept))

		var dropped string
		t.Run("a test that ends", func(t *testing.T) {
			t.Setenv(variable, server+"?tls=false")
			dropped = EmptyURL(t, kind)
			if !strings.HasPrefix(dropped, server) || !strings.HasSuffix(dropped, "?tls=false") {
				t.Errorf("got %s, want a database of %s", dropped, server)
			}
		})
		for name, want := range map[string]string{nameOf(kept): "1", nameOf(strings.TrimSuffix(dropped, "?tls=false")): "0"} {
			mustScan(t, openURL(t, kept), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+name+"'", want)
		}
	})
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
	if require(failed, "redis", err); !strings.Contains(failed.failed, "internal/servertest/install.sh") {
		t.Errorf("failed with %q, which does not say what to do", failed.failed)
	}
}

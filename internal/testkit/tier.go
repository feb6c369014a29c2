package testkit

import (
	"os"
	"testing"
	"time"
)

// All reports whether this is a run of `make test-all`: every test, on every kind of database. `make test` has each promise
// tested once; it leaves out repetitions, and the combinations that share the code under test.
func All() bool { return os.Getenv("FIRSTTAP_TEST") == "all" }

// TiDB reports whether this is a run of `make tidb`: tests of SQL run on TiDB, and on no other database.
func TiDB() bool { return os.Getenv("FIRSTTAP_TEST") == "tidb" }

// OnlyInAll skips the test unless [All].
func OnlyInAll(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("make test-all runs it")
	}
}

// OnlyOnTiDB skips the test unless [TiDB].
func OnlyOnTiDB(t testing.TB) {
	t.Helper()
	if !TiDB() {
		t.Skip("make tidb runs it")
	}
}

// Scale is the size of a test: small in `make test`, full in `make test-all`.
func Scale(small, full int) int {
	if All() {
		return full
	}
	return small
}

// SoakTime is how long each test of `make soak` puts load on its subject: SOAK, such as 10m, or a minute.
func SoakTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK")
	if text == "" {
		return time.Minute
	}
	length, err := time.ParseDuration(text)
	if err != nil || length <= 0 {
		t.Fatalf("SOAK=%q: it has to be a duration, such as 10m", text)
	}
	return length
}

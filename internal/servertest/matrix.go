package servertest

import (
	"path/filepath"
	"testing"

	"firsttap/internal/testkit"
)

// The kinds of databases.
const (
	SQLite  = "sqlite"
	MariaDB = mariadb
	MySQL   = mysql
	TiDB    = tidb
)

// Databases are the kinds that a test of SQL runs on: SQLite and MariaDB, and also MySQL in `make test-all`; in `make tidb`, TiDB alone.
func Databases() []string { return withSQLite(Servers()) }

// Servers is Databases without SQLite.
func Servers() []string {
	if testkit.All() || testkit.TiDB() {
		return EveryServer()
	}
	return []string{MariaDB}
}

// EveryDatabase are all kinds, for what each has to prove in `make test` too.
func EveryDatabase() []string { return withSQLite(EveryServer()) }

// EveryServer is EveryDatabase without SQLite.
func EveryServer() []string {
	if testkit.TiDB() {
		return []string{TiDB}
	}
	return []string{MariaDB, MySQL}
}

func withSQLite(servers []string) []string {
	if testkit.TiDB() {
		return servers
	}
	return append([]string{SQLite}, servers...)
}

// EmptyURL is an empty database of the test's own: a file, or on a server that tests share and must not break. That is the one in
// FIRSTTAP_TEST_MARIADB_URL, FIRSTTAP_TEST_MYSQL_URL or FIRSTTAP_TEST_TIDB_URL, or one that this process started. The database is dropped
// with the test.
func EmptyURL(t testing.TB, kind string) string {
	t.Helper()
	if kind == SQLite {
		return "sqlite://" + filepath.Join(t.TempDir(), "first tap%.db") // a name that a URL has to escape
	}
	return freshDatabase(t, kind)
}

// OnEach runs the test once for each kind, as a subtest with the kind's name.
func OnEach(t *testing.T, kinds []string, test func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

package systemtest

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/internal/servertest"
	"firsttap/repository/repositorytest"
)

// Database reads an instance's database directly.
type Database struct {
	t  testing.TB
	DB *sql.DB
}

// OpenDatabase opens the database at url until the test ends.
func OpenDatabase(t testing.TB, url string) *Database {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		return openDatabase(t, "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	}
	account, rest, _ := strings.Cut(strings.TrimPrefix(url, "mysql://"), "@")
	config := driver.NewConfig()
	config.User, config.Passwd, _ = strings.Cut(account, ":")
	config.Net = "tcp"
	config.Addr, config.DBName, _ = strings.Cut(rest, "/")
	return openDatabase(t, "mysql", config.FormatDSN())
}

func openDatabase(t testing.TB, driver, dsn string) *Database {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Database{t, db}
}

// Count returns the number of rows. query follows SELECT COUNT(*) FROM.
func (db *Database) Count(query string, args ...any) (n int) {
	db.t.Helper()
	if err := db.DB.QueryRow("SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		db.t.Fatal(err)
	}
	return n
}

// taps returns the number of stored taps on the dispatches whose identifiers match the LIKE pattern id.
func (db *Database) taps(id string) (n int) {
	db.t.Helper()
	if err := db.DB.QueryRow("SELECT COALESCE(SUM(count), 0) FROM taps WHERE dispatch_id LIKE ?", id).Scan(&n); err != nil {
		db.t.Fatal(err)
	}
	return n
}

// each calls read for each row of the query's result.
func (db *Database) each(query string, read func(scan func(...any) error) error) {
	db.t.Helper()
	rows, err := db.DB.Query(query)
	if err != nil {
		db.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			db.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		db.t.Fatal(err)
	}
}

// exec executes the statement, again if the database has rolled it back for an instance's: a deadlock is nobody's fault.
func (db *Database) exec(query string, args ...any) {
	db.t.Helper()
	const deadlock = 1213
	for {
		_, err := db.DB.Exec(query, args...)
		var refused *driver.MySQLError
		switch {
		case err == nil:
			return
		case !errors.As(err, &refused) || refused.Number != deadlock:
			db.t.Fatal(err)
		}
	}
}

// mustBeWonBy checks that the database has the winner's claim of the round in each table, exactly once.
func (db *Database) mustBeWonBy(id string, round int, winner, claim string) {
	db.t.Helper()
	for what, n := range map[string]int{
		"dispatch": db.Count("dispatches WHERE id=? AND round=? AND status='ACCEPTED' AND accepted_by=? AND claim_id=?",
			id, round, winner, claim),
		"claim":  db.Count("claims WHERE dispatch_id=? AND round=? AND outcome='WON' AND driver_id=? AND id=?", id, round, winner, claim),
		"claims": db.Count("claims WHERE dispatch_id=? AND round=?", id, round),
		"event":  db.Count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted' AND driver_id=?", id, round, winner),
		"events": db.Count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted'", id, round),
	} {
		if n != 1 {
			db.t.Errorf("%s round %d: %d in the database for %s", id, round, n, what)
		}
	}
}

func (db *Database) reannounced(id string) int {
	db.t.Helper()
	return db.Count("events WHERE dispatch_id=? AND type='dispatch.opened' AND reason_code='CLAIM_FAILED'", id)
}

// mariaDB is a migrated database of the test's own.
func mariaDB(t testing.TB) string {
	t.Helper()
	return repositorytest.URL(t, servertest.MariaDB)
}

// onServers runs test on a migrated database of its own on each of [servertest.Servers].
func onServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	onMigrated(t, servertest.Servers(), test)
}

// onEveryServer is onServers with MySQL in `make test` too. It is for what decides a claim: the engines lock rows differently.
func onEveryServer(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	onMigrated(t, servertest.EveryServer(), test)
}

// onDatabases is onServers with SQLite.
func onDatabases(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	onMigrated(t, servertest.Databases(), test)
}

func onMigrated(t *testing.T, kinds []string, test func(t *testing.T, url string)) {
	t.Helper()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) { test(t, repositorytest.URL(t, kind)) })
}

// onEmptyServers is onServers without a schema.
func onEmptyServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) { test(t, servertest.EmptyURL(t, kind)) })
}

package systemtest

import (
	"database/sql"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/servertest"
)

// Database is a look into the database past the service.
type Database struct {
	t  testing.TB
	DB *sql.DB
}

// OpenDatabase looks into the database at url until the test ends.
func OpenDatabase(t testing.TB, url string) *Database {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return &Database{t, db}
	}
	rest := strings.TrimPrefix(url, "mysql://")
	account, rest, _ := strings.Cut(rest, "@")
	addr, name, _ := strings.Cut(rest, "/")
	config := driver.NewConfig()
	config.User, config.Passwd, _ = strings.Cut(account, ":")
	config.Net, config.Addr, config.DBName = "tcp", addr, name
	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return &Database{t, db}
}

// Count counts the rows of a query that begins after FROM.
func (b *Database) Count(query string, args ...any) (n int) {
	b.t.Helper()
	if err := b.DB.QueryRow("SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// mustBeWonBy checks that the books say of the round what the winner was told, all of it and once.
func (b *Database) mustBeWonBy(id string, round int, winner, claim string) {
	b.t.Helper()
	for what, n := range map[string]int{
		"dispatch": b.Count("dispatches WHERE id=? AND round=? AND status='ACCEPTED' AND accepted_by=? AND claim_id=?", id, round, winner, claim),
		"claim":    b.Count("claims WHERE dispatch_id=? AND round=? AND outcome='WON' AND driver_id=? AND id=?", id, round, winner, claim),
		"claims":   b.Count("claims WHERE dispatch_id=? AND round=?", id, round),
		"event":    b.Count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted' AND driver_id=?", id, round, winner),
		"events":   b.Count("events WHERE dispatch_id=? AND round=? AND type='dispatch.accepted'", id, round),
		"outbox":   b.Count("outbox o JOIN events e ON e.id=o.event_id WHERE e.dispatch_id=? AND e.round=? AND e.type='dispatch.accepted'", id, round),
	} {
		if n != 1 {
			b.t.Errorf("%s round %d: %d in the books for %s", id, round, n, what)
		}
	}
}

func (b *Database) reannounced(id string) int {
	b.t.Helper()
	return b.Count(`outbox o JOIN events e ON e.id=o.event_id
		WHERE e.dispatch_id=? AND e.type='dispatch.opened' AND e.reason_code='CLAIM_FAILED'`, id)
}

// onServers runs test on MariaDB and on MySQL.
func onServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("mariadb", func(t *testing.T) { test(t, servertest.MariaDBURL(t)) })
	t.Run("mysql", func(t *testing.T) { test(t, servertest.MySQLURL(t)) })
}

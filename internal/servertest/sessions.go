package servertest

import (
	"database/sql"
	"testing"
)

// Session is a connection to a database, and what it executes.
type Session struct{ ID, User, Statement string }

// Sessions returns the sessions that use db's database, or none if db uses none, but for the one that asks. It reads SHOW PROCESSLIST:
// MySQL refuses to read information_schema.processlist while any session, also another test's, executes a statement with bytes that are no
// text.
func Sessions(t testing.TB, db *sql.DB) (all []Session) {
	t.Helper()
	const statement = "SHOW FULL PROCESSLIST"
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	database, err := column(t.Context(), conn, "SELECT DATABASE()")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := rowsOf(t.Context(), conn, statement)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		const id, user, name, info = 0, 1, 3, 7
		if row[name] == database[0] && row[info] != statement {
			all = append(all, Session{row[id], row[user], row[info]})
		}
	}
	return all
}

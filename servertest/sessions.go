package servertest

import (
	"database/sql"
	"testing"
)

// Session is a connection to a database, and what it executes.
type Session struct{ ID, Statement string }

// Sessions returns the sessions that use db's database, but for the one that asks. It reads SHOW PROCESSLIST: MySQL refuses to read
// information_schema.processlist while any session, also another test's, executes a statement with bytes that are no text.
func Sessions(t testing.TB, db *sql.DB) (all []Session) {
	t.Helper()
	const statement = "SHOW FULL PROCESSLIST"
	var database string
	if err := db.QueryRow("SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		const id, name, info = 0, 3, 7
		if values[name].String == database && values[info].String != statement {
			all = append(all, Session{values[id].String, values[info].String})
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

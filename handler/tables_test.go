package handler

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	_ "github.com/glebarez/go-sqlite" // to read the tables themselves, and not the API's answers

	"firsttap/dispatch"
)

// tables is the world's database, beside the store.
func (w *world) tables() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}

// everything returns the content of all tables, by the table.
func (w *world) everything() map[string]string {
	w.t.Helper()
	db := w.tables()
	defer db.Close()
	held := map[string]string{}
	for _, name := range w.rows(db, "SELECT name FROM sqlite_master WHERE type = 'table'") {
		held[name] = strings.Join(w.rows(db, "SELECT * FROM "+name), "\n")
	}
	if len(held) < 10 {
		w.t.Fatalf("only %d tables", len(held))
	}
	return held
}

func (w *world) rows(db *sql.DB, query string) (all []string) {
	w.t.Helper()
	rows, err := db.QueryContext(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		w.t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// exec runs a statement on the database.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	db := w.tables()
	defer db.Close()
	done, err := db.ExecContext(w.t.Context(), query, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		w.t.Fatalf("%s: %d rows, %v", query, n, err)
	}
}

func (w *world) putNamedKey(id string, role dispatch.Role, secret string) {
	w.t.Helper()
	sum := sha256.Sum256([]byte(secret))
	if err := w.store.EnsureKey(w.t.Context(), dispatch.Key{ID: id, Name: id, Role: role, Hash: hex.EncodeToString(sum[:])}); err != nil {
		w.t.Fatal(err)
	}
}

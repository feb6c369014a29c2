package handler

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"testing"

	_ "github.com/glebarez/go-sqlite" // to read the tables themselves, and not the API's answers

	"firsttap/dispatch"
)

// tables is the world's database, beside the store.
func (w *world) tables() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.path+"?_pragma=busy_timeout(5000)")
	noError(w.t, err)
	return db
}

// writes returns a function that reports whether anything was committed to the database since the last call.
func (w *world) writes(t testing.TB) func() bool {
	t.Helper()
	db := w.tables()
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // the number is about the others' commits
	version := func() (n int) {
		noError(t, db.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
		return n
	}
	last := version()
	return func() bool {
		before := last
		last = version()
		return last != before
	}
}

// exec runs a statement on the database.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	db := w.tables()
	defer db.Close()
	done, err := db.ExecContext(w.t.Context(), query, args...)
	noError(w.t, err)
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		w.t.Fatalf("%s: %d rows, %v", query, n, err)
	}
}

func (w *world) putNamedKey(id string, role dispatch.Role, secret string) {
	w.t.Helper()
	sum := sha256.Sum256([]byte(secret))
	noError(w.t, w.store.EnsureKey(w.t.Context(), dispatch.Key{ID: id, Name: id, Role: role, Hash: hex.EncodeToString(sum[:])}))
}

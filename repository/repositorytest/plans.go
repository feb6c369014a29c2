package repositorytest

import (
	"fmt"
	"strings"
	"testing"

	"firsttap/repository/database"
)

// Plan is what SQLite says that it does for a statement.
func (db *Bench) Plan(t *testing.T, statement string) (steps []string) {
	t.Helper()
	rows, err := db.Raw.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var step string
		Must(t, rows.Scan(new(int), new(int), new(int), &step))
		steps = append(steps, step)
	}
	Must(t, rows.Err())
	return steps
}

// Explain returns how the server would find the rows of a statement, one line for each table.
func (db *Bench) Explain(t *testing.T, statement string) (plans []map[string]string) {
	t.Helper()
	db.NotOnTiDB(t, "plans of MySQL's form")
	var rows []map[string]any
	if err := db.Serve.With(t.Context()).Raw("EXPLAIN FORMAT=TRADITIONAL " + statement).Scan(&rows).Error; err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	for _, row := range rows {
		plan := map[string]string{}
		for column, value := range row {
			if plan[strings.ToLower(column)] = ""; value != nil {
				plan[strings.ToLower(column)] = fmt.Sprint(value)
			}
		}
		plans = append(plans, plan)
	}
	return plans
}

// MustNotSort fails the test if SQLite would sort for the query.
func (db *Bench) MustNotSort(t *testing.T, query string) {
	t.Helper()
	for _, step := range db.Plan(t, query) {
		if reads := !strings.Contains(step, "SUBQUERY"); reads && !strings.Contains(step, "INDEX") || strings.Contains(step, "TEMP B-TREE") {
			t.Errorf("%s: %s", query, step)
		}
	}
}

// RowsRead is how many rows, and entries of indexes, the server touches for a query.
func (db *Bench) RowsRead(t *testing.T, query string) int {
	t.Helper()
	db.NotOnTiDB(t, "count of the rows that a session has read")
	conn, err := db.Raw.Conn(t.Context())
	Must(t, err)
	defer conn.Close()
	// No FLUSH STATUS: on MySQL it resets the counters of all sessions, also those of other tests.
	read := func() (total int) {
		t.Helper()
		rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Sort_rows'")
		Must(t, err)
		defer rows.Close()
		for rows.Next() {
			var n int
			Must(t, rows.Scan(new(string), &n))
			total += n
		}
		Must(t, rows.Err())
		return total
	}
	first := read()
	before := read()
	Must(t, ErrorOf(conn.ExecContext(t.Context(), query)))
	total := read() - before - (before - first) // what SHOW reads itself is no part of it
	if total <= 0 {
		t.Fatalf("%d rows were read", total)
	}
	return total
}

// Statements calls fn and returns the statements that it ran on the pools.
func Statements(t testing.TB, pools []database.Tx, fn func()) (all []string) {
	t.Helper()
	note := func(tx database.Tx) {
		all = append(all, database.Expanded(tx, tx.Explain(tx.Statement.SQL.String(), tx.Statement.Vars...)))
	}
	for _, pool := range pools {
		c := pool.Callback()
		for _, kind := range []interface {
			Register(string, func(database.Tx)) error
			Remove(string) error
		}{c.Raw(), c.Row(), c.Query(), c.Create(), c.Update()} {
			Must(t, kind.Register("note", note))
			defer kind.Remove("note")
		}
	}
	fn()
	return all
}

package repositorytest

import (
	"database/sql"
	"errors"
	"regexp"
	"testing"

	"firsttap/repository/database"
)

// Reading is a use of the database that reads few rows, however many there are.
type Reading struct {
	Do func() error
	// Each is how many rows, and entries of indexes, a server may touch for one statement of Do, and Most for all; 0 for any number.
	Each, Most int
}

// scans is what SQLite says of a large table that it reads from end to end, without an index.
var scans = regexp.MustCompile(`^SCAN (dispatches|d|dispatch_words|drivers|v|driver_regions|driver_words|devices|dv|offers|taps|claims|` +
	`events|e|notifications|n|job_runs|webhook_deliveries|p)$`)

// MustReadFew fails the test if one of the readings touches more rows than it may. SQLite does not count rows: there it is enough that no
// large table is read from end to end.
func (db *Bench) MustReadFew(t *testing.T, readings map[string]Reading) {
	t.Helper()
	for name, reading := range readings {
		looked, rows, most := 0, 0, 0
		var err error
		for _, s := range db.Statements(t, func() { err = reading.Do() }) {
			if !readsRows.MatchString(s) {
				continue // the clock, or an INSERT
			}
			looked++
			if db.SQLite() {
				for _, step := range db.Plan(t, s) {
					if scans.MatchString(step) {
						t.Errorf("%s: %s: %s", name, s, step)
					}
				}
				continue
			}
			n := db.RowsRead(t, s)
			if rows, most = rows+n, max(most, n); reading.Each > 0 && n > reading.Each {
				t.Errorf("%s: %d rows are read for %.400s", name, n, s)
			}
		}
		if err != nil || looked == 0 || reading.Most > 0 && rows > reading.Most {
			t.Errorf("%s: %d rows are read for %d statements; %v", name, rows, looked, err)
		}
		t.Logf("%s: %d rows read for %d statements, %d at most for one", name, rows, looked, most)
	}
}

// readsRows tells the statements that read rows of tables.
var readsRows = regexp.MustCompile(`(?s)\A\s*(SELECT .*\sFROM|UPDATE|DELETE|\{delete)`)

// Plan is what SQLite says that it does for a statement.
func (db *Bench) Plan(t *testing.T, statement string) (steps []string) {
	t.Helper()
	rows, err := db.Serve.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement)
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

// Explain returns by which keys the server would find the rows of a statement, one for each table, "" for none.
func (db *Bench) Explain(t *testing.T, statement string) (keys []string) {
	t.Helper()
	db.NotOnTiDB(t, "plans of MySQL's form")
	var rows []struct{ Key, Type string }
	if err := db.Serve.With(t.Context()).Raw("EXPLAIN FORMAT=TRADITIONAL " + statement).Scan(&rows).Error; err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	for _, row := range rows {
		if row.Type == "index" { // from end to end
			row.Key = ""
		}
		keys = append(keys, row.Key)
	}
	return keys
}

// RowsRead is how many rows, and entries of indexes, the server touches for a statement, and for sorting. It changes nothing.
func (db *Bench) RowsRead(t *testing.T, statement string) (n int) {
	t.Helper()
	db.NotOnTiDB(t, "count of the rows that a session has read")
	undone := errors.New("undone")
	err := db.Serve.TransactOnce(t.Context(), func(tx database.Tx) error {
		// No FLUSH STATUS: on MySQL it resets the counters of all sessions, also those of other tests.
		read := func() (total int) {
			t.Helper()
			var counters []struct {
				Name  string `gorm:"column:Variable_name"`
				Value int    `gorm:"column:Value"`
			}
			status := "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Sort_rows'"
			Must(t, tx.Raw(status).Scan(&counters).Error)
			for _, c := range counters {
				total += c.Value
			}
			return total
		}
		first := read()
		before := read()
		rows, err := tx.Raw(statement).Rows()
		if err == nil {
			err = closed(rows)
		}
		n = read() - before - (before - first) // what SHOW reads itself is no part of it
		return errors.Join(err, undone)
	})
	if !errors.Is(err, undone) || n <= 0 {
		t.Fatalf("%d rows were read for %s: %v", n, statement, err)
	}
	return n
}

// closed reads the rows to their end.
func closed(rows *sql.Rows) error {
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Statements calls fn and returns the statements that it ran, with their values, and with words in braces.
func (db *Bench) Statements(t testing.TB, fn func()) (all []string) {
	t.Helper()
	note := func(tx database.Tx) { all = append(all, tx.Explain(tx.Statement.SQL.String(), tx.Statement.Vars...)) }
	pools := []*database.Pool{db.Decide, db.Serve}
	if !db.SQLite() { // it has these two
		pools = append(pools, db.Work, db.Watch)
	}
	for _, pool := range pools {
		c := pool.With(t.Context()).Callback()
		for _, kind := range []interface {
			Register(string, func(database.Tx)) error
			Remove(string) error
		}{c.Raw(), c.Row(), c.Query(), c.Create(), c.Update(), c.Delete()} {
			Must(t, kind.Register("note", note))
			defer kind.Remove("note")
		}
	}
	fn()
	return all
}

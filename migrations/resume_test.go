package migrations_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/migrations"
	"firsttap/testkit"
)

func mysqlMigrator(t *testing.T, db *sql.DB, log *slog.Logger) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(serverDialect(), db, nil, log)
	must(t, err)
	return m
}

// serverDialect is that of the servers that the tests run on.
func serverDialect() migrations.Dialect {
	if testkit.TiDB() {
		return migrations.TiDB
	}
	return migrations.MySQL
}

// notOnTiDB leaves a test out there.
func notOnTiDB(t *testing.T, reason string) {
	t.Helper()
	if testkit.TiDB() {
		t.Skip("TiDB: " + reason)
	}
}

var silent = slog.New(slog.DiscardHandler)

// lines is content without the order of a table's keys, which is the one they were made in.
func lines(t *testing.T, db *sql.DB) []string {
	t.Helper()
	all := strings.Split(strings.ReplaceAll(content(t, db), ",\n", "\n"), "\n")
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	slices.Sort(all)
	return all
}

// mustMiss fails the test unless so many migrations are still to be applied.
func mustMiss(t *testing.T, m *migrations.Migrator, want int) {
	t.Helper()
	if n, err := m.Pending(t.Context()); n != want || err != nil {
		t.Fatalf("%d are missing, %v; want %d", n, err, want)
	}
}

// A FirstTap without a journal was cut off after any statement of its files, up or down: this one goes on.
func TestCutOffWithoutAJournal(t *testing.T) {
	notOnTiDB(t, "no FirstTap without a journal has migrated one")
	onServers(t, func(t *testing.T, newURL func() string) {
		db := openServer(t, newURL())
		cuts := 0
		upTo := func(version int) {
			t.Helper()
			if err := mysqlMigrator(t, db, silent).UpTo(t.Context(), int64(version)); err != nil {
				t.Fatalf("up to %d after %d cuts: %v", version, cuts, err)
			}
		}
		down := func() {
			t.Helper()
			if took, err := mysqlMigrator(t, db, silent).Down(t.Context()); err != nil || !took {
				t.Fatalf("down after %d cuts: %v, %v", cuts, took, err)
			}
		}
		for i, f := range files(t, "mysql/*.sql")[:migrations.LastUnjournaled] {
			version, up, back := i+1, f.up, f.down
			upTo(version)
			down()
			before := lines(t, db)
			upTo(version)
			after := lines(t, db)
			tablesOnly := !slices.ContainsFunc(up, func(s string) bool { return !strings.HasPrefix(s, "CREATE TABLE") })
			for n := range max(len(up), len(back)) {
				if tablesOnly && n > 0 && n < len(up)-1 {
					continue // one is as the other
				}
				if n < len(back) { // the first n+1 statements of the way down
					execute(t, db, back[:n+1]...)
					cuts++
					down()
					if diff := cmp.Diff(before, lines(t, db)); diff != "" {
						t.Fatalf("version %d, down cut after %d statements: %s", version, n+1, diff)
					}
				} else {
					down()
				}
				if n < len(up) {
					execute(t, db, up[:n+1]...)
					cuts++
				}
				upTo(version)
				if diff := cmp.Diff(after, lines(t, db)); diff != "" {
					t.Fatalf("version %d, up cut after %d statements: %s", version, n+1, diff)
				}
			}
		}
		t.Logf("%d cuts tried, all ended", cuts)
	})
}

// cutAt has op cut off by a process that ends when its n-th change is about to be sent.
func cutAt(t *testing.T, rawURL string, n int, op func(context.Context, *migrations.Migrator) error) {
	t.Helper()
	s := &scissors{done: map[string]bool{}, cut: map[string]bool{}, skip: n}
	ctx := s.process(t.Context())
	defer s.stop()
	config := configOf(t, rawURL)
	config.DialFunc = s.dial
	db := openConfig(t, config)
	if err := op(ctx, mysqlMigrator(t, db, silent)); err == nil || !s.gone {
		t.Fatalf("was not cut off at the %d-th change: %v", n, err)
	}
}

// An interrupted migration is ended first, and then the requested ones are applied.
func TestTurnedAroundInTheMiddle(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		url := newURL()
		db := openServer(t, url)
		m := mysqlMigrator(t, db, silent)
		mustHold := func(want, what string) {
			t.Helper()
			if got := content(t, db); got != want {
				t.Errorf("%s with\n%s\nwant\n%s", what, got, want)
			}
		}
		mustStep := func() {
			t.Helper()
			if n, err := m.Up(t.Context()); n != 1 || err != nil {
				t.Fatalf("Up took %d steps, %v", n, err)
			}
		}
		mustMiss(t, m, steps)
		must(t, up(t.Context(), m))
		mustMiss(t, m, 0)
		whole := content(t, db)
		must(t, down(t.Context(), m))
		mustMiss(t, m, 1)
		without := content(t, db)

		const inTheMiddle = 8
		cutAt(t, url, inTheMiddle, up)
		mustMiss(t, m, 1)
		must(t, down(t.Context(), m))
		mustHold(without, "up was cut off, and down ends")
		must(t, up(t.Context(), m))

		cutAt(t, url, inTheMiddle, down)
		mustMiss(t, m, 1)
		mustStep()
		mustHold(whole, "down was cut off, and up ends")

		cutAt(t, url, inTheMiddle, down)
		must(t, down(t.Context(), m)) // the same step, and no other
		mustHold(without, "down was cut off, and down ends")
		mustStep()
	})
}

// A migration is not resumed if its file differs from the interrupted one.
func TestChangedFileIsNotResumed(t *testing.T) {
	notOnTiDB(t, "without its record the first version is not resumed, as each FirstTap there has kept one")
	onServers(t, func(t *testing.T, newURL func() string) {
		url := newURL()
		db := openServer(t, url)
		cutAt(t, url, 12, up)
		execute(t, db, "UPDATE migration_progress SET digest = 'another'")
		m := mysqlMigrator(t, db, silent)
		if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "another version of this file") {
			t.Errorf("got %v", err)
		}
		// One that only a newer FirstTap has: this one goes on without it, and takes nothing from under it.
		execute(t, db, "DELETE FROM migration_progress")
		must(t, up(t.Context(), m))
		execute(t, db, "INSERT INTO migration_progress VALUES (5, TRUE, 'another', 1, '')") // and this one is completed
		if n, err := m.Up(t.Context()); n != 0 || err != nil {
			t.Errorf("Up beside the row of a completed version: %d, %v", n, err)
		}
		var rows int
		must(t, db.QueryRow("SELECT COUNT(*) FROM migration_progress").Scan(&rows))
		if rows != 0 {
			t.Errorf("%d rows of completed versions", rows)
		}
		execute(t, db, "INSERT INTO migration_progress VALUES (9999, TRUE, 'another', 1, '')")
		if n, err := m.Up(t.Context()); n != 0 || err != nil {
			t.Errorf("Up: %d, %v", n, err)
		}
		mustMiss(t, m, 0)
		if _, err := m.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "does not have it") {
			t.Errorf("Down: %v", err)
		}
	})
}

// An object that an operator has created is not taken for a statement's effect, where a journal would have a record.
func TestMadeByOthers(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		db := openServer(t, newURL())
		m := mysqlMigrator(t, db, silent).Journaled()
		must(t, m.UpTo(t.Context(), migrations.LastUnjournaled-1))
		execute(t, db, "ALTER TABLE events ADD COLUMN request_id INT")
		for range 2 {
			if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "00006_api.sql, statement 1 of") {
				t.Fatalf("got %v", err)
			}
		}
		execute(t, db, "ALTER TABLE events DROP COLUMN request_id")
		must(t, up(t.Context(), m))
	})
}

package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/migrations"
)

func mysqlMigrator(t *testing.T, db *sql.DB, log *slog.Logger) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(migrations.MySQL, db, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	return m
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

// halves returns the statements of a version's file, up and down.
func halves(t *testing.T, version int) (up, down []string) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("mysql/%05d_*.sql", version))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "-- +goose Down")
	return statementsIn(first), statementsIn(second)
}

// A FirstTap without a journal was cut off after any statement of its files, up or down: this one goes on.
func TestCutOffWithoutAJournal(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		db := openConfig(t, configOf(t, newURL()))
		defer db.Close()
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
		for version := 1; version <= migrations.LastUnjournaled; version++ {
			up, back := halves(t, version)
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
	defer db.Close()
	if err := op(ctx, mysqlMigrator(t, db, silent)); err == nil || !s.gone {
		t.Fatalf("was not cut off at the %d-th change: %v", n, err)
	}
}

// An interrupted migration is ended first, and then the requested ones are applied.
func TestTurnedAroundInTheMiddle(t *testing.T) {
	up := func(ctx context.Context, m *migrations.Migrator) error { _, err := m.Up(ctx); return err }
	down := func(ctx context.Context, m *migrations.Migrator) error { _, err := m.Down(ctx); return err }
	onServers(t, func(t *testing.T, newURL func() string) {
		url := newURL()
		db := openConfig(t, configOf(t, url))
		defer db.Close()
		m := mysqlMigrator(t, db, silent)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		missing := func(want int) {
			t.Helper()
			if n, err := m.Pending(t.Context()); n != want || err != nil {
				t.Fatalf("%d are missing, %v; want %d", n, err, want)
			}
		}
		missing(steps)
		must(up(t.Context(), m))
		missing(0)
		whole := content(t, db)
		must(down(t.Context(), m))
		missing(1)
		without := content(t, db)

		const inTheMiddle = 5
		cutAt(t, url, inTheMiddle, up)
		missing(1)
		must(down(t.Context(), m))
		if got := content(t, db); got != without {
			t.Errorf("up was cut off, and down ends with\n%s\nwant\n%s", got, without)
		}
		must(up(t.Context(), m))

		cutAt(t, url, inTheMiddle, down)
		missing(1)
		if n, err := m.Up(t.Context()); n != 1 || err != nil {
			t.Fatalf("Up took %d steps, %v", n, err)
		}
		if got := content(t, db); got != whole {
			t.Errorf("down was cut off, and up ends with\n%s\nwant\n%s", got, whole)
		}

		cutAt(t, url, inTheMiddle, down)
		must(down(t.Context(), m)) // the same step, and no other
		if got := content(t, db); got != without {
			t.Errorf("down was cut off, and down ends with\n%s\nwant\n%s", got, without)
		}
		if n, err := m.Up(t.Context()); n != 1 || err != nil {
			t.Fatalf("Up took %d steps, %v", n, err)
		}
	})
}

// A migration is not resumed if its file differs from the interrupted one.
func TestChangedFileIsNotResumed(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		url := newURL()
		db := openConfig(t, configOf(t, url))
		defer db.Close()
		cutAt(t, url, 12, func(ctx context.Context, m *migrations.Migrator) error { _, err := m.Up(ctx); return err })
		execute(t, db, "UPDATE migration_progress SET digest = 'another'")
		m := mysqlMigrator(t, db, silent)
		if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "another version of this file") {
			t.Errorf("got %v", err)
		}
		// One that only a newer FirstTap has: this one goes on without it, and takes nothing from under it.
		execute(t, db, "DELETE FROM migration_progress")
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		execute(t, db, "INSERT INTO migration_progress VALUES (9999, TRUE, 'another', 1, '')")
		if n, err := m.Up(t.Context()); n != 0 || err != nil {
			t.Errorf("Up: %d, %v", n, err)
		}
		if n, err := m.Pending(t.Context()); n != 0 || err != nil {
			t.Errorf("%d are missing, %v", n, err)
		}
		if _, err := m.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "does not have it") {
			t.Errorf("Down: %v", err)
		}
	})
}

// An object that an operator has created is not taken for a statement's effect, where a journal would have a record.
func TestMadeByOthers(t *testing.T) {
	onServers(t, func(t *testing.T, newURL func() string) {
		db := openConfig(t, configOf(t, newURL()))
		defer db.Close()
		m := mysqlMigrator(t, db, silent).Journaled()
		if err := m.UpTo(t.Context(), migrations.LastUnjournaled-1); err != nil {
			t.Fatal(err)
		}
		execute(t, db, "ALTER TABLE events ADD COLUMN request_id INT")
		for range 2 {
			if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "00006_api.sql, statement 1 of") {
				t.Fatalf("got %v", err)
			}
		}
		execute(t, db, "ALTER TABLE events DROP COLUMN request_id")
		if _, err := m.Up(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

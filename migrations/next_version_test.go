package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// nextVersion is a made-up release that gives each driver a badge: it adds the column, and fills it, two drivers at a time.
func nextVersion(t *testing.T, s schema, db *sql.DB) *migrations.Migrator {
	t.Helper()
	dialect, fill := migrations.MySQL, "UPDATE drivers SET badge = name WHERE badge IS NULL ORDER BY id LIMIT 2"
	if s.kind == servertest.SQLite {
		dialect, fill = migrations.SQLite, "UPDATE drivers SET badge = name WHERE badge IS NULL"
	}
	files := fstest.MapFS{}
	ours := os.DirFS(string(dialect))
	names, err := fs.Glob(ours, "*.sql")
	must(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(ours, name)
		must(t, err)
		files[name] = &fstest.MapFile{Data: text}
	}
	maps.Copy(files, fstest.MapFS{
		"00901_drivers_badge.sql": {Data: []byte("-- +goose Up\nALTER TABLE drivers ADD COLUMN badge VARCHAR(200) NULL;\n-- +goose Down\nALTER TABLE drivers DROP COLUMN badge;\n")},
		"00902_badges.sql":        {Data: []byte("-- +goose Up\n" + fill + ";\n-- +goose Down\nUPDATE drivers SET badge = NULL WHERE badge IS NOT NULL;\n")},
	})
	if s.kind == servertest.SQLite {
		files["00901_drivers_badge.sql"].Data = []byte(strings.ReplaceAll(string(files["00901_drivers_badge.sql"].Data), "VARCHAR(200)", "TEXT"))
	}
	m, err := migrations.NewOf(dialect, db, files, silent)
	must(t, err)
	return m
}

// This program and the next release use one database: while the next one's migration was cut off in the middle of what it fills, and after it.
func TestNextVersion(t *testing.T) {
	onSchemas(t, func(t *testing.T, s schema) {
		must(t, up(t.Context(), s.new(t)))
		url := s.url
		if s.kind == servertest.SQLite {
			url = "sqlite://" + url
		}
		this := repositorytest.Open(t, url, repository.Options{})
		n := 0
		add := func() {
			t.Helper()
			n++
			v := dispatch.Driver{ID: dispatch.DriverID(fmt.Sprint("drv_", n)), Name: fmt.Sprint("Driver ", n), Phone: fmt.Sprint("+82101234000", n),
				Regions: []string{"seoul"}, VehicleClass: "45m"}
			_, err := this.CreateDriver(t.Context(), v)
			must(t, err)
		}
		filled := func() int { return len(texts(t, s.db, "SELECT id FROM drivers WHERE badge = name")) }
		for range 5 {
			add()
		}
		if s.kind != servertest.SQLite { // there it is one transaction
			pending := func() int {
				n, err := nextVersion(t, s, s.db).Pending(t.Context())
				must(t, err)
				return n
			}
			for cut, missing := 1, pending(); ; cut++ {
				statement := s.cutAt(t, cut, true, func(ctx context.Context, db *sql.DB) error { return up(ctx, nextVersion(t, s, db)) })
				if strings.Contains(statement, "SET badge") {
					break
				}
				if statement == "" {
					t.Fatal("nothing was filled")
				}
				add()
				_, err := this.DriverRecord(t.Context(), "drv_1")
				must(t, err)
				if pending() < missing { // the column is there
					cut, missing = 0, pending()
				}
			}
			if got := filled(); got != 2 {
				t.Errorf("%d are filled when the migration is cut off, want 2", got)
			}
		}
		if pending, err := nextVersion(t, s, s.db).Pending(t.Context()); pending == 0 || err != nil {
			t.Errorf("%d migrations are pending, %v", pending, err)
		}
		add()
		must(t, up(t.Context(), nextVersion(t, s, s.db)))
		testkit.Equal(t, "filled drivers", n, filled())
		add() // by this program, whose drivers have no badge: the next one reads what it writes only one release later
		testkit.Equal(t, "filled drivers", n-1, filled())
		if pending, err := s.new(t).Pending(t.Context()); pending != 0 || err != nil {
			t.Errorf("this program misses %d migrations, %v", pending, err)
		}
		must(t, down(t.Context(), nextVersion(t, s, s.db)))
		must(t, down(t.Context(), nextVersion(t, s, s.db)))
		add()
		if took, err := s.new(t).Down(t.Context()); !took || err != nil {
			t.Errorf("this program takes back its own: %v, %v", took, err)
		}
	})
}

package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
)

// nextVersion is a made-up release that gives each driver a badge: it adds the column, and fills it, two drivers at a time. The one after
// it, which reads the badges, fills them again.
func nextVersion(t *testing.T, s schema, db *sql.DB, later bool) *migrations.Migrator {
	t.Helper()
	dialect, column := migrations.MySQL, "VARCHAR(200)"
	fill, none := "UPDATE drivers SET badge = name WHERE NOT (badge <=> name) ORDER BY id LIMIT 2", "DO 0"
	if s.kind == servertest.SQLite {
		dialect, column, fill, none = migrations.SQLite, "TEXT", "UPDATE drivers SET badge = name WHERE badge IS NOT name", "SELECT 0"
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
	add := func(name, up, down string) {
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + up + ";\n-- +goose Down\n" + down + ";\n")}
	}
	add("00901_drivers_badge.sql", "ALTER TABLE drivers ADD COLUMN badge "+column+" NULL", "ALTER TABLE drivers DROP COLUMN badge")
	add("00902_badges.sql", fill, none)
	if later {
		add("00903_badges.sql", fill, none)
	}
	m, err := migrations.NewOf(dialect, db, files, silent)
	must(t, err)
	return m
}

// This program and the next release use one database: while the next one's migration was cut off in the middle of what it fills, and after
// it.
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
			_, err := this.Drivers.CreateDriver(t.Context(), v)
			must(t, err)
		}
		filled := func() int { return len(texts(t, s.db, "SELECT id FROM drivers WHERE badge = name")) }
		for range 5 {
			add()
		}
		if s.kind != servertest.SQLite { // there it is one transaction
			pending := func() int {
				n, err := nextVersion(t, s, s.db, false).Pending(t.Context())
				must(t, err)
				return n
			}
			for cut, missing := 1, pending(); ; cut++ {
				statement := s.cutAt(t, cut, true, func(ctx context.Context, db *sql.DB) error { return up(ctx, nextVersion(t, s, db, false)) })
				if strings.Contains(statement, "SET badge") {
					break
				}
				if statement == "" {
					t.Fatal("nothing was filled")
				}
				add()
				_, err := this.Drivers.DriverRecord(t.Context(), "drv_1")
				must(t, err)
				if pending() < missing { // the column is there
					cut, missing = 0, pending()
				}
			}
			if got := filled(); got != 2 {
				t.Errorf("%d are filled when the migration is cut off, want 2", got)
			}
		}
		if pending, err := nextVersion(t, s, s.db, false).Pending(t.Context()); pending == 0 || err != nil {
			t.Errorf("%d migrations are pending, %v", pending, err)
		}
		add()
		must(t, up(t.Context(), nextVersion(t, s, s.db, false)))
		testkit.Equal(t, "filled drivers", n, filled())
		add() // by this program, whose drivers have no badge
		must(t, errorOf(this.Drivers.ChangeDriver(t.Context(), "drv_1", dispatch.DriverChange{
			Action: dispatch.AuditDriverUpdate,
			Apply:  func(v *dispatch.Driver, _ time.Time) error { v.Name = "Another name"; return nil },
		})))
		testkit.Equal(t, "filled drivers", n-2, filled())
		if steps, err := s.new(t).Up(t.Context()); steps != 0 || err != nil { // as it starts on the newer schema
			t.Errorf("this program misses %d migrations, %v", steps, err)
		}
		must(t, up(t.Context(), nextVersion(t, s, s.db, true)))
		testkit.Equal(t, "filled drivers", n, filled())
		if s.kind != servertest.SQLite { // a cut way back, a start of this program, and the rest of the way
			for range 2 {
				must(t, down(t.Context(), nextVersion(t, s, s.db, true)))
			}
			for cut := 1; ; cut++ {
				statement := s.cutAt(t, cut, true, func(ctx context.Context, db *sql.DB) error { return down(ctx, nextVersion(t, s, db, true)) })
				if strings.HasPrefix(statement, "UPDATE goose_db_version") {
					break
				}
			}
			must(t, up(t.Context(), s.new(t)))
		} else {
			must(t, down(t.Context(), nextVersion(t, s, s.db, true)))
			must(t, down(t.Context(), nextVersion(t, s, s.db, true)))
		}
		must(t, down(t.Context(), nextVersion(t, s, s.db, true)))
		if name, _, err := s.new(t).Newest(t.Context()); strings.HasPrefix(name, "009") || name == "" || err != nil {
			t.Errorf("the newest migration is %q, %v", name, err)
		}
		add()
		if took, err := s.new(t).Down(t.Context()); !took || err != nil {
			t.Errorf("this program takes back its own: %v, %v", took, err)
		}
	})
}

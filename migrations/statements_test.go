package migrations

import (
	"context"
	"database/sql"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/pressly/goose/v3"

	"firsttap/servertest"
)

// heard keeps the statements that goose says it executes, by direction and file.
type heard map[string][]string

func (h heard) Enabled(context.Context, slog.Level) bool { return true }
func (h heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h heard) WithGroup(string) slog.Handler            { return h }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		said[a.Key] = a.Value.String()
		return true
	})
	if r.Message == "executing statement" {
		key := said["direction"] + " " + said["source"]
		h[key] = append(h[key], said["statement"])
	}
	return nil
}

// The files are split as goose splits them, which executed them before.
func TestStatementsAreGoose(t *testing.T) {
	u, err := url.Parse(servertest.EmptyURL(t, servertest.MariaDB))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	db, err := sql.Open("mysql", u.User.Username()+":"+password+"@tcp("+u.Host+")"+u.Path+"?parseTime=true")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h := heard{}
	folder := os.DirFS("mysql")
	provider, err := goose.NewProvider(goose.DialectMySQL, db, folder, goose.WithVerbose(true), goose.WithSlog(slog.New(h)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = provider.Up(t.Context()); err == nil {
		_, err = provider.DownTo(t.Context(), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	taken, err := readFiles(folder)
	if err != nil || len(taken)*2 != len(h) {
		t.Fatalf("%d files, %v; goose executed %d", len(taken), err, len(h)/2)
	}
	for _, f := range taken {
		for direction, statements := range map[string][]statement{"up": f.up, "down": f.down} {
			var got []string
			for _, s := range statements {
				got = append(got, s.sql)
			}
			if want := h[direction+" "+f.name]; !slices.Equal(got, want) {
				t.Errorf("%s of %s is taken apart as\n%q, goose does\n%q", direction, f.name, got, want)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	up, down := split("-- a; b\n\n-- +goose Up\n-- c;\nCREATE TABLE t (\n  a INT, -- d;\n\n  b INT\n); -- e\n" +
		"DELETE FROM t WHERE a = ';' OR b = 1;\n-- +goose Down\nDROP TABLE t;\n")
	want := []string{"CREATE TABLE t (\n  a INT, -- d;\n\n  b INT\n); -- e", "DELETE FROM t WHERE a = ';' OR b = 1;"}
	if !slices.Equal(up, want) || !slices.Equal(down, []string{"DROP TABLE t;"}) {
		t.Errorf("got %q and %q", up, down)
	}
}

func TestUnderstand(t *testing.T) {
	for text, table := range map[string]string{
		"CREATE TABLE IF NOT EXISTS a (id INT);": "a", "create table b(id INT);": "b", "DROP TABLE c;": "c",
		"ALTER TABLE d\n  ADD COLUMN x INT;": "d", "CREATE UNIQUE INDEX ix ON e (x);": "e", "DROP INDEX ix ON f;": "f",
		"DELETE FROM g;": "", "UPDATE h SET x = 1;": "", "INSERT INTO i VALUES (1);": "",
	} {
		if s, err := parseStatements([]string{text}); err != nil || s[0].table != table {
			t.Errorf("%s: %v, %v; want %q", text, s, err, table)
		}
	}
	for _, text := range []string{
		"DROP TABLE a, b;", "RENAME TABLE a TO b;", "CREATE PROCEDURE p() SELECT 1;", "SET x = 1;", "DROP TABLE a",
		"-- +goose StatementBegin\nDROP TABLE a;",
	} {
		if s, err := parseStatements([]string{text}); err == nil {
			t.Errorf("%s is taken for %+v", text, s)
		}
	}
}

func TestReadFiles(t *testing.T) {
	taken, err := readFiles(os.DirFS("mysql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range taken {
		if len(f.up) == 0 || len(f.down) == 0 {
			t.Errorf("%s has %d statements up and %d down", f.name, len(f.up), len(f.down))
		}
	}
}

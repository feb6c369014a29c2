package servertest

import (
	"os"
	"strings"
	"testing"
)

// small migrates as few as one table with rows, and one without.
func small(t testing.TB, url string) {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		if err := os.WriteFile(path, []byte("migrated"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	db := openURL(t, url)
	mustExec(t, db, "CREATE TABLE seeds (name VARCHAR(20) PRIMARY KEY)", "INSERT INTO seeds VALUES ('one')",
		"CREATE TABLE things (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20))", "CREATE PROCEDURE made() DO 0")
}

// TestMigrated databases have the schema and no rows, whatever the tests before did to them, and no two tests have one at
// the same time.
func TestMigrated(t *testing.T) {
	for _, kind := range []string{mariadb, mysql} {
		t.Run(kind, func(t *testing.T) {
			serverURL(t, kind) // skips all if the server is not installed
			used := func(name string, changes ...string) (url string) {
				t.Run(name, func(t *testing.T) {
					url = Migrated(t, kind, small)
					db := openURL(t, url)
					mustScan(t, db, "SELECT COUNT(*) FROM things", "0")
					mustScan(t, db, "SELECT GROUP_CONCAT(name) FROM seeds", "one")
					mustExec(t, db, "INSERT INTO things (name) VALUES ('a')")
					mustScan(t, db, "SELECT MAX(id) FROM things", "1")
					mustExec(t, db, changes...)
				})
				return url
			}
			first := used("rows", "INSERT INTO things (name) VALUES ('b'), ('c')")
			if again := used("rows again"); again != first {
				t.Errorf("a new database %s, although %s is free", again, first)
			}
			t.Run("two at once", func(t *testing.T) {
				if a, b := Migrated(t, kind, small), Migrated(t, kind, small); a == b {
					t.Errorf("twice %s", a)
				}
			})
			for name, change := range map[string]string{
				"a new column": "ALTER TABLE things ADD COLUMN more INT", "another type": "ALTER TABLE things MODIFY name VARCHAR(30)",
				"a new index": "CREATE INDEX by_name ON things (name)", "a new table": "CREATE TABLE others (id INT)",
				"a table less": "DROP TABLE things", "a seed less": "DELETE FROM seeds", "another seed": "UPDATE seeds SET name='two'",
				"a trigger":   "CREATE TRIGGER no BEFORE INSERT ON things FOR EACH ROW SIGNAL SQLSTATE '45000'",
				"a procedure": "CREATE PROCEDURE more() DO 1", "another right": "ALTER PROCEDURE made SQL SECURITY INVOKER",
				"a procedure less": "DROP PROCEDURE made",
			} {
				if changed := used(name, change); used("after "+name) == changed {
					t.Errorf("%s: the database is used again", name)
				}
			}
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		for range 2 {
			path := strings.TrimPrefix(Migrated(t, "sqlite", small), "sqlite://")
			if text, err := os.ReadFile(path); string(text) != "migrated" {
				t.Errorf("%q, %v", text, err)
			}
			if err := os.WriteFile(path, []byte("changed"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

package servertest

import (
	"database/sql"
	"testing"

	"firsttap/internal/testkit"
)

func TestMySQLGroup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := StartMySQLGroup(t)
	first := g.Primary()
	name := nameOf(first.URL(t))
	on := func(member *Database) *sql.DB { return open(t, member.DSN(name)) }
	mustExec(t, on(first), "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")

	var second *Database
	for _, member := range g.Members {
		if member != first {
			second = member
		}
	}
	mustRefuseWrites(t, second, name)
	g.Move(second)
	mustRefuseWrites(t, first, name)
	mustExec(t, on(second), "INSERT INTO t VALUES (2)")
	mustScan(t, on(second), "SELECT COUNT(*) FROM t", "2")

	if g.FailOver((*Database).Kill) != second {
		t.Fatal("another member was the primary")
	}
	third := g.Primary()
	mustExec(t, on(third), "INSERT INTO t VALUES (3)")
	mustScan(t, on(third), "SELECT COUNT(*) FROM t", "3")

	second.Start()
	mustRefuseWrites(t, second, name) // also before it has joined
	g.Join(second)
	g.Move(second)
	mustScan(t, on(second), "SELECT COUNT(*) FROM t", "3")

	g.FailOver((*Database).Freeze)
	mustExec(t, on(g.Primary()), "INSERT INTO t VALUES (4)")
	second.Thaw()
	mustRefuseWrites(t, second, name) // it was expelled, and comes back as a secondary
	g.Await(second)
	mustScan(t, on(second), "SELECT COUNT(*) FROM t", "4")
}

func mustRefuseWrites(t *testing.T, d *Database, name string) {
	t.Helper()
	if _, err := open(t, d.DSN(name)).Exec("INSERT INTO t VALUES (99)"); err == nil {
		t.Errorf("%s takes a write", d.Addr())
	}
}

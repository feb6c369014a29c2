package servertest

import (
	"testing"

	"firsttap/testkit"
)

func TestMySQLGroup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := StartMySQLGroup(t)
	first := g.Primary()
	u := first.URL(t)
	mustExec(t, open(t, first.DSN(nameOf(u))), "CREATE TABLE t (id INT PRIMARY KEY)")
	mustExec(t, open(t, first.DSN(nameOf(u))), "INSERT INTO t VALUES (1)")

	var second *Database
	for _, member := range g.Members {
		if member != first {
			second = member
		}
	}
	mustRefuseWrites(t, second, nameOf(u))
	g.Move(second)
	mustRefuseWrites(t, first, nameOf(u))
	mustExec(t, open(t, second.DSN(nameOf(u))), "INSERT INTO t VALUES (2)")
	mustScan(t, open(t, second.DSN(nameOf(u))), "SELECT COUNT(*) FROM t", "2")

	for _, member := range g.Members {
		mustExec(t, open(t, member.DSN("")), "SET GLOBAL group_replication_member_expel_timeout = 0")
	}
	second.Kill()
	third := g.Primary()
	if third == second {
		t.Fatal("a dead member is the primary")
	}
	mustExec(t, open(t, third.DSN(nameOf(u))), "INSERT INTO t VALUES (3)")
	mustScan(t, open(t, third.DSN(nameOf(u))), "SELECT COUNT(*) FROM t", "3")

	second.Start()
	mustRefuseWrites(t, second, nameOf(u)) // also before it has joined
	g.Join(second)
	g.Move(second)
	mustScan(t, open(t, second.DSN(nameOf(u))), "SELECT COUNT(*) FROM t", "3")
}

func mustRefuseWrites(t *testing.T, d *Database, name string) {
	t.Helper()
	if _, err := open(t, d.DSN(name)).Exec("INSERT INTO t VALUES (99)"); err == nil {
		t.Errorf("%s takes a write", d.Addr())
	}
}

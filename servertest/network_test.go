package servertest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"firsttap/testkit"
)

// A primary that is cut off goes on to answer, and commits nothing; the others have another primary. It joins them again later.
func TestMySQLGroupIsCut(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := StartMySQLGroupOnNetwork(t)
	old := g.Primary()
	name := nameOf(old.URL(t))
	on := func(member *Database) *sql.DB { return open(t, member.DSN(name)) }
	mustExec(t, on(old), "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")

	g.FailOver(g.CutOff)
	mustScan(t, on(old), "SELECT COUNT(*) FROM t", "1")
	mustScan(t, on(old), "SELECT @@GLOBAL.super_read_only", "0")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := on(old).ExecContext(ctx, "INSERT INTO t VALUES (2)"); err == nil {
		t.Error("a primary without the others has committed")
	}
	mustExec(t, on(g.Primary()), "INSERT INTO t VALUES (3)")

	g.Reconnect(old)
	mustRefuseWrites(t, old, name)
	mustScan(t, on(old), "SELECT GROUP_CONCAT(id ORDER BY id) FROM t", "1,3")
}

package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/testkit"
)

// A server that is cut off soon answers nothing; the others go on. It joins them again later, with all data.
func TestGaleraIsCut(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := StartGaleraOnNetwork(t)
	alone, other := g.Nodes[0], g.Nodes[1]
	name := nameOf(alone.URL(t))
	on := func(node *Database) *sql.DB { return open(t, node.DSN(name)) }
	mustExec(t, on(alone), "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")

	g.CutOff(alone)
	g.Await(2)
	mustExec(t, on(other), "INSERT INTO t VALUES (2)")
	mustCome(t, func(ctx context.Context) error {
		var n int
		err := alone.scan(ctx, &n, "SELECT COUNT(*) FROM "+name+".t")
		if refused := (*driver.MySQLError)(nil); errors.As(err, &refused) && refused.Number == 1047 {
			return nil
		}
		return fmt.Errorf("got %d and %w, want error 1047", n, err)
	})

	g.Reconnect(alone)
	mustScan(t, on(alone), "SELECT GROUP_CONCAT(id ORDER BY id) FROM t", "1,2")
}

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
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = on(old).ExecContext(ctx, "INSERT INTO t VALUES (2)") // it is not committed, as is seen later
	mustExec(t, on(g.Primary()), "INSERT INTO t VALUES (3)")

	g.Reconnect(old)
	mustRefuseWrites(t, old, name)
	mustScan(t, on(old), "SELECT GROUP_CONCAT(id ORDER BY id) FROM t", "1,3")
}

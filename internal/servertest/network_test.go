package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/internal/testkit"
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

	alone.CutOff()
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

	alone.Reconnect()
	g.Await(3)
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

	g.FailOver((*Database).CutOff)
	mustScan(t, on(old), "SELECT COUNT(*) FROM t", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = on(old).ExecContext(ctx, "INSERT INTO t VALUES (2)") // it is not committed, as is seen later
	mustExec(t, on(g.Primary()), "INSERT INTO t VALUES (3)")

	old.Reconnect()
	g.Await(old)
	mustRefuseWrites(t, old, name)
	mustScan(t, on(old), "SELECT GROUP_CONCAT(id ORDER BY id) FROM t", "1,3")
}

// A master that is cut off goes on to take writes, beside the one that has taken over. It loses them when it is connected again.
func TestSentinelMasterIsCut(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	s := StartRedisSentinelOnNetwork(t)
	old := s.FailOver(t, (*Redis).CutOff)
	mustAnswer(t, old, "OK", "SET", "k", "old")
	mustAnswer(t, s.Master, "OK", "SET", "k", "new")
	mustAnswer(t, old, "old", "GET", "k")

	old.Reconnect()
	s.Await(t)
	mustAnswer(t, old, "new", "GET", "k")
}

// A master that is cut off soon takes nothing, and another has its slots. It redirects clients to that one when it is connected again.
func TestClusterMasterIsCut(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	c := StartReplicatedClusterOnNetwork(t)
	mustBeRefused := func(r *Redis, why string) {
		t.Helper()
		mustCome(t, func(ctx context.Context) error {
			answer, err := ask(ctx, r.Addr(), "SET", "{b}", "old") // slot 3300, of the first node
			switch {
			case err == nil:
				return fmt.Errorf("got %q, want %s", answer, why)
			case !strings.Contains(err.Error(), why):
				return fmt.Errorf("got %w, want %s", err, why)
			}
			return nil
		})
	}
	old := c.FailOver(t, (*Redis).CutOff)
	mustBeRefused(old, "CLUSTERDOWN")
	mustAnswer(t, c.Nodes[0], "OK", "SET", "{b}", "new")

	old.Reconnect()
	c.Await(t)
	mustBeRefused(old, "MOVED 3300 "+c.Nodes[0].Addr())
}

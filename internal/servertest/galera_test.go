package servertest

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/internal/testkit"
)

func TestGalera(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := StartGalera(t)
	a, b, c := g.Nodes[0], g.Nodes[1], g.Nodes[2]
	name := nameOf(a.URL(t))
	on := func(node *Database) *sql.DB { return open(t, node.DSN(name)) }
	mustExec(t, on(a), "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0)")

	// Two servers change the same row: one COMMIT fails.
	mustCome(t, func(ctx context.Context) error { return b.sees(ctx, "1", "SELECT COUNT(*) FROM "+name+".t") })
	var conflicts [2]error
	var transactions [2]*sql.Tx
	for i, node := range []*Database{a, b} {
		tx, err := on(node).Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE t SET v = ? WHERE id = 1", i+1); err != nil {
			t.Fatal(err)
		}
		transactions[i] = tx
	}
	testkit.Together(2, func(i int) { conflicts[i] = transactions[i].Commit() })
	failed := errors.Join(conflicts[:]...)
	var refused *driver.MySQLError
	if (conflicts[0] == nil) == (conflicts[1] == nil) || !errors.As(failed, &refused) || refused.Number != 1213 {
		t.Errorf("the two COMMITs ended with %v and %v, want 1213 once", conflicts[0], conflicts[1])
	}

	a.Kill()
	g.Await(2)
	mustExec(t, on(b), "INSERT INTO t VALUES (2, 0)")
	a.Start()
	g.Await(3)
	mustScan(t, on(a), "SELECT COUNT(*) FROM t", "2")

	// Without the majority a server answers nothing.
	b.Kill()
	c.Kill()
	mustCome(t, func(ctx context.Context) error {
		var n int
		err := a.scan(ctx, &n, "SELECT COUNT(*) FROM "+name+".t")
		if errors.As(err, &refused) && refused.Number == 1047 {
			return nil
		}
		return errors.Join(errors.New("want error 1047"), err)
	})
}

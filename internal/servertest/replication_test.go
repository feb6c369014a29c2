package servertest

import (
	"context"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"
)

func eachReplication(t *testing.T, test func(t *testing.T, r *Replication)) {
	t.Parallel()
	OnEach(t, Servers(), func(t *testing.T, kind string) { test(t, StartReplication(t, kind)) })
}

func TestFailover(t *testing.T) {
	eachReplication(t, func(t *testing.T, r *Replication) {
		database := nameOf(r.Primary.URL(t))
		primary := open(t, r.Primary.DSN(database))
		mustExec(t, primary, "CREATE TABLE t (id INT PRIMARY KEY)")
		r.Follow()
		replica := open(t, r.Replica.DSN(database))
		mustScan(t, replica, "SELECT COUNT(*) FROM t", "0")

		r.Lag()
		mustExec(t, primary, "INSERT INTO t VALUES (1)")
		mustScan(t, replica, "SELECT COUNT(*) FROM t", "0")
		r.Follow()
		mustScan(t, replica, "SELECT COUNT(*) FROM t", "1")

		r.Lag()
		mustExec(t, primary, "INSERT INTO t VALUES (2)")
		r.Primary.Kill()
		r.Promote()
		mustScan(t, replica, "SELECT @@GLOBAL.read_only", "0")
		mustScan(t, replica, "SELECT COUNT(*) FROM t", "1") // the second is lost
		mustExec(t, replica, "INSERT INTO t VALUES (2)")
	})
}

func TestSwitchover(t *testing.T) {
	eachReplication(t, func(t *testing.T, r *Replication) {
		proxy := StartProxy(t, r.Primary.Addr())
		u := proxy.URL(r.URL(t))
		old := openURL(t, u)
		mustExec(t, old, "CREATE TABLE kept (id INT PRIMARY KEY)", "INSERT INTO kept VALUES (1)")

		r.Demote()
		var refused *driver.MySQLError
		if _, err := old.Exec("INSERT INTO kept VALUES (2)"); !errors.As(err, &refused) || refused.Number != 1290 {
			t.Errorf("a demoted server says %v", err)
		}
		r.Follow()
		r.Promote()
		proxy.Redirect(r.Replica.Addr())
		fresh := openURL(t, u)
		mustExec(t, fresh, "INSERT INTO kept VALUES (3)")
		mustScan(t, fresh, "SELECT GROUP_CONCAT(id ORDER BY id) FROM kept", "1,3")
		mustScan(t, old, "SELECT GROUP_CONCAT(id ORDER BY id) FROM kept", "1") // its connection was not cut

		r.Reverse()
		mustCome(t, func(ctx context.Context) error {
			var id int
			return old.QueryRowContext(ctx, "SELECT id FROM kept WHERE id = 3").Scan(&id)
		})
	})
}

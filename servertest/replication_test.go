package servertest

import "testing"

func TestReplication(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *Replication{mariadb: StartMariaDBReplication, mysql: StartMySQLReplication} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
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
}

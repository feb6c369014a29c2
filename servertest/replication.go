package servertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// Replication is a primary and a replica of the test's own. The replica follows asynchronously: the primary answers a
// COMMIT without asking whether the replica has it.
type Replication struct {
	Primary, Replica *Database // the replica is read-only until Promote
	t                testing.TB
}

// StartMariaDBReplication starts two MariaDB servers and returns when the one follows the other. They end with the test.
func StartMariaDBReplication(t testing.TB) *Replication {
	t.Helper()
	return startReplication(t, mariadb)
}

// StartMySQLReplication is as StartMariaDBReplication, for MySQL.
func StartMySQLReplication(t testing.TB) *Replication {
	t.Helper()
	return startReplication(t, mysql, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
}

func startReplication(t testing.TB, name string, args ...string) *Replication {
	t.Helper()
	e, err := installed[name]()
	require(t, name, err)
	r := &Replication{t: t}
	for i, server := range []**Database{&r.Primary, &r.Replica} {
		logged := e
		logged.daemon = slices.Concat(e.daemon, logging(i+1), args)
		if *server, err = newDatabase(logged); err != nil {
			t.Fatal(err)
		}
		(*server).own(t)
	}
	const at = "CHANGE %[1]s TO %[2]s_HOST = '127.0.0.1', %[2]s_PORT = %[3]d, %[2]s_USER = 'root', "
	if name == mariadb {
		r.Replica.execute(fmt.Sprintf(at+"MASTER_USE_GTID = slave_pos", "MASTER", "MASTER", r.Primary.port))
	} else {
		r.Replica.execute(fmt.Sprintf(at+"SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", "REPLICATION SOURCE", "SOURCE", r.Primary.port))
	}
	r.Replica.execute("SET GLOBAL read_only = 1")
	r.Follow()
	return r
}

// Lag has the replica go on receiving what the primary commits, and apply none of it.
func (r *Replication) Lag() {
	r.t.Helper()
	r.Replica.execute("STOP " + r.words().replica + " SQL_THREAD")
}

// Follow has the replica apply what the primary commits, and returns when it has all that the primary has by now.
func (r *Replication) Follow() {
	r.t.Helper()
	w := r.words()
	r.Replica.execute("START " + w.replica)
	var position string
	if err := r.Primary.scan(context.Background(), &position, w.position); err != nil {
		r.t.Fatal(err)
	}
	err := until(func(ctx context.Context) error {
		return r.Replica.sees(ctx, "0", fmt.Sprintf(w.reached, position))
	})
	if err != nil {
		r.t.Fatalf("%s: the replica does not follow: %v\n%s", r.Replica.name, err, r.Replica.log())
	}
}

// Promote makes a server of its own of the replica, which takes writes. What it has not applied is lost.
func (r *Replication) Promote() {
	r.t.Helper()
	replica := r.words().replica
	r.Replica.execute("STOP "+replica, "RESET "+replica+" ALL", "SET GLOBAL read_only = 0")
}

// dialect is how the engines call the same things.
type dialect struct {
	replica  string // a server that follows
	position string // asks how far a server has come
	reached  string // asks whether a server has come so far: 0 when it has
}

func (r *Replication) words() dialect {
	if r.Replica.name == mariadb {
		return dialect{"SLAVE", "SELECT @@GLOBAL.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT('%s', 1)"}
	}
	return dialect{"REPLICA", "SELECT @@GLOBAL.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', 1)"}
}

package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"
)

// Replication is a primary and a replica of the test's own. Replication is asynchronous: the primary acknowledges a COMMIT
// without waiting for the replica.
type Replication struct {
	Primary, Replica *Database // the replica is read-only until Promote
	t                testing.TB
}

// StartReplication starts two servers of the kind and returns when one replicates the other. They end with the test.
func StartReplication(t testing.TB, kind string) *Replication {
	t.Helper()
	e, err := installed[kind]()
	require(t, kind, err)
	args := map[string][]string{mariadb: {"--log-slave-updates=1"}, mysql: {"--gtid-mode=ON", "--enforce-gtid-consistency=ON"}}[kind]
	r := &Replication{t: t, Primary: startReplicated(t, e, 1, args...), Replica: startReplicated(t, e, 2, args...)}
	r.replicate(r.Replica, r.Primary)
	r.Replica.execute("SET GLOBAL read_only = 1")
	r.Follow() // returns before the replica is connected if nothing was committed
	err = until(func(ctx context.Context) error {
		return r.Primary.sees(ctx, "1", "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
	})
	if err != nil {
		t.Fatalf("the replica does not connect: %v", err)
	}
	return r
}

// URL creates an empty database and returns the primary's URL of an account that owns it. Unlike root, the account cannot
// write to a read-only server.
func (r *Replication) URL(t testing.TB) string {
	t.Helper()
	const password = "a-password"
	u := parsed(t, r.Primary.URL(t))
	name := u.Path[1:]
	r.Primary.execute("CREATE USER "+name+"@'%' IDENTIFIED BY '"+password+"'", "GRANT ALL ON "+name+".* TO "+name+"@'%'")
	u.User = url.UserPassword(name, password)
	return u.String()
}

// Lag makes the replica receive what the primary commits, and apply none of it.
func (r *Replication) Lag() {
	r.t.Helper()
	r.Replica.execute("STOP " + r.dialect().replica + " SQL_THREAD")
}

// Follow makes the replica apply what the primary commits, and returns when it has applied all that is committed by now.
func (r *Replication) Follow() {
	r.t.Helper()
	d := r.dialect()
	r.Replica.execute("START " + d.replica)
	var position string
	if err := r.Primary.scan(context.Background(), &position, d.position); err != nil {
		r.t.Fatal(err)
	}
	err := until(func(ctx context.Context) error {
		return r.Replica.sees(ctx, "0", fmt.Sprintf(d.reached, position))
	})
	if err != nil {
		r.t.Fatalf("%s: the replica does not follow: %v\n%s", r.Replica.name, err, r.Replica.log())
	}
}

// AwaitReplica makes the primary, a MariaDB, acknowledge a COMMIT only after the replica has received it (semi-synchronous replication).
func (r *Replication) AwaitReplica() {
	r.t.Helper()
	r.Primary.execute("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC", "SET GLOBAL rpl_semi_sync_master_timeout = 3600000",
		"SET GLOBAL rpl_semi_sync_master_enabled = 1")
	r.Replica.execute("SET GLOBAL rpl_semi_sync_slave_enabled = 1", "STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD")
	err := until(func(ctx context.Context) error {
		return r.Primary.sees(
			ctx, "1", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rpl_semi_sync_master_clients'",
		)
	})
	if err != nil {
		r.t.Fatalf("the replica does not acknowledge: %v", err)
	}
}

// Acknowledged fails the test unless the replica has acknowledged each COMMIT since AwaitReplica.
func (r *Replication) Acknowledged() {
	r.t.Helper()
	const counters = "SELECT GROUP_CONCAT(variable_value ORDER BY variable_name) FROM information_schema.global_status " +
		"WHERE variable_name IN ('Rpl_semi_sync_master_no_tx', 'Rpl_semi_sync_master_status')"
	if err := r.Primary.sees(context.Background(), "0,ON", counters); err != nil {
		r.t.Error(err)
	}
}

// ApplyReceived makes the replica, a MariaDB, apply all that it has received from a primary that is gone.
func (r *Replication) ApplyReceived() {
	r.t.Helper()
	err := until(func(ctx context.Context) error {
		state, err := r.Replica.slaveStatus(ctx)
		if err != nil {
			return err
		}
		if state["Slave_IO_Running"] == "Yes" || state["Gtid_IO_Pos"] == "" {
			return errors.New("the replica has not noticed that the primary is gone, or has received nothing")
		}
		return r.Replica.sees(ctx, "0", fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', 1)", state["Gtid_IO_Pos"]))
	})
	if err != nil {
		r.t.Fatalf("the replica does not apply what it has: %v", err)
	}
}

// slaveStatus returns what SHOW SLAVE STATUS says.
func (d *Database) slaveStatus(ctx context.Context) (map[string]string, error) {
	state := map[string]string{}
	return state, withDatabase(d.config(""), func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SHOW SLAVE STATUS")
		if err != nil {
			return err
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		if !rows.Next() {
			return errors.Join(errors.New("the server is no replica"), rows.Err())
		}
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		err = rows.Scan(into...)
		for i, name := range names {
			state[name] = values[i].String
		}
		return err
	})
}

// Demote makes the primary read-only. Its connections stay.
func (r *Replication) Demote() {
	r.t.Helper()
	r.Primary.execute("SET GLOBAL read_only = 1")
}

// Promote ends the replication and makes the replica writable. What it has not applied is lost: Follow comes first where
// nothing may be.
func (r *Replication) Promote() {
	r.t.Helper()
	replica := r.dialect().replica
	r.Replica.execute("STOP "+replica, "RESET "+replica+" ALL", "SET GLOBAL read_only = 0")
}

// Reverse makes the server that was demoted replicate the one that was promoted.
func (r *Replication) Reverse() {
	r.t.Helper()
	if r.Primary.name == mariadb {
		r.Primary.execute("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
	}
	r.replicate(r.Primary, r.Replica)
}

func (r *Replication) replicate(replica, primary *Database) {
	r.t.Helper()
	d := r.dialect()
	replica.execute(fmt.Sprintf(d.change, primary.port), "START "+d.replica)
}

// dialect holds an engine's words for replication.
type dialect struct {
	change   string // names the primary, by its port
	replica  string // the object of START and STOP
	position string // selects how far a server has come
	reached  string // selects 0 once a server has come to a position
}

func (r *Replication) dialect() dialect {
	if r.Replica.name == mariadb {
		return dialect{
			"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'root', " +
				"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
			"SLAVE", "SELECT @@GLOBAL.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT('%s', 1)",
		}
	}
	return dialect{
		"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'root', " +
			"SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
		"REPLICA", "SELECT @@GLOBAL.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', 1)",
	}
}

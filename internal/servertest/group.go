package servertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// MySQLGroup is a MySQL group replication of three servers of the test's own, with one primary. Members other than
// the primary are super_read_only, and so is a server before it has joined. A COMMIT is acknowledged when most members
// have the transaction, so the next primary has every acknowledged commit.
type MySQLGroup struct {
	Members [3]*Database // each may be killed, started and joined again
	t       testing.TB
	id      string // the group's name, a UUID
}

// StartMySQLGroup starts a group and returns when all members are in it. They end with the test.
func StartMySQLGroup(t testing.TB) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, nil)
}

// StartMySQLGroupOnNetwork is StartMySQLGroup with members that can be cut off. It skips the test on machines that allow no networks.
func StartMySQLGroupOnNetwork(t testing.TB) *MySQLGroup {
	t.Helper()
	return startMySQLGroup(t, startNetwork(t, len(MySQLGroup{}.Members)).withSockets())
}

func startMySQLGroup(t testing.TB, n *network) *MySQLGroup {
	t.Helper()
	e, err := installed[mysql]()
	require(t, mysql, err)
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	g := &MySQLGroup{t: t, id: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])}
	for i := range g.Members {
		member := e
		if n != nil {
			member.host = n.hosts[i]
			member.daemon = slices.Concat(e.daemon, []string{"--bind-address=*", "--report-host=" + member.host.addr})
		}
		g.Members[i] = startReplicated(
			t, member, i+1, "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--plugin-load-add=group_replication.so",
			"--super-read-only=ON",
		) // until the group makes it the primary
	}
	g.start(g.Members[0], true)
	for _, member := range g.Members[1:] {
		g.Join(member)
	}
	return g
}

// Join adds a member that was started again to the group, and returns when it is online.
func (g *MySQLGroup) Join(member *Database) {
	g.t.Helper()
	g.start(member, false)
}

func (g *MySQLGroup) start(member *Database, first bool) {
	g.t.Helper()
	var seeds []string
	for _, m := range g.Members {
		seeds = append(seeds, m.peerAddr())
	}
	set := func(variable string, value any) string {
		return fmt.Sprintf("SET GLOBAL group_replication_%s = %#v", variable, value)
	}
	if member.host != nil { // the others do not connect from this machine
		member.execute("SET SESSION sql_log_bin = 0", "SET GLOBAL super_read_only = 0", "CREATE USER IF NOT EXISTS root@'198.18.0.%'",
			"GRANT ALL ON *.* TO root@'198.18.0.%' WITH GRANT OPTION", "SET GLOBAL super_read_only = 1")
	}
	statements := []string{
		// Over the servers' own ports and accounts: no further ports.
		set("communication_stack", "MYSQL"), set("local_address", member.peerAddr()), set("group_seeds", strings.Join(seeds, ",")),
		set("group_name", g.id), set("consistency", "BEFORE_ON_PRIMARY_FAILOVER"), set("recovery_get_public_key", 1),
		set("member_expel_timeout", patientGroup), set("unreachable_majority_timeout", patientGroup),
		"CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'",
	}
	if first {
		statements = append(statements, set("bootstrap_group", 1))
	}
	statements = append(statements, "START GROUP_REPLICATION", set("bootstrap_group", 0))
	member.execute(statements...)
	g.Await(member)
}

// patientGroup is for how many seconds, 5 and this, a member may be silent, and for how many a member without the others goes on to answer:
// on a busy machine healthy ones may be silent for long.
const patientGroup = 60

// FailOver ends the primary by stop, such as (*Database).Freeze, and returns it once another member is the primary.
func (g *MySQLGroup) FailOver(stop func(*Database)) (old *Database) {
	g.t.Helper()
	old = g.Primary()
	g.expelAfter(0)
	stop(old)
	g.Primary()
	g.expelAfter(patientGroup)
	return old
}

// Await returns when all members that run say that the member is in the group: one that was expelled, and notices it, joins again by
// itself.
func (g *MySQLGroup) Await(member *Database) {
	g.t.Helper()
	err := until(func(ctx context.Context) error {
		for _, m := range g.Members {
			if m == nil || !m.runs() || !m.started(ctx) {
				continue
			}
			err := m.sees(
				ctx,
				"ONLINE",
				fmt.Sprintf("SELECT COALESCE(MAX(member_state), '') FROM performance_schema.replication_group_members "+
					"WHERE member_port = %d",
					member.port),
			)
			if err != nil {
				return err
			}
		}
		return member.sees(ctx, "ONLINE",
			"SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid")
	})
	if err != nil {
		g.t.Fatalf("%s is not in the group: %v\n%s", member.Addr(), err, member.log())
	}
	member.execute(expelAfter(patientGroup))
}

// started reports whether the server takes part in a group, or tries to.
func (d *Database) started(ctx context.Context) bool {
	return d.sees(ctx, "1",
		"SELECT COUNT(*) FROM performance_schema.replication_group_members "+
			"WHERE member_id = @@server_uuid AND member_state <> 'OFFLINE'") == nil
}

func (g *MySQLGroup) expelAfter(seconds int) {
	for _, member := range g.Members {
		if member.runs() {
			member.execute(expelAfter(seconds))
		}
	}
}

func expelAfter(seconds int) string {
	return fmt.Sprintf("SET GLOBAL group_replication_member_expel_timeout = %d", seconds)
}

// Primary returns the member that is the primary. It waits until all members that run agree.
func (g *MySQLGroup) Primary() *Database {
	g.t.Helper()
	var primary *Database
	err := until(func(ctx context.Context) error {
		primary = nil
		var port string
		for _, member := range g.Members {
			if !member.runs() {
				continue
			}
			var now string
			err := member.scan(ctx, &now, `SELECT COALESCE(GROUP_CONCAT(member_port), '') FROM performance_schema.replication_group_members
				WHERE member_role = 'PRIMARY' AND member_state = 'ONLINE'`)
			if err != nil {
				return err
			}
			if port != "" && now != port {
				return fmt.Errorf("the primary is at port %q and at port %q", port, now)
			}
			port = now
		}
		for _, member := range g.Members {
			if port == fmt.Sprint(member.port) && member.runs() {
				primary = member
				return member.sees(ctx, "0", "SELECT @@GLOBAL.super_read_only")
			}
		}
		return errors.New("the group has no primary that runs")
	})
	if err != nil {
		g.t.Fatalf("mysql group: %v", err)
	}
	return primary
}

// Move makes the member the primary, as an operator does, and returns when it is. The move waits for open transactions;
// the old primary refuses writes once it has ceased to be the primary.
func (g *MySQLGroup) Move(to *Database) {
	g.t.Helper()
	var id string
	if err := to.scan(context.Background(), &id, "SELECT @@server_uuid"); err != nil {
		g.t.Fatal(err)
	}
	to.execute("DO group_replication_set_as_primary('" + id + "')")
	if g.Primary() != to {
		g.t.Fatalf("%s did not become the primary", to.Addr())
	}
}

// startReplicated starts a server that can be replicated.
func startReplicated(t testing.TB, e engine, id int, args ...string) *Database {
	t.Helper()
	e.daemon = slices.Concat(e.daemon, []string{fmt.Sprintf("--server-id=%d", id), "--log-bin=binlog", "--sync-binlog=1"}, args)
	return &Database{startServer(t, databaseProgram(e))}
}

// execute runs the statements on one connection.
func (d *Database) execute(statements ...string) {
	d.t.Helper()
	err := withDatabase(d.config(""), func(db *sql.DB) error {
		conn, err := db.Conn(context.Background())
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, s := range statements {
			if _, err := conn.ExecContext(context.Background(), s); err != nil {
				return fmt.Errorf("%s: %w\n%s", s, err, d.log())
			}
		}
		return nil
	})
	if err != nil {
		d.t.Fatalf("%s at %s: %v", d.name, d.Addr(), err)
	}
}

// scan reads the first column of the query's first row.
func (d *Database) scan(ctx context.Context, into any, query string) error {
	return withDatabase(d.config(""), func(db *sql.DB) error { return db.QueryRowContext(ctx, query).Scan(into) })
}

// sees returns an error unless the query's result is want.
func (d *Database) sees(ctx context.Context, want, query string) error {
	var got string
	if err := d.scan(ctx, &got, query); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s at %s: %s is %q, not %q", d.name, d.Addr(), query, got, want)
	}
	return nil
}

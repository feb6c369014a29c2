package servertest

import (
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"testing"
)

// MariaDBPair is a MariaDB server and its replica, which is read-only. What the primary commits, the replica has a moment
// later; nobody waits for that.
type MariaDBPair struct {
	Primary, Replica *Database
	t                testing.TB
}

// replicating is an account of the servers themselves.
const replicating = "replicating"

// StartMariaDBPair starts both and returns when the one replicates the other. They end with the test.
func StartMariaDBPair(t testing.TB) *MariaDBPair {
	t.Helper()
	e, err := installed[mariadb]()
	require(t, mariadb, err)
	p := &MariaDBPair{t: t}
	for id, d := range []**Database{&p.Primary, &p.Replica} {
		logged := e
		logged.daemon = slices.Concat(e.daemon, []string{
			"--server-id=" + strconv.Itoa(id+1), "--log-bin=binlog", "--log-slave-updates=1", "--sync-binlog=1",
		})
		if *d, err = newDatabase(logged); err != nil {
			t.Fatal(err)
		}
		(*d).own(t)
	}
	p.Primary.exec(t, "CREATE USER "+replicating+"@'127.0.0.1' IDENTIFIED BY '"+replicating+"'",
		"GRANT REPLICATION SLAVE ON *.* TO "+replicating+"@'127.0.0.1'")
	p.Replica.exec(t, "SET GLOBAL read_only = 1")
	p.follow(p.Replica, p.Primary)
	return p
}

// URL creates an empty database and returns the primary's URL for an account that may do anything with it, and nothing to a
// server that is read-only.
func (p *MariaDBPair) URL(t testing.TB) string {
	t.Helper()
	const password = "a-password"
	u, err := url.Parse(p.Primary.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	name := u.Path[1:]
	p.Primary.exec(t, "CREATE USER "+name+"@'%' IDENTIFIED BY '"+password+"'", "GRANT ALL ON "+name+".* TO "+name+"@'%'")
	u.User = url.UserPassword(name, password)
	return u.String()
}

// Demote makes the primary read-only. Its connections stay.
func (p *MariaDBPair) Demote() {
	p.t.Helper()
	p.Primary.exec(p.t, "SET GLOBAL read_only = 1")
}

// Promote waits until the replica has what the primary, which was demoted, has committed, and makes it a server of its own
// that takes writes.
func (p *MariaDBPair) Promote() {
	p.t.Helper()
	var has string
	p.Primary.ask(p.t, "SELECT @@GLOBAL.gtid_binlog_pos", &has)
	var late int
	p.Replica.ask(p.t, fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', %d)", has, int(readyWithin.Seconds())), &late)
	if late != 0 {
		p.t.Fatalf("%s: the replica lacks some of %s", mariadb, has)
	}
	p.Replica.exec(p.t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
}

// Reverse has the server that was demoted replicate the one that was promoted.
func (p *MariaDBPair) Reverse() {
	p.t.Helper()
	p.Primary.exec(p.t, "SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
	p.follow(p.Primary, p.Replica)
}

// follow has a server replicate another, from the beginning or from where it is.
func (p *MariaDBPair) follow(replica, primary *Database) {
	p.t.Helper()
	replica.exec(p.t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='%s', MASTER_PASSWORD='%[2]s', "+
		"MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1", primary.port, replicating), "START SLAVE")
}

// exec runs statements as root.
func (d *Database) exec(t testing.TB, statements ...string) {
	t.Helper()
	err := withDatabase(d.config(""), func(db *sql.DB) error {
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
}

// ask reads the one value that query returns.
func (d *Database) ask(t testing.TB, query string, value any) {
	t.Helper()
	err := withDatabase(d.config(""), func(db *sql.DB) error { return db.QueryRow(query).Scan(value) })
	if err != nil {
		t.Fatalf("%s: %s: %v", d.name, query, err)
	}
}

package repository

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"firsttap/servertest"
	"firsttap/testkit"
)

// warned is a Store on a server, and its warnings.
type warned struct {
	*Store
	raw    *sql.DB
	logged bytes.Buffer
}

func openWarned(t *testing.T, rawURL string) *warned {
	t.Helper()
	w := &warned{raw: direct(t, rawURL)}
	var err error
	if w.Store, err = Open(t.Context(), rawURL, Options{Log: slog.New(slog.NewTextHandler(&w.logged, nil))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// mustWarn fails the test unless there is one warning for each want, and it says that.
func (w *warned) mustWarn(t *testing.T, wants ...string) {
	t.Helper()
	w.logged.Reset()
	w.CheckDurability(t.Context())
	got := w.logged.String()
	if lines := strings.Count(got, "\n"); lines != len(wants) {
		t.Errorf("%d warnings, want %d:\n%s", lines, len(wants), got)
	}
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not among the warnings:\n%s", want, got)
		}
	}
}

func (w *warned) exec(t *testing.T, queries ...string) {
	t.Helper()
	execute(t, w.raw, queries...)
}

func execute(t *testing.T, on *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := on.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// A primary with a replica that follows as it pleases may lose claims; one that waits for it may not.
func TestDurabilityOfReplication(t *testing.T) {
	t.Parallel()
	settings := map[string]struct {
		role, alone string
		semiPrimary []string
		semiReplica []string
		leave       string
	}{
		"mariadb": {
			role: "master", alone: "wait_no_slave",
			semiReplica: []string{"SET GLOBAL rpl_semi_sync_slave_enabled = 1", "STOP SLAVE", "START SLAVE"}, leave: "STOP SLAVE",
		},
		"mysql": {
			role: "source", alone: "wait_no_replica",
			semiPrimary: []string{"INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'"},
			semiReplica: []string{
				"INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'", "SET GLOBAL rpl_semi_sync_replica_enabled = 1",
				"STOP REPLICA", "START REPLICA",
			},
			leave: "STOP REPLICA",
		},
	}
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		c := settings[kind]
		r := servertest.StartReplication(t, kind)
		rawURL := r.Primary.URL(t)
		w, replica := openWarned(t, rawURL), direct(t, strings.Replace(rawURL, r.Primary.Addr(), r.Replica.Addr(), 1))
		prefix := "rpl_semi_sync_" + c.role
		set := func(setting, value string) {
			t.Helper()
			w.exec(t, fmt.Sprintf("SET GLOBAL %s_%s = %s", prefix, setting, value))
		}
		w.mustWarn(t, "_enabled is not ON, should be ON: 1 replicas are connected")
		w.exec(t, "SET GLOBAL sync_binlog = 0")
		w.mustWarn(t, "sync_binlog=0, should be 1", "_enabled is not ON")
		w.exec(t, "SET GLOBAL sync_binlog = 1")

		w.exec(t, c.semiPrimary...)
		set("timeout", "3600000")
		set("wait_point", "AFTER_SYNC")
		set("enabled", "1")
		execute(t, replica, c.semiReplica...)
		// It waits for a replica from the first commit that has one to wait for.
		testkit.Retry(t, func() error {
			status, err := showValues(t.Context(), w.raw, "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%_clients'")
			if err == nil && status["Rpl_semi_sync_"+c.role+"_clients"] != "1" {
				err = fmt.Errorf("no replica acknowledges: %v", status)
			}
			return err
		})
		r.Follow()
		w.mustWarn(t)

		set("wait_point", "AFTER_COMMIT")
		set("timeout", "10000")
		set(c.alone, "0")
		w.mustWarn(t, "_wait_point=AFTER_COMMIT, should be AFTER_SYNC", "_timeout=10000, should be at least 3600000", c.alone+"=OFF, should be ON")
		set("wait_point", "AFTER_SYNC")
		set(c.alone, "1")

		// No replica acknowledges: the server waits for so long, and then goes on without.
		execute(t, replica, c.leave)
		set("timeout", "1")
		w.exec(t, "CREATE TABLE t (id INT)")
		w.mustWarn(t, "_timeout=1,", "_status=OFF: the server acknowledges claims that no replica has")
	})
}

// The members of a group have a claim before it is acknowledged.
func TestDurabilityOfAGroup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := servertest.StartMySQLGroup(t)
	openWarned(t, g.Primary().URL(t)).mustWarn(t)
}

// An account without the privilege gets a warning that names the missing grant.
func TestDurabilityUnseen(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	r := servertest.StartReplication(t, servertest.MySQL)
	rawURL := r.Primary.URL(t)
	root := openWarned(t, rawURL)
	root.exec(t, "CREATE USER app IDENTIFIED BY ''", "GRANT ALL ON `"+rawURL[strings.LastIndex(rawURL, "/")+1:]+"`.* TO app")
	app := openWarned(t, strings.Replace(rawURL, "root@", "app@", 1))
	app.mustWarn(t, "could not check whether the database keeps committed claims")
	if !strings.Contains(app.logged.String(), "GRANT REPLICATION SLAVE ON *.*") {
		t.Errorf("logged %s", &app.logged)
	}
	root.exec(t, "GRANT REPLICATION SLAVE ON *.* TO app")
	app = openWarned(t, strings.Replace(rawURL, "root@", "app@", 1))
	app.mustWarn(t, "_enabled is not ON, should be ON: 1 replicas are connected")
}

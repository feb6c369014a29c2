package database_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/doctor/dbcheck"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

func TestSessionSettings(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db = db.Usual(t)
		isolation := "@@transaction_isolation"
		if strings.HasSuffix(t.Name(), "mariadb") {
			isolation = "@@tx_isolation"
		}
		for name, pool := range map[string]database.Tx{"decide": db.Decide.With(t.Context()), "serve": db.Serve.With(t.Context()), "work": db.Work.With(t.Context())} {
			pool, err := pool.DB()
			Must(t, err)
			var level, mode string
			var wait, idle int
			testkit.Retry(t, func() error { // the Store is as impatient as an instance
				return pool.QueryRow("SELECT "+isolation+", @@innodb_lock_wait_timeout, @@SESSION.wait_timeout, @@sql_mode").Scan(&level, &wait, &idle, &mode)
			})
			if level != "READ-COMMITTED" || wait != 1 || idle != 60 || !strings.Contains(mode, "STRICT_ALL_TABLES") {
				t.Errorf("%s: isolation %s, lock wait %d s, silence %d s, mode %s", name, level, wait, idle, mode)
			}
			if n := pool.Stats().MaxOpenConnections; n != map[string]int{"decide": database.DecideConns, "serve": database.ServeConns, "work": database.WorkConns}[name] {
				t.Errorf("%s: %d connections", name, n)
			}
		}
	})
}

func TestSQLiteSettings(t *testing.T) {
	db := Migrated(t, servertest.EmptyURL(t, servertest.SQLite)).Usual(t)
	for name, pool := range map[string]database.Tx{"decide": db.Decide.With(t.Context()), "serve": db.Serve.With(t.Context())} {
		pool, err := pool.DB()
		Must(t, err)
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "2000"} {
			var got string
			if err := pool.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %s, %v; want %s", name, pragma, got, err, want)
			}
		}
	}
	if _, err := os.Stat(strings.TrimPrefix(db.URL, "sqlite://")); err != nil {
		t.Errorf("the file is not where the URL says: %v", err)
	}
}

// mustNotOpen fails the test unless Open refuses the URL at once, and without the password in the error.
func mustNotOpen(t *testing.T, rawURL string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s, err := repository.Open(ctx, rawURL, repository.Options{Log: Quiet})
	if err == nil {
		s.Close()
		t.Errorf("%q: opened", rawURL)
	} else if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%q: %v", rawURL, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, u := range []string{
		"", "firsttap.db", "sqlite://", "postgres://localhost/x", "mysql://", "mysql://localhost", "mysql://localhost/",
		"mysql:///name", "mysql://root:s3cret@local host/x", "mysql://root:s3cret@127.0.0.1:port/x", "mysql://root:s3cret@127.0.0.1:1/x?tls=nonsense",
		"mysql://root:s3cret@127.0.0.1:1/x?sslmode=require", "mysql://root:s3cret@127.0.0.1:1/x?tls=%zz",
	} {
		mustNotOpen(t, u)
	}
}

func TestOpenWithAWrongPassword(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		mustNotOpen(t, strings.Replace(servertest.EmptyURL(t, kind), "root@", "root:s3cret@", 1))
	})
}

func TestOpenWaitsForTheServer(t *testing.T) {
	t.Parallel()
	d := servertest.StartMariaDB(t)
	rawURL := d.URL(t)
	d.Kill()

	ctx, cancel := context.WithCancel(t.Context())
	tried := make(chan struct{}, 100)
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		select {
		case tried <- struct{}{}:
		default: // the server takes long to start
		}
		return len(p), nil
	}), nil))
	ended := Begin(func() error {
		return ErrorOf(repository.Open(ctx, rawURL, repository.Options{Log: log}))
	})
	<-tried
	cancel()
	if err := <-ended; err == nil {
		t.Error("opened a server that is not there")
	}

	ended = Begin(func() error {
		s, err := repository.Open(t.Context(), rawURL, repository.Options{Log: log, Patience: testkit.Patience})
		if err != nil {
			return err
		}
		return errors.Join(Up(t.Context(), s), s.Ping(t.Context()), s.Close())
	})
	<-tried
	d.Start()
	Must(t, testkit.Await(t, "Open returns", ended))
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestPing(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		Must(t, db.Ping(t.Context()))
		Must(t, db.Close())
		MustBeError(t, "a ping after Close", db.Ping(t.Context()), dispatch.ErrUnavailable)
	})
}

// Ten instances start at once on an empty database.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		u := servertest.EmptyURL(t, kind)
		stores := make([]*repository.Store, 10)
		for i := range stores {
			stores[i] = OpenPatient(t, u)
		}
		var steps, want atomic.Int32
		MustAll(t, len(stores), func(i int) error {
			return stores[i].Migrate(func(m *migrations.Migrator) error {
				n, err := m.Up(t.Context())
				steps.Add(int32(n))
				want.Store(int32(m.Count()))
				return err
			})
		})
		if steps.Load() != want.Load() { // each once
			t.Errorf("%d steps were taken, want %d", steps.Load(), want.Load())
		}
		db := Onto(stores[0], u, Direct(t, u))
		db.MustAccept(t, db.Add(t, nil).ID, db.Fleet(t, 1)[0].ID)
	})
}

// A process that starts while another one migrates waits for it, longer than any other call may take.
func TestMigrateWaitsForTheOther(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		if kind != servertest.SQLite {
			testkit.OnlyInAll(t) // it takes longer than database.IOTimeout
		}
		u, lock, free, wait := servertest.EmptyURL(t, kind), "DO GET_LOCK("+migrateLock+", 0)", "DO RELEASE_ALL_LOCKS()", database.IOTimeout+time.Second
		s := OpenPatient(t, u)
		if kind == servertest.SQLite {
			lock, free, wait = "BEGIN IMMEDIATE", "ROLLBACK", 3*time.Second
		}
		other, err := Direct(t, u).Conn(t.Context())
		Must(t, err)
		defer other.Close()
		Must(t, ErrorOf(other.ExecContext(t.Context(), lock)))
		ended := Begin(func() error { return Up(t.Context(), s) })
		select {
		case err := <-ended:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(wait): //nolint:forbidigo // the migration must not end meanwhile
		}
		Must(t, ErrorOf(other.ExecContext(t.Context(), free)))
		Must(t, <-ended)
	})
}

// migrateLock is the name that the migrations take, in SQL.
const migrateLock = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"

// warned is a Store on a server, and its warnings.
type warned struct {
	*repository.Store
	raw    *sql.DB
	logged bytes.Buffer
}

func openWarned(t *testing.T, rawURL string) *warned {
	t.Helper()
	w := &warned{raw: Direct(t, rawURL)}
	var err error
	log := slog.New(slog.NewTextHandler(&w.logged, nil))
	if w.Store, err = repository.Open(t.Context(), rawURL, repository.Options{Log: log, Patience: testkit.Patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// mustWarn fails the test unless there is one warning for each want, and it says that.
func (w *warned) mustWarn(t *testing.T, wants ...string) {
	t.Helper()
	w.logged.Reset()
	dbcheck.CheckDurability(t.Context(), w.DB)
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

func TestDurability(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		if kind == servertest.TiDB {
			t.Skip("TiDB has no InnoDB")
		}
		w := openWarned(t, servertest.StartDatabase(t, kind).URL(t))
		w.exec(t, "SET GLOBAL sync_binlog = 0") // there is no binary log
		w.mustWarn(t)
		for value, wants := range [][]string{{"MAY LOSE COMMITTED CLAIMS"}, nil, {"innodb_flush_log_at_trx_commit=2, should be 1"}} {
			w.exec(t, fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", value))
			w.mustWarn(t, wants...)
		}
	})
}

func TestDurabilityOfSQLite(t *testing.T) {
	openWarned(t, servertest.EmptyURL(t, servertest.SQLite)).mustWarn(t)
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
		if kind == servertest.TiDB {
			t.Skip("TiDB has no replication of this kind")
		}
		r := servertest.StartReplication(t, kind)
		rawURL := r.Primary.URL(t)
		r.Follow() // the replica has the database
		w, replica := openWarned(t, rawURL), Direct(t, strings.Replace(rawURL, r.Primary.Addr(), r.Replica.Addr(), 1))
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
			status, err := database.ShowValues(t.Context(), w.raw, "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%_clients'")
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

// The members of a group have a claim before it is acknowledged. Settings by which a member answers from old data are warned of.
func TestDurabilityOfAGroup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := servertest.StartMySQLGroup(t)
	w := openWarned(t, g.Primary().URL(t))
	w.mustWarn(t)
	w.exec(t, "SET GLOBAL group_replication_consistency = EVENTUAL", "SET GLOBAL group_replication_unreachable_majority_timeout = 0")
	w.mustWarn(t, "_consistency=EVENTUAL, should be BEFORE_ON_PRIMARY_FAILOVER", "_unreachable_majority_timeout=0, should be 10")
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

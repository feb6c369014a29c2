package repository

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestSessionSettings(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db = db.usual(t)
		isolation := "@@transaction_isolation"
		if strings.HasSuffix(t.Name(), "mariadb") {
			isolation = "@@tx_isolation"
		}
		for name, pool := range map[string]*gorm.DB{"claims": db.claims, "general": db.general, "writes": db.writes} {
			pool, err := pool.DB()
			must(t, err)
			var level, mode string
			var wait, idle int
			err = pool.QueryRow("SELECT "+isolation+", @@innodb_lock_wait_timeout, @@SESSION.wait_timeout, @@sql_mode").Scan(&level, &wait, &idle, &mode)
			if err != nil || level != "READ-COMMITTED" || wait != 1 || idle != 60 || !strings.Contains(mode, "STRICT_ALL_TABLES") {
				t.Errorf("%s: isolation %s, lock wait %d s, silence %d s, mode %s, %v", name, level, wait, idle, mode, err)
			}
			if n := pool.Stats().MaxOpenConnections; n != 8 {
				t.Errorf("%s: %d connections", name, n)
			}
		}
	})
}

func TestSQLiteSettings(t *testing.T) {
	db := migrated(t, servertest.EmptyURL(t, servertest.SQLite)).usual(t)
	for name, pool := range map[string]*gorm.DB{"claims": db.claims, "general": db.general} {
		pool, err := pool.DB()
		must(t, err)
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "2000"} {
			var got string
			if err := pool.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %s, %v; want %s", name, pragma, got, err, want)
			}
		}
	}
	if _, err := os.Stat(strings.TrimPrefix(db.url, "sqlite://")); err != nil {
		t.Errorf("the file is not where the URL says: %v", err)
	}
}

// mustNotOpen fails the test unless Open refuses the URL at once, and without the password in the error.
func mustNotOpen(t *testing.T, rawURL string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s, err := Open(ctx, rawURL, Options{Log: quiet})
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
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) { tried <- struct{}{}; return len(p), nil }), nil))
	ended := begin(func() error { return errorOf(Open(ctx, rawURL, Options{Log: log})) })
	<-tried
	cancel()
	if err := <-ended; err == nil {
		t.Error("opened a server that is not there")
	}

	ended = begin(func() error {
		s, err := Open(t.Context(), rawURL, Options{Log: log})
		if err != nil {
			return err
		}
		return errors.Join(s.Ping(t.Context()), s.Close())
	})
	<-tried
	d.Start()
	must(t, testkit.Await(t, "Open returns", ended))
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestPing(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		must(t, db.Ping(t.Context()))
		must(t, db.Close())
		mustBeError(t, "a ping after Close", db.Ping(t.Context()), dispatch.ErrUnavailable)
	})
}

// Two processes on one SQLite file: each has a writer of its own.
func TestTwoStoresOnOneFile(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	other := open(t, db.url)
	d, drivers := db.add(t, nil), db.drivers(t, 20)
	mustWinOnce(t, len(drivers), dispatch.ErrAlreadyTaken, func(i int) error {
		return errorOf([]*Store{db.Store, other}[i%2].Claim(t.Context(), d.ID, drivers[i].ID, rule(0)))
	})
	db.mustHold(t, 1, dispatch.EventAccepted, 1)
}

// A transaction that reads before it writes must hold the file from its beginning.
func TestTwoStoresUpdateOneFile(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	other := open(t, db.url)
	d := db.add(t, nil)
	const n = 40
	mustAll(t, n, func(i int) error { return errorOf([]*Store{db.Store, other}[i%2].Update(t.Context(), d.ID, touch)) })
	if got := db.mustRead(t, d.ID); got.Version != 1+n {
		t.Errorf("version %d after %d updates", got.Version, n)
	}
}

// Ten instances start at once on an empty database.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		u := servertest.EmptyURL(t, kind)
		stores := make([]*Store, 10)
		for i := range stores {
			stores[i] = open(t, u)
		}
		var steps atomic.Int32
		mustAll(t, len(stores), func(i int) error {
			return stores[i].Migrate(func(m *migrations.Migrator) error {
				n, err := m.Up(t.Context())
				steps.Add(int32(n))
				return err
			})
		})
		const want = 9 // each once
		if steps.Load() != want {
			t.Errorf("%d steps were taken, want %d", steps.Load(), want)
		}
		db := &database{Store: stores[0], url: u, raw: direct(t, u)}
		db.mustAccept(t, db.add(t, nil).ID, db.drivers(t, 1)[0].ID)
	})
}

// A process that starts while another one migrates waits for it, longer than any other call may take.
func TestMigrateWaitsForTheOther(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		if kind != servertest.SQLite {
			testkit.OnlyInAll(t) // it takes longer than ioTimeout
		}
		u, lock, free, wait := servertest.EmptyURL(t, kind), "DO GET_LOCK("+migrateLock+", 0)", "DO RELEASE_ALL_LOCKS()", ioTimeout+time.Second
		s := open(t, u)
		if kind == servertest.SQLite {
			u += ".migrate"
			lock, free, wait = "BEGIN EXCLUSIVE", "ROLLBACK", 3*time.Second
		}
		other, err := direct(t, u).Conn(t.Context())
		must(t, err)
		defer other.Close()
		must(t, errorOf(other.ExecContext(t.Context(), lock)))
		ended := begin(func() error { return s.up(t.Context()) })
		select {
		case err := <-ended:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(wait):
		}
		must(t, errorOf(other.ExecContext(t.Context(), free)))
		must(t, <-ended)
	})
}

// migrateLock is the name that the migrations take, in SQL.
const migrateLock = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"

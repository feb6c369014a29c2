package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/migrations"
)

// stall stops a process before the first change that fits at. It is told whether the process holds locks of rows then.
type stall struct {
	at      func(statement string, locked bool) bool
	reached chan string // the statement
	resume  chan struct{}
	// tooLong keeps the process still until the server has ended its session.
	tooLong bool
}

func newStall(at func(statement string, locked bool) bool) *stall {
	return &stall{at: at, reached: make(chan string, 1), resume: make(chan struct{})}
}

func (s *stall) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &stallConn{Conn: conn, s: s, locks: -1}, err
}

type stallConn struct {
	net.Conn
	s     *stall
	locks int // how many changes the transaction has made; -1 without one
}

// Write is called by one goroutine at a time: a process sends its changes one after another.
func (c *stallConn) Write(b []byte) (int, error) {
	statement, ok := change(b)
	if !ok {
		return c.Conn.Write(b)
	}
	if len(c.s.reached) == 0 && c.s.at(statement, c.locks > 0) {
		c.s.reached <- statement
		<-c.s.resume
		if c.s.tooLong {
			_, _ = io.Copy(io.Discard, c.Conn) // to its end
		}
	}
	switch {
	case statement == "START TRANSACTION":
		c.locks = 0
	case statement == "COMMIT" || statement == "ROLLBACK":
		c.locks = -1
	case c.locks >= 0:
		c.locks++
	}
	return c.Conn.Write(b)
}

// migrateStalled runs op in a process that stalls, and calls meanwhile when it does. It returns what op returned, and false if op ended before.
func migrateStalled(t *testing.T, url string, s *stall, op func(context.Context, *migrations.Migrator) error, meanwhile func(at string)) (err error, stalled bool) {
	t.Helper()
	config := configOf(t, url)
	config.DialFunc = s.dial
	m := mysqlMigrator(t, openConfig(t, config), silent)
	m.BeatAt(nil) // only the server ends its sessions
	if s.tooLong {
		m.KeepSilentSessions(10 * time.Second)
	} else {
		m.KeepSilentSessions(time.Hour)
	}
	ended := make(chan error, 1)
	go func() { ended <- op(t.Context(), m) }()
	select {
	case err := <-ended:
		close(s.resume)
		return err, false
	case at := <-s.reached:
		func() {
			defer close(s.resume)
			meanwhile(at)
		}()
		return <-ended, true
	}
}

// loseLock ends the session that holds the migration lock, if there is one.
func loseLock(t *testing.T, db *sql.DB) {
	t.Helper()
	var session sql.NullInt64
	must(t, db.QueryRow("SELECT IS_USED_LOCK(CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32)))").Scan(&session))
	if session.Valid {
		execute(t, db, fmt.Sprintf("KILL %d", session.Int64))
	}
}

// A process stands still before a change, and another completes the migration meanwhile: the first one changes nothing in the journal, and
// leaves no progress row behind.
func TestGoesOnAfterAnotherHasMigrated(t *testing.T) {
	notOnTiDB(t, "the end of a session that holds its lock was not tried")
	const withRows = 5 // a version that changes a definition and rows
	to := func(version int64) func(context.Context, *migrations.Migrator) error {
		return func(ctx context.Context, m *migrations.Migrator) error { return m.UpTo(ctx, version) }
	}
	for what, op := range map[string]func(context.Context, *migrations.Migrator) error{"up": to(withRows), "down": down} {
		t.Run(what, func(t *testing.T) {
			onServers(t, func(t *testing.T, newURL func() string) {
				url := newURL()
				db := openServer(t, url)
				m := mysqlMigrator(t, db, silent)
				must(t, to(withRows)(t.Context(), m))
				back := to(withRows)
				if what == "up" {
					must(t, down(t.Context(), m))
					back = down
				}
				before := content(t, db)
				for n := 0; ; n++ {
					skip := n
					s := newStall(func(_ string, locked bool) bool {
						if !locked {
							skip--
						}
						return !locked && skip < 0
					})
					var after, place string
					err, stalled := migrateStalled(t, url, s, op, func(at string) {
						loseLock(t, db)
						must(t, op(t.Context(), m))
						place, after = at, content(t, db)
					})
					if !stalled {
						must(t, err)
						t.Logf("stood still before %d changes", n)
						return
					}
					if !errors.Is(err, migrations.ErrOvertaken) {
						t.Errorf("the process that stood still before %q ended with %v", place, err)
					}
					if diff := cmp.Diff(after, content(t, db)); diff != "" {
						t.Fatalf("the process that stood still before %q left %s", place, diff)
					}
					must(t, back(t.Context(), m))
					if diff := cmp.Diff(before, content(t, db)); diff != "" {
						t.Fatalf("after a stop before %q and the way back: %s", place, diff)
					}
				}
			})
		})
	}
}

// A process stands still for so long that it loses its lock: the server ends the session of its statements, too, so that it can't drop an index
// that another process has made under the same name.
func TestWakesTooLateToDrop(t *testing.T) {
	notOnTiDB(t, "the end of a silent session was not tried")
	onServers(t, func(t *testing.T, newURL func() string) {
		url := newURL()
		db := openServer(t, url)
		m := mysqlMigrator(t, db, silent)
		s := newStall(func(statement string, _ bool) bool {
			return strings.HasPrefix(statement, "DROP INDEX ix_attempts_dispatch")
		})
		s.tooLong = true
		var after string
		err, stalled := migrateStalled(t, url, s, up, func(string) {
			loseLock(t, db)
			must(t, up(t.Context(), m))
			after = content(t, db)
		})
		if !stalled || !errors.Is(err, migrations.ErrLockLost) {
			t.Errorf("stalled: %v, ended with %v", stalled, err)
		}
		if diff := cmp.Diff(after, content(t, db)); diff != "" {
			t.Errorf("it changed %s", diff)
		}
	})
}

// A machine vanishes with its transaction open: the next process goes on once the server has ended the session.
func TestVanishesInATransaction(t *testing.T) {
	notOnTiDB(t, "the end of a silent session was not tried")
	for what, change := range map[string]string{"of a statement": "UPDATE migration_progress", "of a version": "INSERT INTO goose_db_version"} {
		t.Run(what, func(t *testing.T) {
			onServers(t, func(t *testing.T, newURL func() string) {
				url := newURL()
				db := openServer(t, url)
				m := mysqlMigrator(t, db, silent)
				must(t, m.UpTo(t.Context(), 1)) // goose's table is there
				s := newStall(func(statement string, locked bool) bool { return locked && strings.HasPrefix(statement, change) })
				s.tooLong = true
				err, stalled := migrateStalled(t, url, s, up, func(string) {
					loseLock(t, db)
					must(t, up(t.Context(), m))
				})
				if !stalled || err == nil {
					t.Errorf("stalled: %v, ended with %v", stalled, err)
				}
				mustMiss(t, m, 0)
			})
		})
	}
}

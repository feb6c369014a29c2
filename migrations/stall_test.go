package migrations_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"firsttap/migrations"
)

// stall stops a process before its n-th change, until resume is closed.
type stall struct {
	n       int
	reached chan string // the statement
	resume  chan struct{}
}

func (s *stall) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &stallConn{conn, s}, err
}

type stallConn struct {
	net.Conn
	s *stall
}

// Write is called by one goroutine at a time: a process sends its changes one after another.
func (c *stallConn) Write(b []byte) (int, error) {
	if statement, ok := change(b); ok {
		if c.s.n--; c.s.n == 0 {
			c.s.reached <- statement
			<-c.s.resume
		}
	}
	return c.Conn.Write(b)
}

// A process stands still before a change for so long that its lock ends, and another process completes the migration: the first one changes
// nothing more, and leaves no progress row behind.
func TestGoesOnAfterAnotherHasMigrated(t *testing.T) {
	notOnTiDB(t, "the end of a session that holds its lock was not tried")
	for what, op := range map[string]func(context.Context, *migrations.Migrator) error{"up": up, "down": down} {
		t.Run(what, func(t *testing.T) {
			onServers(t, func(t *testing.T, newURL func() string) {
				url := newURL()
				db := openServer(t, url)
				m := mysqlMigrator(t, db, silent)
				must(t, up(t.Context(), m))
				if what == "up" {
					must(t, down(t.Context(), m))
				}
				before := content(t, db)
				for n := 1; ; n++ {
					s := &stall{n: n, reached: make(chan string, 1), resume: make(chan struct{})}
					config := configOf(t, url)
					config.DialFunc = s.dial
					first := mysqlMigrator(t, openConfig(t, config), silent)
					ended := make(chan error, 1)
					go func() { ended <- op(t.Context(), first) }()
					at := <-s.reached
					if strings.HasPrefix(at, "INSERT INTO goose_db_version") || strings.HasPrefix(at, "DELETE FROM goose_db_version") { // in a transaction, which keeps the row until the session ends
						close(s.resume)
						must(t, <-ended)
						t.Logf("stood still before %d changes", n-1)
						return
					}
					var session int
					must(t, db.QueryRow("SELECT IS_USED_LOCK(CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32)))").Scan(&session))
					execute(t, db, fmt.Sprintf("KILL %d", session))
					must(t, op(t.Context(), m))
					want := content(t, db)
					close(s.resume)
					if err := <-ended; err == nil || !strings.Contains(err.Error(), "lock was lost") {
						t.Errorf("the process that stood still before %q ended with %v", at, err)
					}
					if diff := cmp.Diff(want, content(t, db)); diff != "" {
						t.Fatalf("the process that stood still before %q left %s", at, diff)
					}
					if what == "up" {
						must(t, down(t.Context(), m))
					} else {
						must(t, up(t.Context(), m))
					}
					if diff := cmp.Diff(before, content(t, db)); diff != "" {
						t.Fatalf("after a stop before %q and the way back: %s", at, diff)
					}
				}
			})
		})
	}
}

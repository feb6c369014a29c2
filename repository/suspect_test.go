package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// slowServer is a driver.Connector to a server that answers as late as it is told. It is no server's stand-in: what is tested is when the
// pool's connections are given up, and not what a server says.
type slowServer struct {
	driver.Connector
	handshake, answer time.Duration
	fails, panics     bool
	says              error // to a statement
	dialed            []*slowConn
}

func (s *slowServer) Connect(ctx context.Context) (driver.Conn, error) {
	if err := wait(ctx, s.handshake); err != nil {
		return nil, err
	}
	if s.fails {
		return nil, io.ErrUnexpectedEOF
	}
	c := &slowConn{server: s}
	s.dialed = append(s.dialed, c)
	return c, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

type slowConn struct {
	conn
	server *slowServer
	closed bool
}

func (c *slowConn) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := wait(ctx, c.server.answer); err != nil {
		return nil, err
	}
	if c.server.panics {
		_ = make([]byte, 0)[c.server.handshake:1] // as a driver that reads beyond a packet's end
	}
	return noRows{}, nil
}

func (c *slowConn) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	if err := wait(ctx, c.server.answer); err != nil {
		return nil, err
	}
	return nil, c.server.says
}

func (c *slowConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return slowTx{c}, nil
}

// slowTx is a transaction of a connection that waits for a second at most.
type slowTx struct{ *slowConn }

func (t slowTx) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := t.ExecContext(ctx, "COMMIT", nil)
	return err
}

func (slowTx) Rollback() error { return nil }

func (c *slowConn) ResetSession(context.Context) error { return nil }
func (c *slowConn) IsValid() bool                      { return true }
func (c *slowConn) Close() error                       { c.closed = true; return nil }

// noRows is the answer that the server is not read-only.
type noRows struct{ driver.Rows }

func (noRows) Next(values []driver.Value) error { values[0] = int64(0); return nil }
func (noRows) Close() error                     { return nil }

// suspectBubble runs the test in a bubble. The server of its connector answers at once, until the test makes it slow.
func suspectBubble(t *testing.T, test func(t *testing.T, p *primaryConnector, s *slowServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{}
		test(t, &primaryConnector{Connector: s, server: &server{}, checkTimeout: time.Second}, s)
	})
}

func dialed(t *testing.T, p *primaryConnector) *primaryConn {
	t.Helper()
	c, err := p.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.(*primaryConn)
}

// A server is suspected when it does not answer a check or a dial in time, at most once a second, and then the connections from before are
// closed.
func TestSuspicion(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, p *primaryConnector, c *primaryConn){
		"a check": func(t *testing.T, _ *primaryConnector, c *primaryConn) {
			mustBeError(t, "the check", c.ResetSession(t.Context()), driver.ErrBadConn)
		},
		"a dial": func(t *testing.T, p *primaryConnector, _ *primaryConn) {
			if _, err := p.Connect(t.Context()); err == nil {
				t.Error("the dial did not fail")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *primaryConnector, s *slowServer) {
				idle, asked := dialed(t, p), dialed(t, p)
				s.handshake, s.answer, s.fails = time.Second, time.Minute, true
				ask(t, p, asked)
				if idle.IsValid() || !errors.Is(idle.ResetSession(t.Context()), driver.ErrBadConn) {
					t.Error("a connection from before is kept")
				}
				for range 3 { // more callers have got no answer
					p.server.suspect()
				}
				if n := p.server.generation.Load(); n != 1 {
					t.Errorf("%d suspicions in a second", n)
				}
				time.Sleep(suspectPause)
				p.server.suspect()
				if n := p.server.generation.Load(); n != 2 {
					t.Errorf("%d suspicions, a second after the first", n)
				}
			})
		})
	}
}

// A statement or a COMMIT without an answer in time is a reason to suspect the server, also where it answers checks and dials. An error
// message is an answer, and a caller who gives up says nothing.
func TestUnansweredStatement(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	execute := func(ctx context.Context, c *primaryConn) error {
		_, err := c.ExecContext(ctx, "DO 1", nil)
		return err
	}
	query := func(ctx context.Context, c *primaryConn) error {
		_, err := c.QueryContext(ctx, "SELECT 1", nil)
		return err
	}
	commit := func(ctx context.Context, c *primaryConn) error {
		tx, err := c.BeginTx(ctx, driver.TxOptions{})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	for name, c := range map[string]struct {
		do     func(context.Context, *primaryConn) error
		answer time.Duration
		says   error
		giveUp error
		want   int64
	}{
		"a statement":                     {execute, time.Minute, nil, context.DeadlineExceeded, 1},
		"a query":                         {query, time.Minute, nil, context.DeadlineExceeded, 1},
		"a commit":                        {commit, time.Minute, nil, context.DeadlineExceeded, 1},
		"a statement that is given up":    {execute, time.Minute, nil, context.Canceled, 0},
		"a lock that is waited for":       {execute, 900 * time.Millisecond, refused, context.DeadlineExceeded, 0},
		"a connection that breaks early":  {execute, 400 * time.Millisecond, io.ErrUnexpectedEOF, context.DeadlineExceeded, 0},
		"a statement that takes its time": {execute, 900 * time.Millisecond, nil, context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *primaryConnector, s *slowServer) {
				p.checkTimeout = time.Second / 2
				conn := dialed(t, p)
				conn.taken = true
				s.answer, s.says = c.answer, c.says
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if errors.Is(c.giveUp, context.Canceled) {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
				}
				defer cancel()
				err := c.do(ctx, conn)
				if n := p.server.generation.Load(); n != c.want {
					t.Errorf("%v: suspected %d times, want %d", err, n, c.want)
				}
			})
		})
	}
}

// A connection that was dialed shortly after a suspicion may lead to the suspected server, so it is used for half a second only.
func TestDoubtedConnection(t *testing.T) {
	suspectBubble(t, func(t *testing.T, p *primaryConnector, _ *slowServer) {
		mustLast := func(c *primaryConn, age time.Duration) {
			t.Helper()
			time.Sleep(age - 1)
			if !c.IsValid() || c.ResetSession(t.Context()) != nil {
				t.Errorf("it is not used for %v", age)
			}
		}
		p.server.suspect()
		for range doubtFor / doubtedAge {
			c := dialed(t, p)
			mustLast(c, doubtedAge)
			time.Sleep(1)
			if c.IsValid() || !errors.Is(c.ResetSession(t.Context()), driver.ErrBadConn) {
				t.Errorf("it is used for more than %v", doubtedAge)
			}
		}
		mustLast(dialed(t, p), minConnAge)
	})
}

// A dial that is refused, or whose caller gives up early, says nothing about the server.
func TestNoSuspicion(t *testing.T) {
	suspectBubble(t, func(t *testing.T, p *primaryConnector, s *slowServer) {
		idle := dialed(t, p)
		s.handshake, s.fails = p.checkTimeout-time.Millisecond, true
		if _, err := p.Connect(t.Context()); err == nil {
			t.Error("the dial did not fail")
		}
		s.handshake = time.Minute
		brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := p.Connect(brief)
		mustBeError(t, "a dial whose caller gives up", err, context.DeadlineExceeded)
		if !idle.IsValid() {
			t.Error("a connection is given up")
		}
	})
}

// A dial that was slow soon after a suspicion may have reached the old server: another one takes its place.
func TestASlowDialIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // since the suspicion, 0 for none
		takes time.Duration
		dials int
	}{
		"quick, soon after a suspicion":         {time.Second, quickDial, 1},
		"slow, soon after a suspicion":          {time.Second, quickDial + time.Millisecond, 2},
		"slow, long after a suspicion":          {suspectFor + time.Second, quickDial + time.Millisecond, 1},
		"slow, and nothing was suspected":       {0, quickDial + time.Millisecond, 1},
		"very slow, with a suspicion before it": {time.Second, 2 * suspectFor, 2},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *primaryConnector, s *slowServer) {
				if c.after > 0 {
					p.server.suspect()
					time.Sleep(c.after)
				}
				s.handshake = c.takes
				got := dialed(t, p)
				if len(s.dialed) != c.dials || got.conn != driver.Conn(s.dialed[c.dials-1]) {
					t.Errorf("%d dials, want the connection of dial %d", len(s.dialed), c.dials)
				}
				for _, first := range s.dialed[:c.dials-1] {
					if !first.closed {
						t.Error("the first connection stays open")
					}
				}
			})
		})
	}
}

// A connection that nobody has taken since it was dialed is checked before its first use.
func TestFirstUseIsChecked(t *testing.T) {
	uses := map[string]func(ctx context.Context, c *primaryConn) error{
		"a query":       func(ctx context.Context, c *primaryConn) error { return errorOf(c.QueryContext(ctx, "SELECT 1", nil)) },
		"a statement":   func(ctx context.Context, c *primaryConn) error { return errorOf(c.ExecContext(ctx, "DO 0", nil)) },
		"a transaction": func(ctx context.Context, c *primaryConn) error { return errorOf(c.BeginTx(ctx, driver.TxOptions{})) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *primaryConnector, s *slowServer) {
				old := dialed(t, p)
				p.server.leave()
				mustBeError(t, name+" by an old connection", use(t.Context(), old), driver.ErrBadConn)
				waited := dialed(t, p)
				time.Sleep(time.Minute)
				s.answer = time.Minute
				mustBeError(t, name+" by one that has waited", use(t.Context(), waited), driver.ErrBadConn)
			})
		})
	}
}

// An answer on which the driver panics is a lost reply. The connection is closed, and no goroutine waits for ever.
func TestUnreadableAnswer(t *testing.T) {
	s := &slowServer{}
	pool := sql.OpenDB(&primaryConnector{Connector: s, server: &server{}, checkTimeout: time.Minute, recheckAfter: neverRecheck})
	defer pool.Close()
	c, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.panics = true
	mustBeError(t, "the answer", errorOf(c.QueryContext(t.Context(), "CALL p()")), mysql.ErrInvalidConn)
	_ = c.Close()
	if n := pool.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections stay open", n)
	}
}

// A server stands still while another takes over, and goes on without knowing it. Nothing is answered from it, though all connections to
// it were kept, and it takes writes.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	u, err := url.Parse(replication.URL(t))
	must(t, err)
	old := migrated(t, u.String())
	won, winner := old.add(t, nil), old.drivers(t, 1)[0]
	old.mustAccept(t, won.ID, winner.ID)
	replication.Follow()

	proxy := servertest.StartProxy(t, u.Host)
	s := openWith(t, proxy.URL(u.String()), Options{Log: quiet, Patience: time.Second})
	replays := func(ctx context.Context) error {
		_, err := s.Claim(ctx, won.ID, winner.ID, rule(1))
		return err
	}
	reads := func(ctx context.Context) error {
		d, err := s.Dispatch(ctx, won.ID)
		if err == nil && d.Round != 1 {
			err = dispatch.ErrOfferStale
		}
		return err
	}
	// So many ask at the same time that a pool has all its connections.
	each := func(ask func(context.Context) error) (errs []error) {
		errs = make([]error, 2*generalConns)
		testkit.Together(len(errs), func(i int) { errs[i] = ask(t.Context()) })
		return errs
	}
	for _, err := range slices.Concat(each(replays), each(reads)) {
		if err != nil && !errors.Is(err, dispatch.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	replication.Primary.Freeze()
	if err := s.Ping(t.Context()); err == nil { // as the probe does each second
		t.Fatal("a frozen server has answered")
	}
	replication.Promote()
	proxy.Redirect(replication.Replica.Addr())
	u.Host = replication.Replica.Addr()
	moved := &database{Store: open(t, u.String())}
	moved.mustUpdate(t, won.ID, withdraw)
	replication.Primary.Thaw()
	for _, err := range slices.Concat(each(replays), each(reads)) {
		if err == nil {
			t.Fatal("an answer from the old server")
		}
	}
	testkit.Retry(t, func() error {
		if err := reads(t.Context()); !errors.Is(err, dispatch.ErrOfferStale) {
			return fmt.Errorf("the new server is not used: %w", err)
		}
		return nil
	})
}

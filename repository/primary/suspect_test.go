//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package primary

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"

	"firsttap/internal/testkit"

	"github.com/go-sql-driver/mysql"
)

// suspectBubble runs the test in a bubble. The server of its connector answers at once, until the test makes it slow.
func suspectBubble(t *testing.T, test func(t *testing.T, p *Connector, s *slowServer)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		s := &slowServer{}
		test(t, &Connector{Connector: s, server: &Server{}, checkTimeout: time.Second, pool: poolLimit{conns: 8}}, s)
	})
}

func dialed(t *testing.T, p *Connector) *conn {
	t.Helper()
	c, err := p.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn)
}

// A server is suspected when it does not answer a check or a dial in time, at most once a second, and then the connections from before are
// closed.
func TestSuspicion(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, p *Connector, c *conn){
		"a check": func(t *testing.T, _ *Connector, c *conn) {
			mustBe(t, "the check", c.ResetSession(t.Context()), driver.ErrBadConn)
		},
		"a dial": func(t *testing.T, p *Connector, _ *conn) {
			if _, err := p.Connect(t.Context()); err == nil {
				t.Error("the dial did not fail")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
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

// A server that does not answer a statement or a COMMIT in time is suspected, also if it answers checks and dials. It is not suspected if
// it sends an error message, or if the caller cancels.
func TestUnansweredStatement(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	execute := func(ctx context.Context, c *conn) error {
		_, err := c.ExecContext(ctx, "DO 1", nil)
		return err
	}
	query := func(ctx context.Context, c *conn) error {
		_, err := c.QueryContext(ctx, "SELECT 1", nil)
		return err
	}
	commit := func(ctx context.Context, c *conn) error {
		tx, err := c.BeginTx(ctx, driver.TxOptions{})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	for name, c := range map[string]struct {
		do     func(context.Context, *conn) error
		answer time.Duration
		says   error
		giveUp error
		checks bool // the connection is checked at each use
		want   int64
	}{
		"a statement":                     {do: execute, answer: time.Minute, checks: true, want: 1},
		"a query of a claim":              {do: query, answer: time.Minute, want: 1},
		"a slow read":                     {do: query, answer: time.Minute, checks: true},
		"a commit":                        {do: commit, answer: time.Minute, checks: true, want: 1},
		"a statement that is given up":    {do: execute, answer: time.Minute, giveUp: context.Canceled},
		"a lock that is waited for":       {do: execute, answer: 900 * time.Millisecond, says: refused},
		"a connection that breaks early":  {do: execute, answer: 400 * time.Millisecond, says: io.ErrUnexpectedEOF},
		"a statement that takes its time": {do: execute, answer: 900 * time.Millisecond},
		"a server that became read-only":  {do: execute, answer: 900 * time.Millisecond, says: driver.ErrBadConn},
		"a server without the majority":   {do: execute, says: &mysql.MySQLError{Number: NotPrepared}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
				p.checkTimeout = time.Second / 2
				conn := dialed(t, p)
				conn.taken = true
				s.answer, s.says = c.answer, c.says
				using := Unchecked(t.Context())
				if c.checks {
					using = t.Context()
				}
				ctx, cancel := context.WithTimeout(using, time.Second)
				if errors.Is(c.giveUp, context.Canceled) {
					ctx, cancel = context.WithCancel(using)
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

// A connection from before the last suspicion causes no other one: the server that has taken over is not to blame.
func TestOldConnectionIsNotAnswered(t *testing.T) {
	suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
		tx, err := dialed(t, p).BeginTx(t.Context(), driver.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.server.suspect()
		s.answer = time.Minute
		time.Sleep(suspectPause)
		if err := tx.Commit(); err == nil || p.server.generation.Load() != 1 {
			t.Errorf("%v: suspected %d times, want once", err, p.server.generation.Load())
		}
	})
}

// A connection that was dialed shortly after a suspicion may lead to the suspected server, so it is used for half a second at most.
func TestDoubtedConnection(t *testing.T) {
	suspectBubble(t, func(t *testing.T, p *Connector, _ *slowServer) {
		usable := func(c *conn) bool { return c.IsValid() && c.ResetSession(t.Context()) == nil }
		p.server.suspect()
		for range doubtFor / doubtedAge {
			c := dialed(t, p)
			time.Sleep(doubtedAge/2 - time.Nanosecond)
			if !usable(c) {
				t.Errorf("it is not used for %v", doubtedAge/2)
			}
			time.Sleep(doubtedAge/2 + time.Nanosecond)
			if c.IsValid() || !errors.Is(c.ResetSession(t.Context()), driver.ErrBadConn) {
				t.Errorf("it is used for more than %v", doubtedAge)
			}
		}
		c := dialed(t, p)
		if time.Sleep(minConnAge - time.Nanosecond); !usable(c) {
			t.Errorf("later it is not used for %v", minConnAge)
		}
	})
}

// A server is not suspected if it refuses a dial, or if the caller cancels a dial early.
func TestNoSuspicion(t *testing.T) {
	suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
		idle := dialed(t, p)
		s.handshake, s.fails = p.checkTimeout-time.Millisecond, true
		if _, err := p.Connect(t.Context()); err == nil {
			t.Error("the dial did not fail")
		}
		s.handshake = time.Minute
		brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := p.Connect(brief)
		mustBe(t, "a dial whose caller gives up", err, context.DeadlineExceeded)
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
		"slow, long after a suspicion":          {doubtFor + time.Second, quickDial + time.Millisecond, 1},
		"slow, and nothing was suspected":       {0, quickDial + time.Millisecond, 1},
		"very slow, with a suspicion before it": {time.Second, 2 * doubtFor, 2},
	} {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
				if c.after > 0 {
					p.server.suspect()
					time.Sleep(c.after)
				}
				s.handshake = c.takes
				got := dialed(t, p)
				if len(s.dialed) != c.dials || got.driverConn != driver.Conn(s.dialed[c.dials-1]) {
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
	uses := map[string]func(ctx context.Context, c *conn) error{
		"a query":       func(ctx context.Context, c *conn) error { return errorOf(c.QueryContext(ctx, "SELECT 1", nil)) },
		"a statement":   func(ctx context.Context, c *conn) error { return errorOf(c.ExecContext(ctx, "DO 0", nil)) },
		"a transaction": func(ctx context.Context, c *conn) error { return errorOf(c.BeginTx(ctx, driver.TxOptions{})) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			suspectBubble(t, func(t *testing.T, p *Connector, s *slowServer) {
				old := dialed(t, p)
				p.server.Leave()
				mustBe(t, name+" by an old connection", use(t.Context(), old), driver.ErrBadConn)
				waited := dialed(t, p)
				time.Sleep(time.Minute)
				s.answer = time.Minute
				mustBe(t, name+" by one that has waited", use(t.Context(), waited), driver.ErrBadConn)
			})
		})
	}
}

// An answer on which the driver panics is a lost reply. The connection is closed, and no goroutine waits for ever.
func TestUnreadableAnswer(t *testing.T) {
	s := &slowServer{}
	pool := sql.OpenDB(&Connector{Connector: s, server: &Server{}, checkTimeout: time.Minute, pool: poolLimit{conns: 8}})
	defer pool.Close()
	c, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.panics = true
	mustBe(t, "the answer", errorOf(c.QueryContext(t.Context(), "CALL p()")), mysql.ErrInvalidConn)
	_ = c.Close()
	if n := pool.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections stay open", n)
	}
}

func mustBe(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func errorOf[T any](_ T, err error) error { return err }

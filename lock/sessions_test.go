package lock

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// sessionStrategy is Named or Rows.
type sessionStrategy interface {
	Strategy
	Admin
}

// Patience is the timeout of a server where it is not the test's subject: longer than a busy machine delays an answer.
const Patience = 5 * time.Second

// OpenPatientSessions is OpenSessions for the tests in package lock_test.
func OpenPatientSessions(c *mysql.Config, ttl time.Duration, names int) (*Sessions, error) {
	return openSessions(c, ttl, names, Patience)
}

// open opens sessions that are closed with the test.
func open(t testing.TB, c *mysql.Config, ttl time.Duration, names int) *Sessions {
	t.Helper()
	s, err := OpenPatientSessions(c, ttl, names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var sessionStrategies = map[string]func(*Sessions) sessionStrategy{
	"named": func(s *Sessions) sessionStrategy { return s.Named() },
	"rows":  func(s *Sessions) sessionStrategy { return s.Rows() },
}

type pick = func(*Sessions) sessionStrategy

// onEachSessionStrategy runs the test with Named and Rows on each server.
func onEachSessionStrategy(t *testing.T, test func(*testing.T, *testDB, pick)) {
	t.Helper()
	onEachServer(t, func(t *testing.T, s *testDB) {
		for name, pick := range sessionStrategies {
			t.Run(name, func(t *testing.T) { test(t, s, pick) })
		}
	})
}

// onEachBreakableSession is onEachSessionStrategy on servers that the test may break.
func onEachBreakableSession(t *testing.T, test func(*testing.T, *servertest.Database, *testDB, pick)) {
	t.Helper()
	onEachOwnServer(t, func(t *testing.T, server *servertest.Database, s *testDB) {
		for name, pick := range sessionStrategies {
			t.Run(name, func(t *testing.T) { test(t, server, s, pick) })
		}
	})
}

// acquireEventually polls until it acquires name, for longer than a busy machine delays what the test does next.
func acquireEventually(t *testing.T, s Strategy, name string) (g Grant) {
	t.Helper()
	testkit.Eventually(t, name+" is free", func() bool {
		var err error
		g, err = s.Acquire(t.Context(), name, "the next", 5*time.Second)
		return err == nil
	})
	return g
}

// A released name has the next fence, which is close to the server's clock, and the grant stays released.
func TestSessionFences(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		mine, others := pick(open(t, s.config, time.Minute, 10)), pick(open(t, s.config, time.Minute, 10))
		g := mustAcquire(t, mine, "freed", "me", time.Minute)
		last := time.Now().Add(-time.Second).UnixMicro()
		for range 20 {
			if g.Fence() <= last || g.Fence() > last+time.Minute.Microseconds() {
				t.Fatalf("fence %d after %d", g.Fence(), last)
			}
			last = g.Fence()
			wantErr(t, "release", g.Release(t.Context(), 0), nil)
			wantErr(t, "release again", g.Release(t.Context(), 0), ErrExpired)
			wantErr(t, "extend what was released", g.Extend(t.Context(), time.Minute), ErrExpired)
			mine, others = others, mine
			g = mustAcquire(t, mine, "freed", "me", time.Minute)
		}
		for what, err := range map[string]error{
			"name": acquireErr(t, mine, strings.Repeat("n", MaxNameLength+1), "me", time.Minute), "owner": acquireErr(t, mine, "a", "", time.Minute),
			"ttl": acquireErr(t, mine, "a", "me", time.Minute+1), "extend": g.Extend(t.Context(), time.Minute+1),
		} {
			wantErr(t, what, err, ErrInvalid)
		}
	})
}

func acquireErr(t testing.TB, s Strategy, name, owner string, ttl time.Duration) error {
	t.Helper()
	g, err := s.Acquire(t.Context(), name, owner, ttl)
	if g != nil {
		t.Errorf("%s was granted", name)
	}
	return err
}

// GET_LOCK's names are common to all databases of a server.
func TestSessionsOfTwoDatabases(t *testing.T) {
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		notOnTiDB(t, kind)
		for name, pick := range sessionStrategies {
			t.Run(name, func(t *testing.T) {
				for range 2 {
					s := newStore(t, configOf(t, servertest.EmptyURL(t, kind)))
					mustAcquire(t, pick(open(t, s.config, time.Minute, 1)), "job", "me", time.Minute)
				}
			})
		}
	})
}

func TestSessionStatements(t *testing.T) {
	want := map[string][4]int64{"named": {2, 1, 1, 1}, "rows": {2, 2, 1, 2}}
	onEachBreakableSession(t, func(t *testing.T, _ *servertest.Database, s *testDB, pick pick) {
		sessions := open(t, s.config, time.Minute, 2)
		strategy := pick(sessions)
		a, b := mustAcquire(t, strategy, "a", "me", time.Minute), mustAcquire(t, strategy, "b", "me", time.Minute)
		wantErr(t, "release", b.Release(t.Context(), 0), nil)
		wantErr(t, "release", a.Release(t.Context(), 0), nil)
		var g Grant
		got := [4]int64{
			s.countStatements(t, func() { g = mustAcquire(t, strategy, "a", "me", time.Minute) }),
			s.countStatements(t, func() { mustBeHeld(t, strategy, "a", "me") }),
			s.countStatements(t, func() { wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil) }),
			s.countStatements(t, func() { wantErr(t, "release", g.Release(t.Context(), 0), nil) }),
		}
		if want := want[strategy.(sessionLock).strategy()]; got != want {
			t.Errorf("winning, losing, extending, releasing cost %v, want %v", got, want)
		}
	})
}

// The grant outlives the context of its acquisition, and a context that ends between two statements.
func TestSessionOutlivesContexts(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 2))
		ctx, cancel := context.WithCancel(t.Context())
		g, err := strategy.Acquire(ctx, "job", "me", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		wantErr(t, "extend without a context", g.Extend(ctx, time.Minute), ErrUnavailable)
		wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		mustBeHeld(t, strategy, "job", "me")
	})
}

// A name can be kept for longer than the server's wait_timeout.
func TestSessionIsKept(t *testing.T) {
	t.Parallel()
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		t.Parallel()
		const ttl, keep = 6 * time.Second, 8 * time.Second
		strategy := pick(open(t, s.config, ttl, 3))
		g := mustAcquire(t, strategy, "job", "me", ttl)
		released := time.Now()
		wantErr(t, "release", g.Release(t.Context(), keep), nil)
		wantErr(t, "extend", g.Extend(t.Context(), ttl), ErrExpired)
		acquireEventually(t, strategy, "job")
		if kept := time.Since(released); kept < keep {
			t.Errorf("kept for %s", kept)
		}
	})
}

// What is kept can be released at once.
func TestKeptSessionIsReleased(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		g := mustAcquire(t, strategy, "job", "me", time.Minute)
		wantErr(t, "release", g.Release(t.Context(), time.Hour), nil)
		mustBeHeld(t, strategy, "job", "me")
		wantErr(t, "release now", g.Release(t.Context(), 0), nil)
		mustAcquire(t, strategy, "job", "you", time.Minute)
	})
}

// If all connections hold names, an acquisition is unavailable in time, and two do not wait for each other.
func TestSessionsThatAreAllTaken(t *testing.T) {
	t.Parallel()
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		t.Parallel()
		sessions := open(t, s.config, time.Minute, 2)
		strategy := pick(sessions)
		mustAcquire(t, strategy, "a", "me", time.Minute)
		b := mustAcquire(t, strategy, "b", "me", time.Minute)
		sessions.timeout = time.Second
		// The names are held for longer than the test lasts: an acquisition that returns has not waited for them.
		wantErr(t, "acquire without a deadline", acquireErr(t, strategy, "c", "me", time.Minute), ErrUnavailable)
		sessions.timeout = time.Hour // the caller's deadline ends the wait
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		testkit.Together(8, func(int) {
			_, err := strategy.Acquire(ctx, "c", "me", time.Minute)
			wantErr(t, "acquire", err, ErrUnavailable)
		})
		if list, err := strategy.List(t.Context()); len(list) != 2 || err != nil {
			t.Errorf("%+v, %v", list, err)
		}
		wantErr(t, "extend", b.Extend(t.Context(), time.Minute), nil)
		wantErr(t, "release", b.Release(t.Context(), 0), nil)
		mustAcquire(t, strategy, "c", "me", time.Minute)
	})
}

func TestClosedSessions(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		sessions, others := open(t, s.config, time.Minute, 3), pick(open(t, s.config, time.Minute, 3))
		a, kept := mustAcquire(t, pick(sessions), "a", "me", time.Minute), mustAcquire(t, pick(sessions), "kept", "me", time.Minute)
		wantErr(t, "release", kept.Release(t.Context(), time.Hour), nil)
		if err := sessions.Close(); err != nil {
			t.Fatal(err)
		}
		acquireEventually(t, others, "a")
		acquireEventually(t, others, "kept")
		wantErr(t, "extend", a.Extend(t.Context(), time.Minute), ErrExpired)
		wantErr(t, "acquire", acquireErr(t, pick(sessions), "b", "me", time.Minute), ErrUnavailable)
	})
}

func TestOpenSessionsRefuses(t *testing.T) {
	c := mysql.NewConfig()
	for _, err := range []error{openErr(c, 0, 1), openErr(c, time.Minute, 0)} {
		wantErr(t, "open", err, ErrInvalid)
	}
	c.TLSConfig = "no such thing"
	if openErr(c, time.Minute, 1) == nil {
		t.Error("opened")
	}
}

func openErr(c *mysql.Config, ttl time.Duration, names int) error {
	_, err := OpenSessions(c, ttl, names)
	return err
}

// Without a deadline of the caller, a server that accepts connections and never answers is waited for as long as OpenSessions says.
func TestOpenSessionsBoundsAWait(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", silent.Addr().String()
	for name, pick := range sessionStrategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sessions, err := OpenSessions(c, time.Minute, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer sessions.Close()
			testkit.Equal(t, "timeout", 2*time.Second, sessions.timeout)
			began := time.Now()
			wantErr(t, "acquire", acquireErr(t, pick(sessions), "job", "me", time.Minute), ErrUnavailable)
			if took := time.Since(began); took < sessions.timeout {
				t.Errorf("gave up after %s", took)
			}
		})
	}
}

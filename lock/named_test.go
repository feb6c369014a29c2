package lock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/servertest"
	"firsttap/testkit"
)

// sessionStrategy is what Named and Rows have in common.
type sessionStrategy interface {
	Strategy
	Registry
}

// open opens sessions that end with the test.
func open(t testing.TB, c *mysql.Config, ttl time.Duration, names int) *Sessions {
	t.Helper()
	s, err := OpenSessions(c, ttl, names)
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

// eachSession runs the test on each strategy with sessions, on each server.
func eachSession(t *testing.T, test func(*testing.T, *store, pick)) {
	t.Helper()
	eachServer(t, func(t *testing.T, s *store) {
		for name, pick := range sessionStrategies {
			t.Run(name, func(t *testing.T) { test(t, s, pick) })
		}
	})
}

// eachBreakableSession is eachSession on servers that the test may break.
func eachBreakableSession(t *testing.T, test func(*testing.T, *servertest.Database, *store, pick)) {
	t.Helper()
	eachOwnServer(t, func(t *testing.T, server *servertest.Database, s *store) {
		for name, pick := range sessionStrategies {
			t.Run(name, func(t *testing.T) { test(t, server, s, pick) })
		}
	})
}

// becomesFree waits until somebody else can have name, and returns that grant.
func becomesFree(t *testing.T, s Strategy, name string) (g Grant) {
	t.Helper()
	testkit.Eventually(t, name+" is free", func() bool {
		var err error
		g, err = s.Acquire(t.Context(), name, "the next", time.Second)
		return err == nil
	})
	return g
}

func TestSessionsHoldNames(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		mine, others := pick(open(t, s.config, time.Minute, 10)), pick(open(t, s.config, time.Minute, 10))
		long := strings.Repeat("n", MaxName)
		for _, name := range []string{"job", "Job", long, strings.ToUpper(long), long[1:] + "x"} {
			g := take(t, mine, name, "me", time.Minute)
			mustBeHeld(t, others, name, "me")
			mustBeHeld(t, mine, name, "me")
			mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		}
		g := take(t, mine, "freed", "me", time.Minute)
		last := time.Now().Add(-time.Second).UnixMicro()
		for range 20 {
			if g.Fence() <= last || g.Fence() > last+10e6 {
				t.Fatalf("fence %d after %d", g.Fence(), last)
			}
			last = g.Fence()
			mustBe(t, "release", g.Release(t.Context(), 0), nil)
			mustBe(t, "release again", g.Release(t.Context(), 0), ErrExpired)
			mustBe(t, "extend what was released", g.Extend(t.Context(), time.Minute), ErrExpired)
			mine, others = others, mine
			g = take(t, mine, "freed", "me", time.Minute)
		}
		for what, err := range map[string]error{
			"name": acquireErr(t, mine, long+"n", "me", time.Minute), "owner": acquireErr(t, mine, "a", "", time.Minute),
			"ttl": acquireErr(t, mine, "a", "me", time.Minute+1), "extend": g.Extend(t.Context(), time.Minute+1),
		} {
			mustBe(t, what, err, ErrInvalid)
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

// Exactly one wins, also the first time: never two, and never none.
func TestSessionsOneWins(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		const rivals = 16
		strategy := pick(open(t, s.config, time.Minute, rivals))
		for round := range 10 {
			var won atomic.Int32
			var winner atomic.Value
			testkit.Together(rivals, func(i int) {
				g, err := strategy.Acquire(t.Context(), "job", string(rune('a'+i)), time.Minute)
				switch {
				case err == nil:
					won.Add(1)
					winner.Store(g)
				case !errors.Is(err, ErrHeld):
					t.Error(err)
				}
			})
			if won.Load() != 1 {
				t.Fatalf("round %d: %d won", round, won.Load())
			}
			mustBe(t, "release", winner.Load().(Grant).Release(t.Context(), 0), nil)
		}
	})
}

// The server's names are common to its databases.
func TestSessionsOfTwoDatabases(t *testing.T) {
	for server, fresh := range map[string]func(testing.TB) string{"mariadb": servertest.MariaDBURL, "mysql": servertest.MySQLURL} {
		for name, pick := range sessionStrategies {
			t.Run(server+"/"+name, func(t *testing.T) {
				for range 2 {
					s := newStore(t, configOf(t, fresh(t)))
					take(t, pick(open(t, s.config, time.Minute, 1)), "job", "me", time.Minute)
				}
			})
		}
	}
}

func TestSessionStatements(t *testing.T) {
	want := map[string][4]int64{"named": {2, 1, 1, 1}, "rows": {2, 2, 1, 2}}
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		sessions := open(t, s.config, time.Minute, 2)
		strategy := pick(sessions)
		a, b := take(t, strategy, "a", "me", time.Minute), take(t, strategy, "b", "me", time.Minute)
		mustBe(t, "release", b.Release(t.Context(), 0), nil)
		mustBe(t, "release", a.Release(t.Context(), 0), nil)
		var g Grant
		got := [4]int64{
			s.statements(t, func() { g = take(t, strategy, "a", "me", time.Minute) }),
			s.statements(t, func() { mustBeHeld(t, strategy, "a", "me") }),
			s.statements(t, func() { mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil) }),
			s.statements(t, func() { mustBe(t, "release", g.Release(t.Context(), 0), nil) }),
		}
		if want := want[strategy.(keeper).strategy()]; got != want {
			t.Errorf("winning, losing, extending, releasing cost %v, want %v", got, want)
		}
	})
}

// The grant outlives the context that it was acquired with, and one that ends between two statements.
func TestSessionOutlivesContexts(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 2))
		ctx, cancel := context.WithCancel(t.Context())
		g, err := strategy.Acquire(ctx, "job", "me", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		mustBe(t, "extend without a context", g.Extend(ctx, time.Minute), ErrUnavailable)
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		mustBeHeld(t, strategy, "job", "me")
	})
}

// A holder that goes on living but neither extends nor releases loses the name after its TTL, not after the sessions'.
func TestSessionGrantEnds(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Hour, 3))
		began := time.Now()
		g := take(t, strategy, "job", "me", 200*time.Millisecond)
		mustBe(t, "extend", g.Extend(t.Context(), 300*time.Millisecond), nil)
		next := becomesFree(t, strategy, "job")
		if held := time.Since(began); held < 300*time.Millisecond {
			t.Errorf("free after %s", held)
		}
		if next.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), g.Fence())
		}
		mustBe(t, "extend", g.Extend(t.Context(), time.Second), ErrExpired)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, strategy, "job", "the next")
		mustBe(t, "release", next.Release(t.Context(), 0), nil)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrExpired)
	})
}

// Kept longer than the server waits for a word.
func TestSessionIsKept(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		t.Parallel()
		strategy := pick(open(t, s.config, time.Second, 3))
		g := take(t, strategy, "job", "me", time.Second)
		released := time.Now()
		mustBe(t, "release", g.Release(t.Context(), 2500*time.Millisecond), nil)
		mustBe(t, "extend", g.Extend(t.Context(), time.Second), ErrExpired)
		mustBeHeld(t, strategy, "job", "me")
		becomesFree(t, strategy, "job")
		if kept := time.Since(released); kept < 2500*time.Millisecond {
			t.Errorf("kept for %s", kept)
		}
		h := take(t, strategy, "another", "me", time.Second)
		mustBe(t, "release", h.Release(t.Context(), time.Hour), nil)
		mustBe(t, "release now", h.Release(t.Context(), 0), nil)
		take(t, strategy, "another", "you", time.Second)
	})
}

func TestKilledSession(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		g := take(t, strategy, "job", "me", time.Minute)
		s.exec(t, "KILL "+itoa(g.(*sessionGrant).id))
		next := becomesFree(t, strategy, "job")
		if next.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), g.Fence())
		}
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), ErrExpired)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, strategy, "job", "the next")
	})
}

func TestSessionsBreak(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy, operator := pick(open(t, s.config, time.Minute, 5)), pick(open(t, s.config, time.Minute, 1))
		a, _ := take(t, strategy, "a", "me", time.Minute), take(t, strategy, "b", "you", time.Minute)
		freed := take(t, strategy, "freed", "me", time.Minute)
		mustBe(t, "release", freed.Release(t.Context(), 0), nil)
		if list, err := operator.List(t.Context()); err != nil || len(list) != 2 || list[0].Owner != "me" || list[1].Name != "b" {
			t.Errorf("%+v, %v", list, err)
		}
		if h, err := operator.Show(t.Context(), "a"); err != nil || h != (Holder{Name: "a", Owner: "me", Fence: a.Fence()}) {
			t.Errorf("%+v, %v", h, err)
		}
		for name, owner := range map[string]string{"a": "me", "freed": "", "never": ""} {
			before, err := operator.Show(t.Context(), name)
			if err != nil || before.Owner != owner {
				t.Errorf("%+v, %v", before, err)
			}
			h, err := operator.Break(t.Context(), name)
			if err != nil || h.Owner != owner || h.Fence <= before.Fence {
				t.Errorf("%+v after %+v, %v", h, before, err)
			}
			if next := take(t, strategy, name, "the next", time.Minute); next.Fence() <= h.Fence {
				t.Errorf("fence %d after %d", next.Fence(), h.Fence)
			}
		}
		mustBe(t, "extend", a.Extend(t.Context(), time.Minute), ErrExpired)
		mustBe(t, "release", a.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, operator, "b", "you")
		_, err := operator.Break(t.Context(), strings.Repeat("n", MaxName+1))
		mustBe(t, "break", err, ErrInvalid)
	})
}

// All connections hold names: nobody can tell, in time, and nobody waits for one who waits for him.
func TestSessionsThatAreAllTaken(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		t.Parallel()
		strategy := pick(open(t, s.config, time.Minute, 2))
		take(t, strategy, "a", "me", time.Minute)
		b := take(t, strategy, "b", "me", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		testkit.Together(8, func(int) {
			_, err := strategy.Acquire(ctx, "c", "me", time.Minute)
			mustBe(t, "acquire", err, ErrUnavailable)
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
		began = time.Now()
		mustBe(t, "acquire without a deadline", acquireErr(t, strategy, "c", "me", time.Minute), ErrUnavailable)
		if took := time.Since(began); took > 2*sessionPatience {
			t.Errorf("took %s", took)
		}
		if list, err := strategy.List(t.Context()); len(list) != 2 || err != nil {
			t.Errorf("%+v, %v", list, err)
		}
		mustBe(t, "extend", b.Extend(t.Context(), time.Minute), nil)
		mustBe(t, "release", b.Release(t.Context(), 0), nil)
		take(t, strategy, "c", "me", time.Minute)
	})
}

func TestClosedSessions(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		sessions, others := open(t, s.config, time.Minute, 3), pick(open(t, s.config, time.Minute, 3))
		a, kept := take(t, pick(sessions), "a", "me", time.Minute), take(t, pick(sessions), "kept", "me", time.Minute)
		mustBe(t, "release", kept.Release(t.Context(), time.Hour), nil)
		if err := sessions.Close(); err != nil {
			t.Fatal(err)
		}
		becomesFree(t, others, "a")
		becomesFree(t, others, "kept")
		mustBe(t, "extend", a.Extend(t.Context(), time.Minute), ErrExpired)
		mustBe(t, "acquire", acquireErr(t, pick(sessions), "b", "me", time.Minute), ErrUnavailable)
	})
}

func TestOpenSessionsRefuses(t *testing.T) {
	c := mysql.NewConfig()
	for _, err := range []error{openErr(c, 0, 1), openErr(c, time.Minute, 0)} {
		mustBe(t, "open", err, ErrInvalid)
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

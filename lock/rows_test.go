package lock

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// A holder that is cut off loses the name by the server's clock, and learns so.
func TestCutOffSession(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		t.Parallel()
		proxy := servertest.StartProxy(t, s.config.Addr)
		cutOff, rival := pick(open(t, via(s.config, proxy), 2*time.Second, 2)), pick(open(t, s.config, 2*time.Second, 2))
		g := take(t, cutOff, "job", "me", 2*time.Second)
		proxy.Blackhole(true)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		mustBe(t, "extend", g.Extend(ctx, 2*time.Second), ErrExpired)
		mustBeHeld(t, rival, "job", "me")
		mustBe(t, "release", g.Release(ctx, 0), ErrUnavailable)
		next := becomesFree(t, rival, "job")
		if took := time.Since(began); took < time.Second {
			t.Errorf("the server freed it after %s: it saw the connection end", took)
		}
		if next.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), g.Fence())
		}
		proxy.Blackhole(false)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, rival, "job", "the next")
	})
}

// A release that gets no answer is repeated, and ends a session that the server has not seen end.
func TestReleaseOfASessionThatIsStillThere(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		g := take(t, strategy, "job", "me", time.Minute).(*sessionGrant)
		g.mu.Lock()
		conn := g.conn
		g.forget() // what hanging up does, but for the server's part
		g.mu.Unlock()
		mustBeHeld(t, strategy, "job", "me")
		mustBe(t, "release", g.Release(t.Context(), 0), nil)
		take(t, strategy, "job", "you", time.Minute)
		mustBe(t, "release again", g.Release(t.Context(), 0), ErrExpired)
		hangUp(conn)
	})
}

// A server that was started again may have given the session's number to somebody else.
func TestReleaseSparesAnothersSession(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		sessions := open(t, s.config, time.Minute, 1)
		g := take(t, pick(sessions), "job", "me", time.Minute).(*sessionGrant)
		old := &sessionGrant{sessions: sessions, keeper: g.keeper, name: "job", owner: "old", id: g.id}
		mustBe(t, "release", old.Release(t.Context(), 0), ErrStolen)
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil)
	})
}

// Between taking a name and saying so: whoever had it before is not said to have it, and the session can be ended.
func TestSessionThatHasJustTakenAName(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		sessions := open(t, s.config, time.Minute, 2)
		named := sessions.Named()
		mustBe(t, "release", take(t, named, "job", "before", time.Minute).Release(t.Context(), 0), nil)
		conn, err := open(t, s.config, time.Minute, 1).named.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hangUp(conn) })
		id, err := named.take(t.Context(), conn, "job")
		if err != nil {
			t.Fatal(err)
		}
		mustBeHeld(t, named, "job", "")
		h, err := named.Break(t.Context(), "job")
		if want := "session " + itoa(id); err != nil || h.Owner != want {
			t.Errorf("%+v, %v, want %s", h, err, want)
		}
		take(t, named, "job", "me", time.Minute)
	})
}

func TestReplyOfASessionIsLost(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		proxy := servertest.StartProxy(t, s.config.Addr)
		strategy, direct := pick(open(t, via(s.config, proxy), time.Minute, 2)), pick(open(t, s.config, time.Minute, 2))
		statements := []string{"GET_LOCK(", "RELEASE_LOCK("}
		if strategy.(keeper).strategy() == "rows" {
			statements = []string{"FOR UPDATE SKIP LOCKED", "COMMIT"}
		}
		for _, statement := range []string{statements[0], "INSERT INTO lock_sessions"} {
			last := take(t, direct, "job", "before", time.Minute)
			mustBe(t, "release", last.Release(t.Context(), 0), nil)
			cut := proxy.CutReply(statement)
			mustBe(t, statement, acquireErr(t, strategy, "job", "me", time.Minute), ErrUnavailable)
			<-cut.Done()
			next := becomesFree(t, direct, "job")
			if next.Fence() <= last.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), last.Fence())
			}
			mustBe(t, "release", next.Release(t.Context(), 0), nil)
		}
		g := take(t, strategy, "job", "me", time.Minute)
		cut := proxy.CutReply(statements[1])
		mustBe(t, "release", g.Release(t.Context(), 0), ErrUnavailable)
		<-cut.Done()
		becomesFree(t, direct, "job")
		mustBe(t, "release again", g.Release(t.Context(), 0), ErrStolen)
	})
}

// The caller has gone when the server comes to execute what it was asked: nothing stays.
func TestAcquireFromAFrozenServer(t *testing.T) {
	eachBreakableSession(t, func(t *testing.T, server *servertest.Database, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Hour, 2))
		g := take(t, strategy, "job", "me", time.Minute) // and the connections are there
		mustBe(t, "release", g.Release(t.Context(), 0), nil)
		server.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := strategy.Acquire(ctx, "job", "gone", time.Minute)
		mustBe(t, "acquire", err, ErrUnavailable)
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
		server.Thaw()
		mustBe(t, "release", becomesFree(t, strategy, "job").Release(t.Context(), 0), nil)
		if list, err := strategy.List(t.Context()); len(list) != 0 || err != nil {
			t.Errorf("%+v, %v", list, err)
		}
		g = take(t, strategy, "job", "me", time.Minute)
		server.Freeze()
		began = time.Now()
		mustBe(t, "extend without a deadline", g.Extend(t.Context(), time.Minute), ErrExpired)
		if took := time.Since(began); took > 2*sessionPatience {
			t.Errorf("took %s", took)
		}
		server.Thaw()
		becomesFree(t, strategy, "job")
	})
}

// A server that was killed remembers the fence, and counts its sessions from the beginning.
func TestSessionsOverAKilledServer(t *testing.T) {
	eachBreakableSession(t, func(t *testing.T, server *servertest.Database, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 4))
		g := take(t, strategy, "job", "me", time.Minute)
		ahead := g.Fence() + time.Hour.Microseconds()
		s.exec(t, "UPDATE lock_sessions SET fence = ? WHERE name = 'job'", ahead) // the clock has gone back since
		server.Kill()
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), ErrExpired)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrUnavailable)
		mustBe(t, "acquire", acquireErr(t, strategy, "job", "you", time.Minute), ErrUnavailable)
		server.Start()
		mustBe(t, "release", g.Release(t.Context(), 0), ErrExpired)
		next := take(t, strategy, "job", "you", time.Minute)
		if next.Fence() != ahead+1 {
			t.Errorf("fence %d after %d", next.Fence(), ahead)
		}
		mustBe(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, strategy, "job", "you")
	})
}

// Operators look as often as they like: a name that is free can be had all the while.
func TestListDisturbsNobody(t *testing.T) {
	eachSession(t, func(t *testing.T, s *store, pick pick) {
		strategy, operator := pick(open(t, s.config, time.Minute, 2)), pick(open(t, s.config, time.Minute, 2))
		mustBe(t, "release", take(t, strategy, "job", "me", time.Minute).Release(t.Context(), 0), nil)
		stop := make(chan struct{})
		var looking sync.WaitGroup
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := operator.List(context.Background()); err != nil {
					t.Error(err)
				}
				if _, err := operator.Show(context.Background(), "job"); err != nil {
					t.Error(err)
				}
			}
		})
		for range 300 {
			g, err := strategy.Acquire(t.Context(), "job", "me", time.Minute)
			if err != nil {
				t.Errorf("acquire: %v", err)
				break
			}
			mustBe(t, "release", g.Release(t.Context(), 0), nil)
		}
		close(stop)
		looking.Wait()
	})
}

// What a row's holder must not do to the server: keep it from purging, for as long as the name is held.
func TestRowsHoldNoSnapshot(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		g := take(t, open(t, s.config, time.Minute, 1).Rows(), "job", "me", time.Minute)
		var level string
		err := s.QueryRowContext(t.Context(), "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?",
			g.(*sessionGrant).id).Scan(&level)
		if err != nil || level != "READ COMMITTED" {
			t.Errorf("%q, %v", level, err)
		}
	})
}

// Whoever moves from one strategy to another takes the fences along.
func TestFencesOfStrategiesCompare(t *testing.T) {
	eachServer(t, func(t *testing.T, s *store) {
		sessions, last := open(t, s.config, time.Minute, 2), int64(0)
		fences := NewFences(s.DB, MySQL)
		for _, strategy := range []Strategy{NewTable(s.DB, MySQL), sessions.Named(), sessions.Rows(), NewMemory(), NewTable(s.DB, MySQL)} {
			before := time.Now()
			testkit.Eventually(t, "a millisecond", func() bool { return time.Since(before) > 2*time.Millisecond })
			g := take(t, strategy, "job", "me", time.Minute)
			mustBe(t, "a write", fences.Enforce(t.Context(), s, "job", g.Fence()), nil)
			mustBe(t, "an old write", fences.Enforce(t.Context(), s, "job", last+1), ErrFenced)
			last = g.Fence()
			mustBe(t, "release", g.Release(t.Context(), 0), nil)
		}
	})
}

package lock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// A holder that is cut off loses the name by the server's clock, and notices it.
func TestCutOffSession(t *testing.T) {
	t.Parallel()
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		t.Parallel()
		const ttl = 6 * time.Second
		proxy := servertest.StartProxy(t, s.config.Addr)
		cutOff, rival := pick(open(t, through(s.config, proxy), time.Hour, 2)), pick(open(t, s.config, time.Hour, 2))
		wantErr(t, "release", mustAcquire(t, rival, "another", "me", ttl).Release(t.Context(), 0), nil) // opens the connections
		began := time.Now()
		g := mustAcquire(t, cutOff, "job", "me", ttl)
		proxy.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wantErr(t, "extend", g.Extend(ctx, ttl), ErrExpired)
		mustBeHeld(t, rival, "job", "me")
		wantErr(t, "release", g.Release(ctx, 0), ErrUnavailable)
		next := acquireEventually(t, rival, "job")
		if took := time.Since(began); took < ttl/2 {
			t.Errorf("the server freed it after %s, because the connection was closed", took)
		}
		if next.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), g.Fence())
		}
		proxy.Blackhole(false)
		wantErr(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBeHeld(t, rival, "job", "the next")
	})
}

// The server frees the names of a machine that is gone by the TTL of each one's last extension, or when it is no longer kept.
func TestCutOffSessionByItsLastTTL(t *testing.T) {
	t.Parallel()
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		t.Parallel()
		proxy := servertest.StartProxy(t, s.config.Addr)
		cutOff, rival := pick(open(t, through(s.config, proxy), time.Hour, 2)), pick(open(t, s.config, time.Hour, 2))
		extended, kept := mustAcquire(t, cutOff, "extended", "me", time.Hour), mustAcquire(t, cutOff, "kept", "me", time.Hour)
		wantErr(t, "extend", extended.Extend(t.Context(), 6*time.Second), nil)
		wantErr(t, "release", kept.Release(t.Context(), 6*time.Second), nil)
		proxy.Blackhole(true)
		acquireEventually(t, rival, "extended")
		acquireEventually(t, rival, "kept")
	})
}

// A session may be as silent as its name's latest TTL says, whatever an earlier one said.
func TestSessionIsSilent(t *testing.T) {
	t.Parallel()
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		t.Parallel()
		const shorter, ttl = 6 * time.Second, 10 * time.Second
		strategy := pick(open(t, s.config, time.Hour, 1))
		g := mustAcquire(t, strategy, "job", "me", shorter)
		extended := time.Now()
		wantErr(t, "extend", g.Extend(t.Context(), ttl), nil)
		acquireEventually(t, pick(open(t, s.config, time.Hour, 1)), "job")
		if held := time.Since(extended); held < ttl {
			t.Errorf("held for %s", held)
		}
		wantErr(t, "release", mustAcquire(t, strategy, "another", "me", shorter).Release(t.Context(), 0), nil)
		next := mustAcquire(t, strategy, "another", "me", time.Hour).(*sessionGrant) // on the same connection
		var timeout int
		err := next.conn.QueryRowContext(t.Context(), "SELECT @@SESSION.wait_timeout").Scan(&timeout)
		if err != nil || timeout < 3600 {
			t.Errorf("after an hour's acquisition the server waits for %d s, %v", timeout, err)
		}
	})
}

// A repeated release ends a session whose end the server has not noticed.
func TestReleaseOfASessionThatIsStillThere(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		g := mustAcquire(t, strategy, "job", "me", time.Minute).(*sessionGrant)
		g.mu.Lock()
		conn := g.conn
		g.detach() // like hangUp, without closing the connection
		g.mu.Unlock()
		mustBeHeld(t, strategy, "job", "me")
		wantErr(t, "release", g.Release(t.Context(), 0), nil)
		mustAcquire(t, strategy, "job", "you", time.Minute)
		wantErr(t, "release again", g.Release(t.Context(), 0), ErrExpired)
		hangUp(conn)
	})
}

// A restarted server may have assigned the session's id again.
func TestReleaseSparesAnothersSession(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		sessions := open(t, s.config, time.Minute, 1)
		g := mustAcquire(t, pick(sessions), "job", "me", time.Minute).(*sessionGrant)
		old := &sessionGrant{sessions: sessions, lock: g.lock, name: "job", owner: "old", id: g.id}
		wantErr(t, "release", old.Release(t.Context(), 0), ErrStolen)
		wantErr(t, "extend", g.Extend(t.Context(), time.Minute), nil)
	})
}

// A session that has acquired a name but not recorded its owner is not confused with the former owner, and Break can end
// it.
func TestSessionThatHasJustTakenAName(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		sessions := open(t, s.config, time.Minute, 2)
		named := sessions.Named()
		wantErr(t, "release", mustAcquire(t, named, "job", "before", time.Minute).Release(t.Context(), 0), nil)
		conn, err := open(t, s.config, time.Minute, 1).named.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hangUp(conn) })
		id, err := named.tryLock(t.Context(), conn, "job")
		if err != nil {
			t.Fatal(err)
		}
		mustBeHeld(t, named, "job", "")
		h, err := named.Break(t.Context(), "job")
		if want := "session " + itoa(id); err != nil || h.Owner != want {
			t.Errorf("%+v, %v, want %s", h, err, want)
		}
		mustAcquire(t, named, "job", "me", time.Minute)
	})
}

func TestReplyOfASessionIsLost(t *testing.T) {
	onEachSessionStrategy(t, func(t *testing.T, s *testDB, pick pick) {
		proxy := servertest.StartProxy(t, s.config.Addr)
		strategy, direct := pick(open(t, through(s.config, proxy), time.Minute, 2)), pick(open(t, s.config, time.Minute, 2))
		statements := []string{"GET_LOCK(", "RELEASE_LOCK("}
		if strategy.(sessionLock).strategy() == "rows" {
			statements = []string{"FOR UPDATE SKIP LOCKED", "COMMIT"}
		}
		for _, statement := range []string{statements[0], "INSERT INTO lock_sessions"} {
			last := mustAcquire(t, direct, "job", "before", time.Minute)
			wantErr(t, "release", last.Release(t.Context(), 0), nil)
			cut := proxy.CutReply(statement)
			wantErr(t, statement, acquireErr(t, strategy, "job", "me", time.Minute), ErrUnavailable)
			<-cut.Done()
			next := acquireEventually(t, direct, "job")
			if next.Fence() <= last.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), last.Fence())
			}
			wantErr(t, "release", next.Release(t.Context(), 0), nil)
		}
		g := mustAcquire(t, strategy, "job", "me", time.Minute)
		cut := proxy.CutReply(statements[1])
		wantErr(t, "release", g.Release(t.Context(), 0), ErrUnavailable)
		<-cut.Done()
		acquireEventually(t, direct, "job")
		wantErr(t, "release again", g.Release(t.Context(), 0), ErrStolen)
	})
}

// A session that does not go on while it creates the row of a name keeps nobody from the name.
func TestSlowCreatorOfARow(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		proxy := servertest.StartProxy(t, s.config.Addr)
		slow, rival := open(t, through(s.config, proxy), time.Minute, 1).Rows(), open(t, s.config, time.Minute, 1).Rows()
		hold, answer := proxy.Hold("INSERT INTO lock_rows"), make(chan error, 1)
		go func() { answer <- acquireErr(t, slow, "job", "slow", time.Minute) }()
		<-hold.Reached()
		mustAcquire(t, rival, "job", "me", time.Minute)
		hold.Release()
		wantErr(t, "acquire", <-answer, ErrHeld)
	})
}

// A row's holder must not keep the server from purging old row versions.
func TestRowsHoldNoSnapshot(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		g := mustAcquire(t, open(t, s.config, time.Minute, 1).Rows(), "job", "me", time.Minute)
		var level string
		err := s.QueryRowContext(t.Context(), "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?",
			g.(*sessionGrant).id).Scan(&level)
		if err != nil || level != "READ COMMITTED" {
			t.Errorf("%q, %v", level, err)
		}
	})
}

// Fences stay comparable when a name moves from one strategy to another.
func TestFencesOfStrategiesCompare(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		sessions, last := open(t, s.config, time.Minute, 2), int64(0)
		fences := NewFences(s.DB, MySQL)
		for _, strategy := range []Strategy{NewTable(s.DB, MySQL), sessions.Named(), sessions.Rows(), NewMemory(), NewTable(s.DB, MySQL)} {
			before := time.Now()
			testkit.Eventually(t, "a millisecond", func() bool { return time.Now().After(before.Add(2 * time.Millisecond)) })
			g := mustAcquire(t, strategy, "job", "me", time.Minute)
			wantErr(t, "a write", fences.Enforce(t.Context(), s, "job", g.Fence()), nil)
			wantErr(t, "an old write", fences.Enforce(t.Context(), s, "job", last+1), ErrFenced)
			last = g.Fence()
			wantErr(t, "release", g.Release(t.Context(), 0), nil)
		}
	})
}

// The tests' database user may write to a read-only server, so no error shows that the server was demoted.
func TestSessionsOfAServerThatBecomesReadOnly(t *testing.T) {
	onEachBreakableSession(t, func(t *testing.T, _ *servertest.Database, s *testDB, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		held := mustAcquire(t, strategy, "held", "me", time.Minute)
		idle := mustAcquire(t, strategy, "idle", "me", time.Minute)
		wantErr(t, "release", idle.Release(t.Context(), 0), nil)
		s.exec(t, "SET GLOBAL read_only = 1")
		defer s.exec(t, "SET GLOBAL read_only = 0")
		for range 4 { // on existing sessions and on new ones
			wantErr(t, "acquire", acquireErr(t, strategy, "idle", "me", time.Minute), ErrUnavailable)
		}
		wantErr(t, "extend", held.Extend(t.Context(), time.Minute), ErrExpired)
		s.exec(t, "SET GLOBAL read_only = 0")
		for _, name := range []string{"held", "idle"} { // the server may still be ending the sessions of the refused calls
			acquireEventually(t, strategy, name)
		}
	})
}

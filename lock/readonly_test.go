package lock

import (
	"testing"
	"time"

	"firsttap/servertest"
)

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
		acquireEventually(t, strategy, "held")
		mustAcquire(t, strategy, "idle", "you", time.Minute)
	})
}

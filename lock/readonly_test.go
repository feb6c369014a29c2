package lock

import (
	"testing"
	"time"

	"firsttap/servertest"
)

// The account of these tests may write to a read-only server: no error tells it that another server has taken its place.
func TestSessionsOfAServerThatBecomesReadOnly(t *testing.T) {
	onEachBreakableSession(t, func(t *testing.T, _ *servertest.Database, s *testDB, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		held := mustAcquire(t, strategy, "held", "me", time.Minute)
		idle := mustAcquire(t, strategy, "idle", "me", time.Minute)
		wantErr(t, "release", idle.Release(t.Context(), 0), nil)
		s.exec(t, "SET GLOBAL read_only = 1")
		defer s.exec(t, "SET GLOBAL read_only = 0")
		for range 4 { // by the sessions that are there, and by new ones
			wantErr(t, "acquire", acquireErr(t, strategy, "idle", "me", time.Minute), ErrUnavailable)
		}
		wantErr(t, "extend", held.Extend(t.Context(), time.Minute), ErrExpired)
		s.exec(t, "SET GLOBAL read_only = 0")
		acquireEventually(t, strategy, "held")
		mustAcquire(t, strategy, "idle", "you", time.Minute)
	})
}

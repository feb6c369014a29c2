package lock

import (
	"testing"
	"time"

	"firsttap/servertest"
)

// The account of these tests may write to a read-only server: no error tells it that another server has taken its place.
func TestSessionsOfAServerThatBecomesReadOnly(t *testing.T) {
	eachBreakableSession(t, func(t *testing.T, _ *servertest.Database, s *store, pick pick) {
		strategy := pick(open(t, s.config, time.Minute, 3))
		held := take(t, strategy, "held", "me", time.Minute)
		idle := take(t, strategy, "idle", "me", time.Minute)
		mustBe(t, "release", idle.Release(t.Context(), 0), nil)
		s.exec(t, "SET GLOBAL read_only = 1")
		defer s.exec(t, "SET GLOBAL read_only = 0")
		for range 4 { // by the sessions that are there, and by new ones
			mustBe(t, "acquire", acquireErr(t, strategy, "idle", "me", time.Minute), ErrUnavailable)
		}
		mustBe(t, "extend", held.Extend(t.Context(), time.Minute), ErrExpired)
		s.exec(t, "SET GLOBAL read_only = 0")
		becomesFree(t, strategy, "held")
		take(t, strategy, "idle", "you", time.Minute)
	})
}

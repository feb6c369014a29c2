package systemtest

import (
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/testkit"
)

// TestInstanceSleepsThroughItsLock: an instance is stopped between its lock and its commit, and the lock ends. A driver at another instance
// wins. Resumed, the first neither wins nor removes the marker. The engines lock rows differently, so it is tested on each.
func TestInstanceSleepsThroughItsLock(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		s := newStage(t, url)
		o := s.holdClaim(t, callOfClaim)
		if v := o.redis.Get(t.Context(), o.key).Val(); !strings.HasPrefix(v, "claim:"+o.drivers[0].ID+":") {
			t.Fatalf("the lock says %q", v)
		}
		s.one.signal(syscall.SIGSTOP)
		o.loseLock()
		won := o.tap(s.two, 1)
		o.hold.Release()
		s.one.signal(syscall.SIGCONT)
		if late := <-o.answered; late.Won() || late.status == 409 && !*late.Final {
			t.Errorf("the driver of the instance that slept got %s", late)
		}
		o.mustBeWon(1, won)
		o.keyMustBe("taken:" + o.drivers[1].ID + ":1")
	})
}

// An instance is killed between its lock and its commit. The drivers that another instance refused get the offer again,
// and the dispatch can be won once the lock has ended.
func TestInstanceIsKilledWithItsLock(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		s := newStage(t, url)
		o := s.holdClaim(t, callOfClaim)
		o.mustBeTaken(s.two, 1, false)
		s.proxy.Refuse(true) // what the instance has sent does not arrive
		s.one.Kill()
		o.mustBeTaken(s.two, 1, false) // the dead instance has the lock
		o.loseLock()
		testkit.Eventually(t, "the drivers get the offer again", func() bool { return o.db.reannounced(o.id) == 1 })
		var a Response
		testkit.Eventually(t, "the dispatch can be won", func() bool { a = o.tap(s.two, 1); return a.Won() })
		o.mustBeWon(1, a)
	})
}

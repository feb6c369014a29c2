package systemtest

import (
	"strings"
	"syscall"
	"testing"

	"firsttap/testkit"
)

// An instance is stopped between its lock and its commit, and the lock ends. A driver at another instance wins. Resumed, the
// first neither wins nor removes the marker.
func TestInstanceSleepsThroughItsLock(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		h := newStage(t, url).holdClaim(t, "UPDATE dispatches")
		if v := h.c.Get(t.Context(), h.key).Val(); !strings.HasPrefix(v, "claim:"+h.drivers[0].ID+":") {
			t.Fatalf("the lock says %q", v)
		}
		h.one.signal(syscall.SIGSTOP)
		h.loseLock(t)
		a := Accept(h.two, h.id, h.drivers[1], 1)
		if !a.Won() {
			t.Fatal(a)
		}
		h.hold.Release()
		h.one.signal(syscall.SIGCONT)
		if late := <-h.answered; late.Won() || late.status == 409 && !*late.Final {
			t.Fatalf("the paused instance's driver got %s", late)
		}
		h.b.mustBeWonBy(h.id, 1, h.drivers[1].ID, a.Claim.ID)
		if v := h.c.Get(t.Context(), h.key).Val(); v != "taken:"+h.drivers[1].ID+":1" {
			t.Errorf("the marker says %q", v)
		}
	})
}

// An instance is killed between its lock and its commit. The drivers that another instance refused get the offer again,
// and the dispatch can be won once the lock has ended.
func TestInstanceIsKilledWithItsLock(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		h := newStage(t, url).holdClaim(t, "UPDATE dispatches")
		if a := Accept(h.two, h.id, h.drivers[1], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
			t.Fatalf("while it is being decided: %s", a)
		}
		h.one.Kill()
		h.hold.Release()
		if a := Accept(h.two, h.id, h.drivers[1], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
			t.Fatalf("while the dead instance has the lock: %s", a)
		}
		h.loseLock(t)
		testkit.Eventually(t, "the drivers get the offer again", func() bool { return h.b.reannounced(h.id) == 1 })
		var a Response
		testkit.Eventually(t, "the dispatch can be won", func() bool { a = Accept(h.two, h.id, h.drivers[1], 1); return a.Won() })
		h.b.mustBeWonBy(h.id, 1, h.drivers[1].ID, a.Claim.ID)
	})
}

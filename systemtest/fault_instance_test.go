package systemtest

import (
	"strings"
	"syscall"
	"testing"

	"firsttap/servertest"
	"firsttap/testkit"
)

// An instance is stopped between its lock and its commit, for longer than the lock lasts. A driver at another instance
// wins. Resumed, the first neither wins nor removes the marker.
func TestInstanceSleepsThroughItsLock(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL(), "FIRSTTAP_ACCEPT_LOCK_TTL=1s"}
		sleeper, proxy := behindProxy(t, url, settings...)
		other := Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)
		b, c := OpenDatabase(t, url), redisAt(t, servertest.StartRedis(t).URL())
		drivers := MakeDrivers(t, other, 2)
		id := MakeDispatch(t, other)
		key := "dispatch:lock:{" + id + "}"
		hold := proxy.Hold("UPDATE dispatches")
		answered := make(chan Response, 1)
		go func() { answered <- Accept(sleeper, id, drivers[0], 1) }()
		testkit.Await(t, "the claim is being decided", hold.Reached())
		if v := c.Get(t.Context(), key).Val(); !strings.HasPrefix(v, "claim:"+drivers[0].ID+":") {
			t.Fatalf("the lock says %q", v)
		}
		sleeper.signal(syscall.SIGSTOP)
		testkit.Eventually(t, "the lock has ended", func() bool { return c.Exists(t.Context(), key).Val() == 0 })
		a := Accept(other, id, drivers[1], 1)
		if !a.Won() {
			t.Fatal(a)
		}
		hold.Release()
		sleeper.signal(syscall.SIGCONT)
		if late := <-answered; late.Won() || late.status == 409 && !*late.Final {
			t.Fatalf("the paused instance's driver got %s", late)
		}
		b.mustBeWonBy(id, 1, drivers[1].ID, a.Claim.ID)
		if v := c.Get(t.Context(), key).Val(); v != "taken:"+drivers[1].ID+":1" {
			t.Errorf("the marker says %q", v)
		}
	})
}

// An instance is killed between its lock and its commit. The drivers that another instance refused get the offer again,
// and the dispatch can be won once the lock has expired.
func TestInstanceIsKilledWithItsLock(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL(), "FIRSTTAP_ACCEPT_LOCK_TTL=1s"}
		victim, proxy := behindProxy(t, url, settings...)
		other := Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, other, 2)
		id := MakeDispatch(t, other)
		hold := proxy.Hold("UPDATE dispatches")
		go Accept(victim, id, drivers[0], 1)
		testkit.Await(t, "the claim is being decided", hold.Reached())
		if a := Accept(other, id, drivers[1], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
			t.Fatalf("while it is being decided: %s", a)
		}
		victim.Kill()
		hold.Release()
		testkit.Eventually(t, "the drivers get the offer again", func() bool { return db.reannounced(id) == 1 })
		var a Response
		testkit.Eventually(t, "the dispatch can be won", func() bool { a = Accept(other, id, drivers[1], 1); return a.Won() })
		db.mustBeWonBy(id, 1, drivers[1].ID, a.Claim.ID)
	})
}

// PENDING, ACCEPTED, withdrawn, PENDING: a holder that was stopped all the while must not win the next round.
func TestStaleHolderDoesNotWinTheNextRound(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		// Without Redis, only the row's condition prevents it.
		sleeper, proxy := behindProxy(t, url)
		other := Start(t, "FIRSTTAP_DATABASE_URL="+url)
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, other, 2)
		id := MakeDispatch(t, other)
		hold := proxy.Hold("UPDATE dispatches")
		answered := make(chan Response, 1)
		go func() { answered <- Accept(sleeper, id, drivers[0], 1) }()
		testkit.Await(t, "the claim is being decided", hold.Reached())
		if a := Accept(other, id, drivers[1], 1); !a.Won() {
			t.Fatal(a)
		}
		if a := send("POST", other.URL+"/v1/dispatches/"+id+"/withdraw", drivers[1].Token, ""); a.Round != 2 {
			t.Fatal(a)
		}
		hold.Release()
		if late := <-answered; late.Code != "OFFER_STALE" {
			t.Fatalf("the stale holder got %s", late)
		}
		if n := db.Count("dispatches WHERE id=? AND status='PENDING' AND round=2 AND accepted_by IS NULL", id); n != 1 {
			t.Error("round 2 is not open")
		}
	})
}

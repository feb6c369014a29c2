package systemtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/testkit"
)

// TestAClaimIsOvertaken: a claim is on its way to the database, and another change comes first.
func TestAClaimIsOvertaken(t *testing.T) {
	onStages(t, map[string]func(*testing.T, *stage){
		"the row has changed": rowHasChanged, "the version has moved": movesTheVersionItFinds,
		"the lock was lost": staleHolderLeavesTheKeyAlone, "the commit does not arrive": commitDoesNotArrive,
		"the row is locked": rowIsLockedByAStranger, "the instance sleeps": instanceSleepsThroughItsLock,
	})
}

// The row's condition must notice changes since the rule decided. These rounds have no claim yet, so the claims' unique key
// cannot help.
func rowHasChanged(t *testing.T, s *stage) {
	for name, change := range map[string]struct {
		do     func(o *offer)
		status int
		code   string
	}{
		// Like the backoffice's reopening and change of terms.
		"next round": {func(o *offer) { o.db.exec("UPDATE dispatches SET round = 2, version = version + 1 WHERE id = ?", o.id) }, 409, "OFFER_STALE"},
		"expired":    {func(o *offer) { o.db.exec("UPDATE dispatches SET expires_at = opens_at + 1 WHERE id = ?", o.id) }, 410, "DISPATCH_EXPIRED"},
		"canceled":   {func(o *offer) { cancel(o.t, o.two, o.id) }, 410, "DISPATCH_CANCELED"},
		"off duty":   {func(o *offer) { o.two.must(200, "PUT", "/v1/me/duty", o.drivers[0].Token, `{"on_duty":false}`) }, 403, "NOT_ELIGIBLE"},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.holdClaim(t, callOfClaim)
			change.do(o)
			o.hold.Release()
			if a := <-o.answered; a.status != change.status || a.Code != change.code {
				t.Errorf("the driver got %s", a)
			}
			o.nothingIsStored()
			o.keyMustBe("")
		})
	}
}

// Two changes must not share a version: an admin's If-Match names one state.
func movesTheVersionItFinds(t *testing.T, s *stage) {
	o := s.holdClaim(t, callOfClaim)
	// Like reannouncing and extending: the round and the status stay.
	o.db.exec("UPDATE dispatches SET version = version + 1 WHERE id = ?", o.id)
	before := send("GET", s.two.URL+"/v1/admin/dispatches/"+o.id, AdminKey, "")
	o.hold.Release()
	o.mustBeWon(0, <-o.answered)
	after := send("GET", s.two.URL+"/v1/admin/dispatches/"+o.id, AdminKey, "")
	if after.Version <= before.Version {
		t.Errorf("%s at version %d was %s at version %d", after.Status, after.Version, before.Status, before.Version)
	}
}

// A holder that has lost its lock neither marks nor releases the key: it belongs to another by now.
func staleHolderLeavesTheKeyAlone(t *testing.T, s *stage) {
	t.Run("that it would mark", func(t *testing.T) {
		o := s.holdClaim(t, callOfClaim)
		o.loseLock()
		const others = "claim:drv_00000000000000000000000000:1.clm_00000000000000000000000000"
		if err := o.redis.Set(t.Context(), o.key, others, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		o.hold.Release()
		o.mustBeWon(0, <-o.answered)
		o.keyMustBe(others)
	})
	t.Run("that it would release", func(t *testing.T) {
		o := s.holdClaim(t, callOfClaim)
		o.loseLock()
		won := o.tap(s.two, 1)
		s.proxy.CutAll()
		o.mustBeUnavailable(<-o.answered)
		o.keyMustBe("taken:" + o.drivers[1].ID + ":1")
		o.mustBeTaken(s.one, 0, true)
		o.mustBeWon(1, won)
	})
	t.Run("after losing the row", func(t *testing.T) {
		o := s.holdClaim(t, callOfClaim)
		o.loseLock()
		won := o.tap(s.two, 1)
		o.hold.Release()
		if late := <-o.answered; late.Code != "ALREADY_TAKEN" || !*late.Final {
			t.Errorf("the stale holder got %s", late)
		}
		o.mustBeWon(1, won)
	})
}

// A claim that never arrives is not committed, and the driver may try again.
func commitDoesNotArrive(t *testing.T, s *stage) {
	o := s.holdClaim(t, callOfClaim)
	s.proxy.CutAll()
	o.mustBeUnavailable(<-o.answered)
	o.nothingIsStored()
	o.mustBeWon(0, o.tap(s.one, 0))
	if log := s.one.log.String(); strings.Contains(log, "%!") {
		t.Errorf("the log has a broken format:\n%s", log)
	}
}

// Another transaction locks the row. The claim fails, its lock is released, and the refused drivers get the offer again.
func rowIsLockedByAStranger(t *testing.T, s *stage) {
	o := s.holdClaim(t, callOfClaim)
	stranger, err := o.db.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Rollback()
	if _, err := stranger.Exec("SELECT id FROM dispatches WHERE id = ? FOR UPDATE", o.id); err != nil {
		t.Fatal(err)
	}
	o.mustBeTaken(s.one, 1, false)
	o.mustBeTaken(s.two, 2, false)
	o.hold.Release()
	o.mustBeUnavailable(<-o.answered)
	if err := stranger.Rollback(); err != nil {
		t.Fatal(err)
	}
	o.nothingIsStored()
	o.mustBeOffered()
}

// An instance is stopped between its lock and its commit, and the lock ends. A driver at another instance wins. Resumed, the
// first neither wins nor removes the marker.
func instanceSleepsThroughItsLock(t *testing.T, s *stage) {
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

// The database stops answering. Wherever the claim waits, its driver gets a response before the database is back.
func TestTheDatabaseStopsAnswering(t *testing.T) {
	t.Parallel()
	// The claim has to come to the statement within this time, on a machine that stands still for seconds.
	s := newStage(t, mariaDB(t), claimTimeout+"=12s")
	for _, match := range []string{"FROM dispatches d JOIN", callOfClaim} {
		t.Run(match, func(t *testing.T) {
			o := s.holdClaim(t, match)
			s.proxy.Blackhole(true)
			o.hold.Release()
			o.mustBeUnavailable(testkit.Await(t, "an answer", o.answered))
			s.proxy.Blackhole(false)
			o.redis.Del(t.Context(), o.key)
			testkit.Eventually(t, "a driver wins", func() bool { return o.tap(s.one, 0).Won() })
		})
	}
}

package systemtest

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/servertest"
	"firsttap/testkit"
)

// stage is two instances over one database. The first one's connections to it can be broken.
type stage struct {
	one, two *Instance
	proxy    *servertest.Proxy // between instance one and the database
	b        *Database
	c        *redis.Client
}

// lasting is the setting of locks that do not end while a test goes on: it ends them itself.
const lasting = "FIRSTTAP_ACCEPT_LOCK_TTL=10m"

func newStage(t *testing.T, url string, settings ...string) *stage {
	t.Helper()
	redisURL := servertest.StartRedis(t).URL()
	settings = append([]string{"FIRSTTAP_REDIS_URL=" + redisURL, lasting}, settings...)
	s := &stage{b: OpenDatabase(t, url), c: redisAt(t, redisURL)}
	s.one, s.proxy = behindProxy(t, url, settings...)
	s.two = Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)
	return s
}

// held is a claim under way: drivers[0] has the lock, and the proxy holds instance one's next statement.
type held struct {
	*stage
	hold     *servertest.Hold
	drivers  []Driver
	id, key  string
	answered chan Response
}

func (s *stage) holdClaim(t *testing.T, match string, after ...string) *held {
	t.Helper()
	h := &held{stage: s, answered: make(chan Response, 1)}
	h.drivers = MakeDrivers(t, s.two, 3)
	h.id = MakeDispatch(t, s.two)
	h.key = "dispatch:lock:{" + h.id + "}"
	h.hold = s.proxy.Hold(match, after...)
	t.Cleanup(h.hold.Release)
	go func() { h.answered <- Accept(s.one, h.id, h.drivers[0], 1) }()
	testkit.Await(t, "the claim is being decided", h.hold.Reached())
	return h
}

// loseLock ends the lock as its expiry or a failover would.
func (h *held) loseLock(t *testing.T) {
	t.Helper()
	if n, err := h.c.Del(t.Context(), h.key).Result(); n != 1 || err != nil {
		t.Fatalf("%d locks to lose, %v", n, err)
	}
}

func (h *held) nothingStored(t *testing.T) {
	t.Helper()
	if n := h.b.Count("claims WHERE dispatch_id=?", h.id); n != 0 {
		t.Errorf("%d claims in the database", n)
	}
	if n := h.b.Count("events WHERE dispatch_id=? AND type='dispatch.accepted'", h.id); n != 0 {
		t.Errorf("%d acceptances in the database", n)
	}
	if n := h.b.Count("dispatches WHERE id=? AND accepted_by IS NULL AND claim_id IS NULL", h.id); n != 1 {
		t.Error("the dispatch is taken")
	}
}

// A claim is on its way to the database, and another change comes first.
func TestAClaimIsOvertaken(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		s := newStage(t, url)
		for name, test := range map[string]func(*testing.T, *stage){
			"the row has changed": rowHasChanged, "the version has moved": movesTheVersionItFinds,
			"the lock was lost": staleHolderLeavesTheKeyAlone, "the commit does not arrive": commitDoesNotArrive,
			"the row is locked": rowIsLockedByAStranger,
		} {
			t.Run(name, func(t *testing.T) { test(t, s) })
		}
	})
}

// The row's condition must notice changes since the rule decided. These rounds have no claim yet, so the claims' unique key
// cannot help.
func rowHasChanged(t *testing.T, s *stage) {
	changes := map[string]struct {
		do     func(t *testing.T, h *held)
		status int
		code   string
	}{
		// Like the backoffice's reopening and change of terms.
		"next round": {func(t *testing.T, h *held) {
			h.b.exec("UPDATE dispatches SET round = 2, version = version + 1 WHERE id = ?", h.id)
		}, 409, "OFFER_STALE"},
		"expired": {func(t *testing.T, h *held) {
			h.b.exec("UPDATE dispatches SET expires_at = opens_at + 1 WHERE id = ?", h.id)
		}, 410, "DISPATCH_EXPIRED"},
		"off duty": {func(t *testing.T, h *held) {
			if a := send("PUT", h.two.URL+"/v1/me/duty", h.drivers[0].Token, `{"on_duty":false}`); a.status != 200 {
				t.Fatal(a)
			}
		}, 403, "NOT_ELIGIBLE"},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			h := s.holdClaim(t, "UPDATE dispatches")
			change.do(t, h)
			h.hold.Release()
			if a := <-h.answered; a.status != change.status || a.Code != change.code {
				t.Errorf("the driver got %s", a)
			}
			h.nothingStored(t)
			if v := h.c.Get(t.Context(), h.key).Val(); v != "" {
				t.Errorf("the lock still says %q", v)
			}
		})
	}
}

// Two changes must not share a version: an admin's If-Match names one state.
func movesTheVersionItFinds(t *testing.T, s *stage) {
	h := s.holdClaim(t, "UPDATE dispatches")
	// Like reannouncing and extending: the round and the status stay.
	h.b.exec("UPDATE dispatches SET version = version + 1 WHERE id = ?", h.id)
	before := send("GET", h.two.URL+"/v1/admin/dispatches/"+h.id, AdminKey, "")
	h.hold.Release()
	if a := <-h.answered; !a.Won() {
		t.Fatal(a)
	}
	after := send("GET", h.two.URL+"/v1/admin/dispatches/"+h.id, AdminKey, "")
	if after.Version <= before.Version {
		t.Errorf("%s at version %d was %s at version %d", after.Status, after.Version, before.Status, before.Version)
	}
}

// A holder that has lost its lock neither marks nor releases the key: it belongs to another by now.
func staleHolderLeavesTheKeyAlone(t *testing.T, s *stage) {
	t.Run("that it would mark", func(t *testing.T) {
		h := s.holdClaim(t, "UPDATE dispatches")
		h.loseLock(t)
		const others = "claim:drv_00000000000000000000000000:1.clm_00000000000000000000000000"
		if err := h.c.Set(t.Context(), h.key, others, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		h.hold.Release()
		a := <-h.answered
		if !a.Won() {
			t.Fatal(a)
		}
		h.b.mustBeWonBy(h.id, 1, h.drivers[0].ID, a.Claim.ID)
		if v := h.c.Get(t.Context(), h.key).Val(); v != others {
			t.Errorf("the other's lock became %q", v)
		}
	})
	t.Run("that it would release", func(t *testing.T) {
		h := s.holdClaim(t, "UPDATE dispatches")
		h.loseLock(t)
		a := Accept(h.two, h.id, h.drivers[1], 1)
		if !a.Won() {
			t.Fatal(a)
		}
		h.proxy.CutAll()
		if late := <-h.answered; late.status != 503 {
			t.Errorf("the driver whose UPDATE was cut off got %s", late)
		}
		if v := h.c.Get(t.Context(), h.key).Val(); v != "taken:"+h.drivers[1].ID+":1" {
			t.Errorf("the winner's marker says %q", v)
		}
		if late := Accept(h.one, h.id, h.drivers[0], 1); late.Code != "ALREADY_TAKEN" || !*late.Final {
			t.Errorf("and then %s", late)
		}
		h.b.mustBeWonBy(h.id, 1, h.drivers[1].ID, a.Claim.ID)
	})
	t.Run("after losing the row", func(t *testing.T) {
		h := s.holdClaim(t, "UPDATE dispatches")
		h.loseLock(t)
		a := Accept(h.two, h.id, h.drivers[1], 1)
		if !a.Won() {
			t.Fatal(a)
		}
		h.hold.Release()
		if late := <-h.answered; late.Code != "ALREADY_TAKEN" || !*late.Final {
			t.Errorf("the stale holder got %s", late)
		}
		h.b.mustBeWonBy(h.id, 1, h.drivers[1].ID, a.Claim.ID)
	})
}

// A COMMIT that never arrives has committed nothing, and the driver may try again.
func commitDoesNotArrive(t *testing.T, s *stage) {
	h := s.holdClaim(t, "COMMIT", "UPDATE dispatches")
	h.proxy.CutAll()
	a := <-h.answered
	if a.status != 503 || a.Code != "CLAIM_UNAVAILABLE" || a.header.Get("Retry-After") == "" {
		t.Errorf("the driver got %s", a)
	}
	h.nothingStored(t)
	if again := Accept(h.one, h.id, h.drivers[0], 1); !again.Won() {
		t.Errorf("the retry: %s", again)
	}
	if log := h.one.log.String(); strings.Contains(log, "%!") {
		t.Errorf("the log has a broken format:\n%s", log)
	}
}

// The database stops answering. Wherever the claim waits, its driver gets a response before the database is back.
func TestTheDatabaseStopsAnswering(t *testing.T) {
	t.Parallel()
	s := newStage(t, mariaDB(t), QuickClaims) // the subject is how long the client waits
	for _, match := range []string{"FROM dispatches d JOIN", "UPDATE dispatches", "COMMIT"} {
		t.Run(match, func(t *testing.T) {
			h := s.holdClaim(t, match)
			h.proxy.Blackhole(true)
			h.hold.Release()
			if a := testkit.Await(t, "an answer", h.answered); a.status != 503 || a.Code != "CLAIM_UNAVAILABLE" {
				t.Errorf("the driver got %s", a)
			}
			h.proxy.Blackhole(false)
			h.c.Del(t.Context(), h.key)
			testkit.Eventually(t, "a driver wins", func() bool { return Accept(h.one, h.id, h.drivers[0], 1).Won() })
		})
	}
}

// Another transaction locks the row. The claim fails, its lock is released, and the refused drivers get the offer again.
func rowIsLockedByAStranger(t *testing.T, s *stage) {
	h := s.holdClaim(t, "UPDATE dispatches")
	stranger, err := h.b.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Rollback()
	if _, err := stranger.Exec("SELECT id FROM dispatches WHERE id = ? FOR UPDATE", h.id); err != nil {
		t.Fatal(err)
	}
	for k, i := range []*Instance{h.one, h.two} {
		if a := Accept(i, h.id, h.drivers[k+1], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
			t.Fatalf("while it is being decided: %s", a)
		}
	}
	h.hold.Release()
	if a := <-h.answered; a.status != 503 || a.Code != "CLAIM_UNAVAILABLE" {
		t.Errorf("the driver got %s", a)
	}
	if err := stranger.Rollback(); err != nil {
		t.Fatal(err)
	}
	h.nothingStored(t)
	testkit.Eventually(t, "the drivers get the offer again", func() bool { return h.b.reannounced(h.id) > 0 })
	a := Accept(h.two, h.id, h.drivers[1], 1)
	if !a.Won() {
		t.Fatal(a)
	}
	h.b.mustBeWonBy(h.id, 1, h.drivers[1].ID, a.Claim.ID)
	if n := h.b.reannounced(h.id); n != 1 {
		t.Errorf("announced again %d times", n)
	}
}

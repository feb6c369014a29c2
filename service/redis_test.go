package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
)

// shared is a database and a real Redis, with a raw client of it.
type shared struct {
	t testing.TB
	*place
	redis redis.UniversalClient
}

// testTimeout is longer than a busy machine delays a reply. Tests do not call the gate's Run, so a gate that has seen an outage stays
// unused.
const testTimeout = testkit.Patience

func newShared(t testing.TB) *shared {
	t.Helper()
	return sharedAt(t, servertest.RedisURL(t))
}

func sharedAt(t testing.TB, url string) *shared {
	t.Helper()
	client, err := redisclient.Dial(url, testTimeout)
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return &shared{t, newPlace(t), client}
}

func (s *shared) instance() *instance {
	return s.newInstance(lock.NewGate(s.redis, testTimeout, quiet, nil))
}

func (s *shared) set(id dispatch.ID, value string) {
	s.t.Helper()
	must(s.t, s.redis.Set(s.t.Context(), lockName(id), value, time.Minute).Err())
}

// key returns the value of the dispatch's key, "" for none, and fails the test if it has no TTL.
func (s *shared) key(id dispatch.ID) string {
	s.t.Helper()
	value, err := s.redis.Get(s.t.Context(), lockName(id)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	ttl, err := s.redis.PTTL(s.t.Context(), lockName(id)).Result()
	if err != nil || value != "" && (ttl <= 0 || ttl > markerTTL) {
		s.t.Errorf("%q ends in %s, %v", value, ttl, err)
	}
	return value
}

// mustHave fails the test unless the dispatch's key has the value, "" for none.
func (s *shared) mustHave(t testing.TB, id dispatch.ID, value string) {
	t.Helper()
	if got := s.key(id); got != value {
		t.Errorf("the key is %q, want %q", got, value)
	}
}

// next gives the driver the first round and opens the second, without the instances' knowledge.
func (s *shared) next(id dispatch.ID, had dispatch.DriverID) {
	s.t.Helper()
	silent := s.newInstance(nil)
	silent.mustWin(s.t, Tap{id, had, 1})
	must(s.t, errorOf(silent.work.Withdraw(s.t.Context(), had, id, 0, "")))
}

// TestRedisKeyDuringADecision follows the key's value through a decision, for each possible outcome.
func TestRedisKeyDuringADecision(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable, dispatch.ErrUnknown, dispatch.ErrDriverBusy} {
		s := newShared(t)
		i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
		i.claims.fail = fail
		release := i.hold(t, Tap{id, v, 1})
		during := s.key(id)
		if !strings.HasPrefix(during, "claim:"+string(v)+":") {
			t.Errorf("while it is being decided: %q", during)
		}
		if ttl := s.redis.PTTL(t.Context(), lockName(id)).Val(); ttl <= 0 || ttl > testkit.Patience {
			t.Errorf("the lock ends in %s", ttl)
		}
		mustBe(t, release(), fail)
		s.mustHave(t, id, map[error]string{nil: "taken:" + string(v) + ":1", dispatch.ErrUnknown: during}[fail])
	}
}

// TestLateMarkIsOwnerChecked: a process that was stopped for longer than its lock's TTL does not change the next owner's lock.
func TestLateMarkIsOwnerChecked(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable} {
		s := newShared(t)
		i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
		i.claims.fail = fail
		release := i.hold(t, Tap{id, v, 1})
		s.set(id, "claim:drv_next:1.clm_x")
		mustBe(t, release(), fail)
		s.mustHave(t, id, "claim:drv_next:1.clm_x")
	}
}

// TestRedisKeysThatRefuse: each value either refuses a tap or leaves the decision to the database.
func TestRedisKeysThatRefuse(t *testing.T) {
	s := newShared(t)
	v := s.drivers(1, func(v *dispatch.Driver) { v.VehicleClass = "45m" })[0]
	for _, c := range []struct {
		value  string
		round  int
		asks   bool // whether the database is asked
		final  bool
		opened int // the current round
	}{
		{value: "claim:drv_other:1.clm_x", round: 1},
		{value: "claim:drv_other:0.clm_x", round: 1},
		{value: "claim:drv_other:some-token", round: 1},
		{value: "claim:drv_other:1.clm_x", round: noRound},
		{value: "taken:drv_other:1", round: 1, final: true},
		{value: "taken:drv_other:2", round: 1, final: true},
		{value: "taken:drv_other:1", round: noRound}, // there may be a later one
		{value: "taken:drv_other:1", round: noRound, opened: 2},
		{value: "taken:drv_other:1", round: 2, asks: true, opened: 2},
		{value: "claim:drv_other:1.clm_x", round: 2, asks: true, opened: 2},
		{value: "claim:" + string(v) + ":1.clm_x", round: 1, asks: true}, // the driver's own earlier try
		{value: "taken:" + string(v) + ":1", round: 1, asks: true},
		{value: "garbage", round: 1, asks: true},
		{value: ":", round: 1, asks: true},
		{value: "taken", round: 1, asks: true},
		{value: "taken:drv_other:garbage", round: 1, asks: true},
		{value: "taken:drv_other:", round: 1, asks: true},
		{value: "taken::1", round: 1, asks: true},
		{value: "taken:drv_other:-1", round: 1, asks: true},
		{value: "lock:drv_other:1", round: 1, asks: true},
	} {
		i, id := s.instance(), s.dispatch()
		if c.opened == 2 {
			s.next(id, s.drivers(1)[0])
		}
		s.set(id, c.value)
		won, err := i.Accept(t.Context(), Tap{id, v, c.round})
		var taken *dispatch.TakenError
		switch asked := i.claims.claimed.Load() == 1; {
		case asked != c.asks:
			t.Errorf("%q, tap on %d: the database was asked: %v, %v", c.value, c.round, asked, err)
		case c.asks && (err != nil || !won.Dispatch.HeldBy(v)):
			t.Errorf("%q, tap on %d: %v", c.value, c.round, err)
		case !c.asks && (!errors.As(err, &taken) || taken.Final != c.final):
			t.Errorf("%q, tap on %d: %v, want refused, final %v", c.value, c.round, err, c.final)
		}
		s.mustHave(t, id, c.value)                                                             // still, as it belongs to another instance
		s.exec("UPDATE dispatches SET work_ends_at = work_starts_at WHERE accepted_by = ?", v) // or the driver is busy
	}
}

// TestWinnerIsNotRefusedByALaterLock: a winner taps again, but the key in Redis is another driver's, as after a claim that was decided
// without Redis. The database answers the tap.
func TestWinnerIsNotRefusedByALaterLock(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
	i.mustWin(t, Tap{id, v, 1})
	for _, value := range []string{"claim:drv_other:1.clm_x", "claim:drv_other:0.clm_x", "taken:drv_other:1"} {
		s.set(id, value)
		i.mustReplay(t, Tap{id, v, 1})
		i.mustReplay(t, Tap{id, v, noRound})
		s.mustHave(t, id, value)
	}
	s.set(id, "claim:drv_other:2.clm_x")
	i.mustRefuse(t, Tap{id, v, 2}, false) // the driver has another round
}

// TestMarkerIsRemembered: Redis is asked once about a committed claim.
func TestMarkerIsRemembered(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(2)
	s.set(id, "taken:drv_other:1")
	for range 3 {
		i.mustRefuse(t, Tap{id, v[0], 1}, true)
		s.redis.Del(t.Context(), lockName(id)) // now only the process remembers it
	}
	if i.claims.claimed.Load() != 0 || s.key(id) != "" {
		t.Errorf("asked %d times, and the key is %q", i.claims.claimed.Load(), s.key(id))
	}
}

// TestEndedDropsTheMarker: a withdrawal or a cancellation drops the claim's marker, and no later one.
func TestEndedDropsTheMarker(t *testing.T) {
	s := newShared(t)
	one, two := s.instance(), s.instance()
	id, v := s.dispatch(), s.drivers(3)
	one.mustWin(t, Tap{id, v[0], 1})
	must(t, errorOf(one.work.Withdraw(t.Context(), v[0], id, 0, "")))
	s.mustHave(t, id, "")
	two.mustWin(t, Tap{id, v[1], 2})
	one.markEnded(t.Context(), id, dispatch.Claim{Driver: v[0], Round: 1}) // an older claim, learned late
	s.mustHave(t, id, takenValue(v[1], 2))
	must(t, errorOf(one.backoffice.Cancel(t.Context(), id, s.stored(id).Version, "key_1", "RAIN")))
	s.mustHave(t, id, "")
	one.mustFail(t, Tap{id, v[2], 2}, dispatch.ErrCanceled)
}

// TestOtherInstanceDies: the dispatch is announced again after a claim at another instance refused a tap and ended without a
// decision.
func TestOtherInstanceDies(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
	i.claims.announced = make(chan int, 10)
	s.set(id, "claim:drv_other:1.clm_x")
	i.mustFail(t, Tap{id, v, 1}, dispatch.ErrAlreadyTaken)
	i.followUp(t.Context(), time.Now().Add(followUpRetry))
	if len(i.claims.announced) != 0 || i.memory.stillToFollow() != 1 {
		t.Error("announced, or given up, while the claim is under way")
	}
	s.redis.Del(t.Context(), lockName(id))
	i.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	if round := testkit.Await(t, "the announcement", i.claims.announced); round != 1 || i.memory.stillToFollow() != 0 {
		t.Errorf("announced in round %d, %d to follow up", round, i.memory.stillToFollow())
	}
	s.set(id, "claim:drv_other:1.clm_x")
	i.mustFail(t, Tap{id, v, 1}, dispatch.ErrAlreadyTaken)
	s.set(id, "taken:drv_other:1")
	i.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	if len(i.claims.announced) != 0 || i.memory.stillToFollow() != 0 {
		t.Error("a taken dispatch was announced or followed further")
	}
}

func TestWithoutRedis(t *testing.T) {
	r := servertest.StartRedis(t)
	s := sharedAt(t, r.URL())
	i, id, v := s.instance(), s.dispatch(), s.drivers(2)
	r.Kill()
	i.mustWin(t, Tap{id, v[0], 1})
	other := s.instance() // with an empty memory
	other.mustFail(t, Tap{id, v[1], 1}, dispatch.ErrAlreadyTaken)
	other.mustReplay(t, Tap{id, v[0], 1}) // a retry at the other instance
	must(t, errorOf(i.work.Withdraw(t.Context(), v[0], id, 0, "")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i.markEnded(ctx, id, dispatch.Claim{Driver: v[0], Round: 1}) // must neither hang nor panic
}

// TestOldMarkerDoesNotSilenceTheNextRound: a marker of an earlier round, which its instance could not drop, does not keep the
// next round from being announced again.
func TestOldMarkerDoesNotSilenceTheNextRound(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(3)
	s.next(id, v[0])
	s.set(id, takenValue(v[0], 1))
	i.claims.fail, i.claims.announced = dispatch.ErrUnavailable, make(chan int, 10)
	release := i.hold(t, Tap{id, v[1], 2})
	i.mustFail(t, Tap{id, v[2], 2}, dispatch.ErrAlreadyTaken)
	mustBe(t, release(), dispatch.ErrUnavailable)
	i.followUp(t.Context(), time.Now().Add(followUpRetry))
	if len(i.claims.announced) == 0 {
		t.Error("the marker of round 1 suppressed the announcement of round 2")
	}
}

// TestOldMarkerDoesNotSettleTheNextRound is the same for a late tap on the earlier round, which finds the old marker before
// the follow-up does.
func TestOldMarkerDoesNotSettleTheNextRound(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(3)
	s.next(id, v[0])
	s.set(id, takenValue(v[0], 1))
	i.memory.follow(offer{id, 2}, 0, false)
	i.mustFail(t, Tap{id, v[2], 1}, dispatch.ErrAlreadyTaken)
	if i.memory.stillToFollow() != 1 {
		t.Error("round 2 was to be followed up, and a tap on round 1 ended that")
	}
}

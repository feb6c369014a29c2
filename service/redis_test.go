package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/redisclient"
	"firsttap/servertest"
	"firsttap/testkit"
)

// instance is an acceptor of one of several processes, which share a database and a Redis.
type instance struct {
	*Acceptor
	claims *slow
}

// shared is a database and a real Redis, with a raw client of it.
type shared struct {
	t testing.TB
	*place
	redis redis.UniversalClient
}

const testTimeout = 2 * time.Second

func newShared(t testing.TB) *shared {
	t.Helper()
	return sharedAt(t, servertest.RedisURL(t))
}

func sharedAt(t testing.TB, url string) *shared {
	t.Helper()
	client, err := redisclient.Dial(url, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &shared{t, newPlace(t), client}
}

func (s *shared) instance() *instance {
	claims := &slow{ClaimStore: s.place}
	return &instance{NewAcceptor(AcceptorOptions{
		Claims: claims, Gate: lock.NewGate(s.redis, testTimeout, quiet, nil), LockTTL: 5 * time.Second, Log: quiet,
	}), claims}
}

func (s *shared) set(id dispatch.ID, value string) {
	s.t.Helper()
	if err := s.redis.Set(s.t.Context(), lockName(id), value, time.Minute).Err(); err != nil {
		s.t.Fatal(err)
	}
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

// next gives the driver the first round and opens the second, without the instances' knowledge.
func (s *shared) next(id dispatch.ID, had dispatch.DriverID) {
	s.t.Helper()
	silent := alone(s.place)
	if _, err := silent.Accept(s.t.Context(), Tap{id, had, 1}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := NewDriverService(DriverServiceOptions{Store: s.place, Acceptor: silent, Now: time.Now}).Withdraw(s.t.Context(), had, id, 0, ""); err != nil {
		s.t.Fatal(err)
	}
}

// TestRedisKeyDuringADecision follows the key's value through a decision, for each possible outcome.
func TestRedisKeyDuringADecision(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable, dispatch.ErrUnknown, dispatch.ErrDriverBusy} {
		s := newShared(t)
		i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
		i.claims.entered, i.claims.release, i.claims.fail = make(chan dispatch.DriverID, 1), make(chan struct{}), fail
		done := make(chan error, 1)
		go func() {
			_, err := i.Accept(t.Context(), Tap{id, v, 1})
			done <- err
		}()
		testkit.Await(t, "the claim", i.claims.entered)
		during := s.key(id)
		if !strings.HasPrefix(during, "claim:"+string(v)+":") {
			t.Errorf("while it is being decided: %q", during)
		}
		if ttl := s.redis.PTTL(t.Context(), lockName(id)).Val(); ttl <= 0 || ttl > 5*time.Second {
			t.Errorf("the lock ends in %s", ttl)
		}
		close(i.claims.release)
		if err := testkit.Await(t, "the answer", done); !errors.Is(err, fail) {
			t.Fatal(err)
		}
		want := map[error]string{nil: "taken:" + string(v) + ":1", dispatch.ErrUnknown: during}[fail]
		if got := s.key(id); got != want {
			t.Errorf("after %v: %q, want %q", fail, got, want)
		}
	}
}

// TestLateMarkIsOwnerChecked: a process that was stopped for longer than its lock's TTL does not change the next owner's lock.
func TestLateMarkIsOwnerChecked(t *testing.T) {
	for _, fail := range []error{nil, dispatch.ErrUnavailable} {
		s := newShared(t)
		i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
		i.claims.entered, i.claims.release, i.claims.fail = make(chan dispatch.DriverID, 1), make(chan struct{}), fail
		done := make(chan error, 1)
		go func() {
			_, err := i.Accept(t.Context(), Tap{id, v, 1})
			done <- err
		}()
		testkit.Await(t, "the claim", i.claims.entered)
		s.set(id, "claim:drv_next:1.clm_x")
		close(i.claims.release)
		testkit.Await(t, "the answer", done)
		if got := s.key(id); got != "claim:drv_next:1.clm_x" {
			t.Errorf("after %v the next one's lock is %q", fail, got)
		}
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
		if got := s.key(id); got != c.value {
			t.Errorf("%q became %q: the key belongs to another instance", c.value, got)
		}
		if _, err := s.raw.ExecContext(t.Context(), "UPDATE dispatches SET work_ends_at = work_starts_at WHERE accepted_by = ?", v); err != nil {
			t.Fatal(err) // or the driver is busy
		}
	}
}

// TestMarkerIsRemembered: Redis is asked once about a committed claim.
func TestMarkerIsRemembered(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(2)
	s.set(id, "taken:drv_other:1")
	for range 3 {
		var taken *dispatch.TakenError
		if _, err := i.Accept(t.Context(), Tap{id, v[0], 1}); !errors.As(err, &taken) || !taken.Final {
			t.Fatal(err)
		}
		s.redis.Del(t.Context(), lockName(id)) // now only the process remembers it
	}
	if i.claims.claimed.Load() != 0 || s.key(id) != "" {
		t.Errorf("asked %d times, and the key is %q", i.claims.claimed.Load(), s.key(id))
	}
}

func TestTwoInstances(t *testing.T) {
	s := newShared(t)
	instances := []*instance{s.instance(), s.instance()}
	for range 10 {
		id, v := s.dispatch(), s.drivers(30)
		won := make([]bool, len(v))
		testkit.Together(len(v), func(i int) {
			a, err := instances[i%2].Accept(t.Context(), Tap{id, v[i], 1})
			if won[i] = err == nil && a.Dispatch.HeldBy(v[i]); !won[i] && !errors.Is(err, dispatch.ErrAlreadyTaken) {
				t.Error(err)
			}
		})
		holder, winners := s.holder(id), 0
		for i := range v {
			if won[i] {
				winners++
				if v[i] != holder {
					t.Errorf("%s won, %s is stored", v[i], holder)
				}
			}
		}
		if winners != 1 || s.key(id) != takenValue(holder, 1) {
			t.Errorf("%d winners, the key is %q", winners, s.key(id))
		}
	}
}

// TestEndedDropsTheMarker: a withdrawal or a cancellation drops the claim's marker, and no later one.
func TestEndedDropsTheMarker(t *testing.T) {
	s := newShared(t)
	one, two := s.instance(), s.instance()
	id, v := s.dispatch(), s.drivers(3)
	work, backoffice := NewDriverService(DriverServiceOptions{Store: s.place, Acceptor: one.Acceptor, Now: time.Now}), NewBackoffice(s.place, one.Acceptor)
	if _, err := one.Accept(t.Context(), Tap{id, v[0], 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Withdraw(t.Context(), v[0], id, 0, ""); err != nil || s.key(id) != "" {
		t.Fatalf("%v, the key is %q", err, s.key(id))
	}
	if _, err := two.Accept(t.Context(), Tap{id, v[1], 2}); err != nil {
		t.Fatal(err)
	}
	one.markEnded(t.Context(), id, dispatch.Claim{Driver: v[0], Round: 1}) // an older claim, learned late
	if got := s.key(id); got != takenValue(v[1], 2) {
		t.Errorf("the key is %q", got)
	}
	d, err := s.Dispatch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backoffice.Cancel(t.Context(), id, d.Version, "key_1", "RAIN"); err != nil || s.key(id) != "" {
		t.Errorf("%v, the key is %q", err, s.key(id))
	}
	if _, err := one.Accept(t.Context(), Tap{id, v[2], 2}); !errors.Is(err, dispatch.ErrCanceled) {
		t.Errorf("a tap after the cancellation: %v", err)
	}
}

// TestOtherInstanceDies: the dispatch is announced again after a claim at another instance refused a tap and ended without a
// decision.
func TestOtherInstanceDies(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(1)[0]
	i.claims.announced = make(chan int, 10)
	s.set(id, "claim:drv_other:1.clm_x")
	if _, err := i.Accept(t.Context(), Tap{id, v, 1}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Fatal(err)
	}
	i.reannouncer.checkDue(t.Context(), time.Now().Add(followUpRetry))
	if len(i.claims.announced) != 0 || len(i.reannouncer.open) != 1 {
		t.Error("announced, or given up, while the claim is under way")
	}
	s.redis.Del(t.Context(), lockName(id))
	i.reannouncer.checkDue(t.Context(), time.Now().Add(2*followUpRetry))
	if round := testkit.Await(t, "the announcement", i.claims.announced); round != 1 || len(i.reannouncer.open) != 0 {
		t.Errorf("announced in round %d, open %v", round, i.reannouncer.open)
	}
	s.set(id, "claim:drv_other:1.clm_x")
	if _, err := i.Accept(t.Context(), Tap{id, v, 1}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Fatal(err)
	}
	s.set(id, "taken:drv_other:1")
	i.reannouncer.checkDue(t.Context(), time.Now().Add(2*followUpRetry))
	if len(i.claims.announced) != 0 || len(i.reannouncer.open) != 0 {
		t.Error("a taken dispatch was announced or followed further")
	}
}

func TestWithoutRedis(t *testing.T) {
	r := servertest.StartRedis(t)
	s := sharedAt(t, r.URL())
	i, id, v := s.instance(), s.dispatch(), s.drivers(2)
	r.Kill()
	if won, err := i.Accept(t.Context(), Tap{id, v[0], 1}); err != nil || won.Replayed {
		t.Errorf("%+v, %v", won, err)
	}
	other := s.instance() // with an empty memory
	if _, err := other.Accept(t.Context(), Tap{id, v[1], 1}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Error(err)
	}
	if won, err := other.Accept(t.Context(), Tap{id, v[0], 1}); err != nil || !won.Replayed {
		t.Errorf("a retry at the other instance: %+v, %v", won, err)
	}
	if _, err := NewDriverService(DriverServiceOptions{Store: s.place, Acceptor: i.Acceptor, Now: time.Now}).Withdraw(t.Context(), v[0], id, 0, ""); err != nil {
		t.Errorf("withdraw: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i.markEnded(ctx, id, dispatch.Claim{Driver: v[0], Round: 1}) // must neither hang nor panic
}

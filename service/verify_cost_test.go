package service

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// TestARaceIsNotVerified: the taps that a claim refuses within verifyAfter, such as those of a race, cause no verification.
func TestARaceIsNotVerified(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		id := r.d.ID
		a.mustWin(t, Tap{id, ann, 1})
		refused := func() {
			testkit.Together(30, func(k int) { a.mustRefuse(t, Tap{id, dispatch.DriverID(fmt.Sprint("drv_", k)), 1}, true) })
		}
		refused()
		pass(verifyAfter - time.Nanosecond)
		refused()
		if len(a.memory.doubts) != 0 {
			t.Errorf("to be verified: %v", a.memory.doubts)
		}
		pass(time.Nanosecond)
		refused()
		if len(a.memory.doubts) != 1 || claims.claimed.Load() != 1 {
			t.Errorf("to be verified after %s: %v; the database was asked %d times", verifyAfter, a.memory.doubts, claims.claimed.Load())
		}
	})
}

// TestNoFalseAlarm: no check misses a claim during concurrent claims, unassignments and cancellations at two instances, though
// every claim is verified all the time.
func TestNoFalseAlarm(t *testing.T) {
	s := newShared(t)
	instances := []*verified{s.verified(), s.verified()}
	drivers := s.drivers(8)
	stop := testkit.Run(t, func(ctx context.Context) {
		testkit.Together(len(instances), func(k int) {
			for i := instances[k]; ctx.Err() == nil; {
				i.memory.doubtAll()
				i.verify(ctx, time.Now().Add(reverifyAfter))
				if missed := i.missed(); len(missed) > 0 {
					t.Errorf("missed: %+v", missed)
				}
			}
		})
	})
	for range testkit.Scale(2, 5) {
		id := s.dispatch()
		testkit.Together(len(drivers), func(k int) {
			i := instances[k%2]
			for range 6 {
				d, err := s.Dispatch(t.Context(), id)
				mustBe(t, err, nil)
				if won, err := i.Accept(t.Context(), Tap{id, drivers[k], d.Round}); err == nil && !won.Replayed {
					mustBe(t, errorOf(i.backoffice.Unassign(t.Context(), id, won.Dispatch.Version, "key_1", "")), nil)
				}
			}
		})
		must(t, errorOf(instances[0].backoffice.Cancel(t.Context(), id, s.stored(id).Version, "key_1", "")))
	}
	stop()
	rounds := s.count("claims")
	for n, i := range instances {
		if i.LostClaims() != 0 || strings.Contains(i.logged.String(), "ALERT") {
			t.Errorf("instance %d: %d lost claims, logged %s", n, i.LostClaims(), i.logged)
		}
		t.Logf("instance %d: %d checks, %d claims, none missed", n, i.checks.asked.Load(), rounds)
	}
}

// missed are the claims that a check has not found.
func (v *verified) missed() (all []claimKey) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	for key, pending := range v.memory.doubts {
		if pending.said == missing {
			all = append(all, key)
		}
	}
	return all
}

// TestDatabaseCanNotBeAsked: verifications stay in the queue, for verifyMaxAge at most.
func TestDatabaseCanNotBeAsked(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	i.mustWin(t, Tap{id, v[0], 1})
	i.doubt(t, Tap{id, v[1], 1})
	i.checks.fail = dispatch.ErrUnavailable
	for range 5 {
		i.twice(t)
	}
	if len(i.memory.doubts) != 1 || i.LostClaims() != 0 || len(i.missed()) != 0 {
		t.Errorf("%d lost claims, doubts %v", i.LostClaims(), i.memory.doubts)
	}
	i.verify(t.Context(), time.Now().Add(verifyMaxAge+time.Minute))
	if len(i.memory.doubts) != 0 {
		t.Error("a verification is kept for ever")
	}
}

// TestStopIsNoFailureOfTheDatabase: a check that the end of the process cancels logs no warning.
func TestStopIsNoFailureOfTheDatabase(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	i.mustWin(t, Tap{id, v[0], 1})
	i.doubt(t, Tap{id, v[1], 1})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	i.verify(ctx, time.Now())
	if i.checks.asked.Load() != 1 || i.logged.Len() > 0 {
		t.Errorf("%d checks, logged %s", i.checks.asked.Load(), i.logged)
	}
	i.check(t)
	if n := i.checks.asked.Load(); n != 2 {
		t.Errorf("%d queries: the taps of the stopped verification are not verified again", n)
	}
	i.check(t)
	i.mustHaveLost(t, 0)
}

func TestVerifierIsBounded(t *testing.T) {
	s := newShared(t)
	i := s.verified()
	now := time.Now()
	for k := range maxDoubts + 100 {
		i.memory.doubt(dispatch.NewID(time.UnixMicro(int64(k))), holder{ann, 1}, now)
	}
	if n := len(i.memory.doubts); n != maxDoubts {
		t.Errorf("%d doubts, want %d", n, maxDoubts)
	}
	i.verify(t.Context(), now)
	if n := i.checks.ids.Load(); n != verifyBatch {
		t.Errorf("a check at %d dispatches, want %d", n, verifyBatch)
	}
}

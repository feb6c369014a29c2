package service

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// TestAssignedIsTakenAtOnce: taps after the assignment are refused without a query, here and at other instances.
func TestAssignedIsTakenAtOnce(t *testing.T) {
	s := newShared(t)
	one, two := s.instance(), s.instance()
	id, v := s.dispatch(), s.drivers(3)
	d, err := one.backoffice.Assign(t.Context(), id, 1, v[0], "key_1")
	if err != nil || !d.HeldBy(v[0]) || s.key(id) != takenValue(v[0], 1) {
		t.Fatalf("%+v, %v, the key is %q", d, err, s.key(id))
	}
	for i, on := range []*instance{one, two} {
		on.mustRefuse(t, Tap{id, v[1+i], 1}, true)
		if n := on.claims.claimed.Load(); n != 0 {
			t.Errorf("instance %d asked the database %d times", i+1, n)
		}
	}
	s.redis.Del(t.Context(), lockName(id)) // this instance remembers it
	one.mustRefuse(t, Tap{id, v[1], 1}, true)
	if one.claims.claimed.Load() != 0 {
		t.Error("the instance forgot")
	}
	two.mustReplay(t, Tap{id, v[0], 1}) // the driver's own tap
}

// TestAssignmentAndTheKey: the effect of an assignment on each value of the Redis key.
func TestAssignmentAndTheKey(t *testing.T) {
	s := newShared(t)
	for _, c := range []struct {
		stands string
		round  int
		want   string // "" for the marker of the assignment
	}{
		{stands: "claim:drv_other:1.clm_x", round: 1, want: "claim:drv_other:1.clm_x"}, // the claim marks the key itself, or its lock expires
		{stands: "taken:drv_other:1", round: 2},
		{stands: "taken:drv_other:3", round: 2, want: "taken:drv_other:3"},
		{stands: "garbage", round: 1, want: "garbage"},
	} {
		i, id, v := s.instance(), s.dispatch(), s.drivers(2)
		version := 1
		if c.round == 2 {
			s.next(id, v[0])
			version = 3
		}
		s.set(id, c.stands)
		must(t, errorOf(i.backoffice.Assign(t.Context(), id, version, v[1], "key_1")))
		if c.want == "" {
			c.want = takenValue(v[1], c.round)
		}
		s.mustHave(t, id, c.want)
	}
}

// TestAssignAmongTapsOfInstances: of concurrent taps and assignments at two instances one wins, and all others are refused.
func TestAssignAmongTapsOfInstances(t *testing.T) {
	s := newShared(t)
	instances := []*instance{s.instance(), s.instance()}
	for range 10 {
		id, v := s.dispatch(), s.drivers(16)
		var winners atomic.Int32
		testkit.Together(len(v), func(i int) {
			on := instances[i%2]
			var err error
			if i < 4 {
				_, err = on.backoffice.Assign(t.Context(), id, 1, v[i], "key_1")
			} else {
				_, err = on.Accept(t.Context(), Tap{id, v[i], 1})
			}
			switch {
			case err == nil:
				winners.Add(1)
			case i < 4 && !errors.Is(err, dispatch.ErrVersionConflict), i >= 4 && !errors.Is(err, dispatch.ErrAlreadyTaken):
				t.Errorf("%d: %v", i, err)
			}
		})
		if n := winners.Load(); n != 1 {
			t.Errorf("%d winners", n)
		}
		s.mustCount(1, "claims WHERE dispatch_id = ?", id)
		for _, on := range instances {
			on.mustRefuse(t, Tap{id, s.drivers(1)[0], 1}, true)
		}
	}
}

// TestUnassignedIsOpenAtOnce: the next round is open, whatever both instances remember of the last.
func TestUnassignedIsOpenAtOnce(t *testing.T) {
	s := newShared(t)
	one, two := s.instance(), s.instance()
	id, v := s.dispatch(), s.drivers(3)
	one.mustWin(t, Tap{id, v[0], 1})
	two.mustRefuse(t, Tap{id, v[1], 1}, true) // which the second instance remembers
	if _, err := one.backoffice.Unassign(t.Context(), id, 1, "key_1", ""); !errors.Is(err, dispatch.ErrVersionConflict) || s.key(id) == "" {
		t.Fatalf("%v, the key is %q", err, s.key(id))
	}
	d, err := one.backoffice.Unassign(t.Context(), id, 2, "key_1", "ILL")
	if err != nil || d.Status != dispatch.Pending || d.Round != 2 || s.key(id) != "" {
		t.Fatalf("%+v, %v, the key is %q", d, err, s.key(id))
	}
	one.mustFail(t, Tap{id, v[0], noRound}, dispatch.ErrOfferStale) // the late retry of the claim that ended
	two.mustWin(t, Tap{id, v[1], 2})
}

func TestAssignWithoutRedis(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(3)
	if d, err := s.backoffice.Assign(t.Context(), id, 1, v[0], "key_1"); err != nil || !d.HeldBy(v[0]) {
		t.Fatalf("%+v, %v", d, err)
	}
	s.mustRefuse(t, Tap{id, v[1], 1}, true)
	mustBe(t, errorOf(s.backoffice.Assign(t.Context(), id, 2, v[1], "key_1")), dispatch.ErrAlreadyTaken) // to another
	if r, err := s.work.Receipt(t.Context(), v[0], id); err != nil || r.Outcome != dispatch.OutcomeWon {
		t.Errorf("the driver's receipt: %+v, %v", r, err)
	}
	must(t, errorOf(s.backoffice.Unassign(t.Context(), id, 2, "key_1", "ILL")))
	if r, err := s.work.Receipt(t.Context(), v[0], id); err != nil || r.Outcome != dispatch.OutcomeUnassigned || r.Round != 1 {
		t.Errorf("the driver's receipt: %+v, %v", r, err)
	}
	mustBe(t, errorOf(s.work.Withdraw(t.Context(), v[0], id, 0, "")), dispatch.ErrNotHolder)
}

// TestAssignmentEndsTheFollowUp: a driver has the dispatch, so it is not announced again.
func TestAssignmentEndsTheFollowUp(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(2)
	s.memory.follow(offer{id, 1}, 0, false)
	must(t, errorOf(s.backoffice.Assign(t.Context(), id, 1, v[0], "key_1")))
	if s.memory.stillToFollow() != 0 {
		t.Error("it is still followed up")
	}
}

func TestPreview(t *testing.T) {
	s := newSite(t)
	s.drivers(2)
	s.drivers(3, onDuty(false))
	o := anOrder()
	p, err := s.backoffice.Preview(t.Context(), o)
	if err != nil || p.Eligible != 2 || p.NotEligible != 3 || p.Reasons[dispatch.OffDuty] != 3 || p.Reachable != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	s.mustCount(0, "dispatches")
	o.ExpiresAt = new(time.Now().Add(-time.Minute))
	mustBe(t, errorOf(s.backoffice.Preview(t.Context(), o)), dispatch.ErrWindow) // of an order that can't be made
}

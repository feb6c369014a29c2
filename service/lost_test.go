package service

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/lock"
)

// readsOnly is a store whose writes get no answer, as after a failover, and which has lost every claim.
type readsOnly struct{ *row }

func (readsOnly) Reannounce(ctx context.Context, _ dispatch.ID, _ int, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, dispatch.ErrUnavailable
}

func (readsOnly) Holders(context.Context, []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	return nil, nil
}

// TestLostClaimsAreFoundBesideSlowAnnouncements: verification does not wait for announcements, of which each waits for the database.
func TestLostClaimsAreFoundBesideSlowAnnouncements(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		a := alone(readsOnly{newRow()})
		for range 100 {
			a.memory.follow(offer{dispatch.NewID(time.Now()), 1}, 0, false)
		}
		a.memory.doubt(aJob, holder{ann, 1}, time.Now())
		testkit.Run(t, a.Run)
		pass(2 * verifyInterval)
		if a.LostClaims() != 1 {
			t.Error("the lost claim is not found yet")
		}
	})
}

// TestVerifiedOnceASecond: claims are verified by one statement a second, which is about all that have become due.
func TestVerifiedOnceASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *row, claims *intercepted, a *Acceptor) {
		asked := &checks{ClaimStore: claims}
		a.claims = asked
		testkit.Run(t, a.Run)
		for range 50 {
			a.memory.doubt(dispatch.NewID(time.Now()), holder{ann, 1}, time.Now())
			pass(100 * time.Millisecond)
		}
		if n, about := asked.asked.Load(), asked.ids.Load(); n < 4 || n > 5 || about < 10 {
			t.Errorf("asked %d times in five seconds, the last time about %d dispatches", n, about)
		}
	})
}

// aGate is a gate whose releases a test observes.
type aGate struct {
	Gate
	releasing func() error
}

func (g *aGate) Release(ctx context.Context, name, owner string) error {
	if err := g.releasing(); err != nil {
		return err
	}
	return g.Gate.Release(ctx, name, owner)
}

// TestOneAlert: a lost claim is alerted to once, also if taps meet its marker while that is removed, and if it can't be removed.
func TestOneAlert(t *testing.T) {
	for name, fail := range map[string]error{"a tap meets the marker": nil, "Redis is away": lock.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			i, id, v := s.verified(), s.dispatch(), s.drivers(2)
			i.mustWin(t, Tap{id, v[0], 1})
			s.lose(id)
			i.doubt(t, Tap{id, v[1], 1})
			i.gate = &aGate{i.gate, func() error {
				i.mustRefuse(t, Tap{id, v[1], 1}, true)
				return fail
			}}
			for range 3 {
				i.old(id)
				i.twice(t)
			}
			i.mustHaveLost(t, 1)
			testkit.Await(t, "the announcement", i.claims.announced)
		})
	}
}

// TestALostClaimsMarkerProvesNothing: the dispatch of a lost claim is announced although its marker stays, and although a driver is refused
// by it while the database is away.
func TestALostClaimsMarkerProvesNothing(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	i.mustWin(t, Tap{id, v[0], 1})
	s.lose(id)
	i.memory.follow(offer{id, 1}, 0, true)
	due, _ := i.memory.dueFollowUps(time.Now())
	i.memory.follow(offer{id, 1}, 0, false) // meanwhile
	i.memory.followAgain(offer{id, 1}, due[offer{id, 1}], 0)
	i.memory.learn(id, holder{v[0], 1}, false) // from the marker
	i.followUp(t.Context(), time.Now().Add(time.Second))
	s.mustHave(t, id, takenValue(v[0], 1))
	testkit.Await(t, "the announcement", i.claims.announced)
	s.mustAnnounceAgain(id, 1)
}

// TestMarkerDoesNotReplaceAKnownClaim: of a marker and a claim that the database has said, the marker is verified.
func TestMarkerDoesNotReplaceAKnownClaim(t *testing.T) {
	m := newMemory()
	m.learn(aJob, holder{ann, 1}, true)
	m.learn(aJob, holder{bob, 1}, false)
	if known, _ := m.taken.Peek(aJob); known.driver != ann {
		t.Errorf("known is %s", known.driver)
	}
	if _, ok := m.doubts[claimKey{aJob, holder{bob, 1}}]; !ok || len(m.doubts) != 1 {
		t.Errorf("to be verified: %v", m.doubts)
	}
	m.learn(aJob, holder{cyd, 1}, true)
	if _, ok := m.doubts[claimKey{aJob, holder{ann, 1}}]; !ok {
		t.Errorf("the claim that the database contradicts is not verified: %v", m.doubts)
	}
}

// TestAClaimEndsTheFollowUps: a driver has the round, so nobody who was refused in it, with or without its number, is told.
func TestAClaimEndsTheFollowUps(t *testing.T) {
	a := alone(newRow())
	for _, round := range []int{1, 2, noRound} {
		a.memory.follow(offer{aJob, round}, time.Hour, false)
	}
	a.memory.learn(aJob, holder{ann, 1}, true)
	if !a.memory.followUps.Contains(offer{aJob, 2}) || a.memory.stillToFollow() != 1 {
		t.Errorf("%d are followed up, want round 2 alone", a.memory.stillToFollow())
	}
}

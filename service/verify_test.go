//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// checks counts the verifier's checks, and fails them on demand.
type checks struct {
	ClaimStore
	asked atomic.Int32
	ids   atomic.Int32 // of the last check
	fail  error
}

func (l *checks) Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	l.asked.Add(1)
	l.ids.Store(int32(len(ids)))
	if l.fail != nil {
		return nil, l.fail
	}
	return l.ClaimStore.Holders(ctx, ids)
}

// verified is an instance that verifies on demand, with its log.
type verified struct {
	*instance
	checks *checks
	logged *bytes.Buffer
	clock  time.Time // of the checks, ahead of the taps' clock
}

func (s *shared) verified() *verified {
	v := &verified{instance: s.instance(), logged: &bytes.Buffer{}, clock: time.Now()}
	v.claims.announced = make(chan int, 100)
	v.checks = &checks{ClaimStore: v.claims}
	v.Acceptor.claims = v.checks
	v.log = slog.New(slog.NewTextHandler(v.logged, nil))
	return v
}

// check verifies, at a time when everything is due, and follows up, as Run does.
func (v *verified) check(t testing.TB) {
	t.Helper()
	v.clock = v.clock.Add(10 * reverifyAfter)
	v.verify(t.Context(), v.clock)
	v.followUp(t.Context(), time.Now())
}

func (v *verified) twice(t testing.TB) {
	t.Helper()
	v.check(t)
	v.check(t)
}

// old makes the instance verify its knowledge of the dispatch with the next tap.
func (v *verified) old(id dispatch.ID) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	if f, ok := v.memory.taken.Peek(id); ok {
		f.doubtAt = time.Time{}
		v.memory.taken.Add(id, f)
	}
}

// doubt makes the instance refuse the tap, as it knows the dispatch as taken, and verify that at its next check.
func (v *verified) doubt(t testing.TB, tap Tap) {
	t.Helper()
	v.old(tap.Dispatch)
	v.mustRefuse(t, tap, true)
}

// mustHaveLost fails the test unless the instance has counted n lost claims, and has logged every one of texts.
func (v *verified) mustHaveLost(t testing.TB, n int64, texts ...string) {
	t.Helper()
	if got := v.LostClaims(); got != n {
		t.Errorf("%d lost claims, want %d", got, n)
	}
	for _, text := range texts {
		if !strings.Contains(v.logged.String(), text) {
			t.Errorf("%s is not in the log:\n%s", text, v.logged)
		}
	}
}

// mustBeDone fails the test if the instance still has something to verify, or an announcement that nobody has awaited.
func (v *verified) mustBeDone(t testing.TB) {
	t.Helper()
	if len(v.memory.doubts) != 0 || len(v.claims.announced) != 0 {
		t.Errorf("to be verified: %v; announced %d times too often", v.memory.doubts, len(v.claims.announced))
	}
}

// lose deletes the dispatch's claim, as a failover to a server that had not replicated it does.
func (p *place) lose(id dispatch.ID) {
	p.t.Helper()
	for _, statement := range []string{
		"UPDATE dispatches SET status = 'PENDING', claim_id = NULL, accepted_by = NULL, accepted_at = NULL, version = version - 1 WHERE id = ?",
		"DELETE FROM claims WHERE dispatch_id = ? AND outcome = 'WON'",
		"DELETE FROM events WHERE dispatch_id = ? AND type = 'dispatch.accepted'",
	} {
		p.exec(statement, id)
	}
}

// TestLostClaim: a lost claim refuses taps until the second check at most, in the process that made it and in one that knows it
// by its marker. The operator is alerted, and the dispatch announced again.
func TestLostClaim(t *testing.T) {
	for _, where := range []string{"its own", "another's"} {
		t.Run(where, func(t *testing.T) {
			s := newShared(t)
			one, id, v := s.verified(), s.dispatch(), s.drivers(3)
			one.mustWin(t, Tap{id, v[0], 1})
			i := one
			if where == "another's" {
				i = s.verified()
			}
			s.lose(id)
			i.doubt(t, Tap{id, v[1], 1})
			i.check(t)
			if i.LostClaims() != 0 || s.key(id) == "" {
				t.Fatal("one check is enough for an alert")
			}
			i.check(t)
			i.mustHaveLost(t, 1, "level=ERROR", `msg="ALERT: the database has lost a committed claim`, "dispatch="+string(id), "round=1",
				"driver="+string(v[0]), `database_says="no driver holds the dispatch, which is PENDING"`, "FirstTap announces the dispatch again")
			s.mustHave(t, id, "")
			if round := testkit.Await(t, "the announcement", i.claims.announced); round != 1 {
				t.Errorf("announced in round %d", round)
			}
			i.mustWin(t, Tap{id, v[1], 1})
			i.mustRefuse(t, Tap{id, v[2], 1}, true)
			i.twice(t)
			i.mustHaveLost(t, 1)
			i.mustBeDone(t)
		})
	}
}

// TestLostClaimsAreFoundWithoutATap: a claim that fails in the database, and a lost claim, make the process verify all the
// claims that it knows.
func TestLostClaimsAreFoundWithoutATap(t *testing.T) {
	s := newShared(t)
	i, v := s.verified(), s.drivers(2)
	var lost, kept []dispatch.ID
	for range 3 {
		for _, list := range []*[]dispatch.ID{&lost, &kept} {
			id := s.dispatch()
			i.mustWin(t, Tap{id, v[0], 1})
			s.free(id)
			*list = append(*list, id)
		}
	}
	for _, id := range lost {
		s.lose(id)
	}
	i.twice(t)
	if i.checks.asked.Load() != 0 {
		t.Fatal("the database is asked for no reason")
	}
	i.claims.fail = dispatch.ErrUnavailable
	i.mustFail(t, Tap{s.dispatch(), v[1], 1}, dispatch.ErrUnavailable)
	i.claims.fail = nil
	i.twice(t)
	i.mustHaveLost(t, int64(len(lost)))
	if n := i.checks.asked.Load(); n != 2 {
		t.Errorf("%d checks, want 2", n)
	}
	for _, id := range lost {
		s.mustHave(t, id, "")
		testkit.Await(t, "the announcement", i.claims.announced)
	}
	for _, id := range kept {
		s.mustHave(t, id, takenValue(v[0], 1))
		i.mustRefuse(t, Tap{id, v[1], 1}, true)
	}
	// The lost claims have the rest verified once more, and then it stops.
	i.twice(t)
	asked := i.checks.asked.Load()
	i.twice(t)
	if i.checks.asked.Load() != asked || i.LostClaims() != int64(len(lost)) || len(i.claims.announced) != 0 {
		t.Errorf("it goes on: %d checks, %d lost claims", i.checks.asked.Load(), i.LostClaims())
	}
}

// TestAlertNamesBothDrivers: the alert of a round that was won again names both drivers, and the dispatch is not announced.
func TestAlertNamesBothDrivers(t *testing.T) {
	for name, isKnown := range map[string]bool{"by the instance's own claim": true, "by the marker alone": false} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			i, id, v := s.verified(), s.dispatch(), s.drivers(3)
			i.mustWin(t, Tap{id, v[0], 1})
			s.lose(id)
			if !isKnown {
				i.memory.forget(id, holder{v[0], 1})
			}
			must(t, errorOf(i.backoffice.Assign(t.Context(), id, s.stored(id).Version, v[1], "key_1")))
			i.twice(t)
			i.mustHaveLost(t, 1, "driver "+string(v[1])+" holds the dispatch", "driver="+string(v[0]))
			if got := s.key(id); got == takenValue(v[0], 1) {
				t.Error("the marker of the lost claim is still there")
			}
			if len(i.claims.announced) != 0 {
				t.Error("announced as open")
			}
			i.mustRefuse(t, Tap{id, v[2], 1}, true)
		})
	}
}

// TestLostDispatch: a dispatch may be lost with its claim.
func TestLostDispatch(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	i.mustWin(t, Tap{id, v[0], 1})
	s.lose(id)
	for _, statement := range []string{"DELETE FROM events", "DELETE FROM dispatches"} {
		s.exec(statement)
	}
	i.doubt(t, Tap{id, v[1], 1})
	i.twice(t)
	i.mustHaveLost(t, 1, "the dispatch does not exist")
	if len(i.memory.doubts) != 0 {
		t.Errorf("to be verified: %v", i.memory.doubts)
	}
	i.mustFail(t, Tap{id, v[1], 1}, dispatch.ErrNotFound)
}

// TestMarkerOutlivesItsClaim: a marker that nobody has removed when its claim ended refuses taps without a round until the second check.
// Then the drivers hear of the dispatch again.
func TestMarkerOutlivesItsClaim(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(3)
	s.next(id, v[0])
	s.set(id, takenValue(v[0], 1))
	i.mustRefuse(t, Tap{id, v[1], noRound}, false)
	i.check(t)
	s.mustHave(t, id, takenValue(v[0], 1)) // the instance that ended the claim may be about to remove it
	i.check(t)
	s.mustHave(t, id, "")
	i.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	testkit.Equal(t, "the round that is announced", 2, testkit.Await(t, "the announcement", i.claims.announced))
	i.mustHaveLost(t, 0)

	i.memory.doubt(id, holder{v[0], 1}, time.Now()) // as a late tap on round 1 does: there is no marker any more
	i.twice(t)
	i.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	i.mustBeDone(t)
	i.mustWin(t, Tap{id, v[1], noRound})
	s.mustHave(t, id, takenValue(v[1], 2))
}

// TestMarkerOutlivesItsClaimBehindATap: the marker's own driver taps again. While the database decides about that tap, another driver taps
// without a round and is refused. The second driver's tap never met the marker, and the driver hears of the dispatch too.
func TestMarkerOutlivesItsClaimBehindATap(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	s.next(id, v[0])
	s.set(id, takenValue(v[0], 1))
	release := i.hold(t, Tap{id, v[0], noRound})
	i.mustRefuse(t, Tap{id, v[1], noRound}, false)
	mustBe(t, release(), dispatch.ErrOfferStale)
	i.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	i.twice(t)
	s.mustHave(t, id, "")
	i.followUp(t.Context(), time.Now().Add(4*followUpRetry))
	testkit.Equal(t, "the round that is announced", 2, testkit.Await(t, "the announcement", i.claims.announced))
	i.mustHaveLost(t, 0)
}

// slowly answers the first check late, as a new primary does that is still applying its relay log.
type slowly struct {
	ClaimStore
	answered, askedAgain time.Time
}

// Holders waits in the bubble.
func (h *slowly) Holders(_ context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
	if h.answered.IsZero() {
		time.Sleep(verifyInterval * 3 / 2)
		h.answered = time.Now()
		return nil, nil
	}
	h.askedAgain = time.Now()
	return map[dispatch.ID]dispatch.CurrentHolder{ids[0]: {Round: 1, Driver: "drv_1"}}, nil
}

// TestChecksAreApart: the checks are verifyGap apart, even after a slow first one, so that a new primary has time to catch up.
func TestChecksAreApart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := &slowly{}
		a := alone(h)
		a.memory.doubt("dsp_1", holder{"drv_1", 1}, time.Now())
		ctx, stop := context.WithTimeout(t.Context(), 10*verifyInterval)
		defer stop()
		a.Run(ctx)
		if h.askedAgain.Sub(h.answered) < verifyGap || a.LostClaims() != 0 || len(a.memory.doubts) != 0 {
			t.Errorf("asked again %s after the answer, %d lost", h.askedAgain.Sub(h.answered), a.LostClaims())
		}
	})
}

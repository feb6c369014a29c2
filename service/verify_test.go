package service

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// looks counts the verifier's looks, and fails them on demand.
type looks struct {
	ClaimStore
	asked atomic.Int32
	ids   atomic.Int32 // of the last look
	fail  error
}

func (l *looks) Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error) {
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
	looks  *looks
	logged *bytes.Buffer
	clock  time.Time // of the looks, ahead of the taps' clock
}

func (s *shared) verified() *verified {
	v := &verified{instance: s.instance(), logged: &bytes.Buffer{}, clock: time.Now()}
	v.claims.announced = make(chan int, 100)
	v.looks = &looks{ClaimStore: v.claims}
	v.verify.claims = v.looks
	v.verify.log = slog.New(slog.NewTextHandler(v.logged, nil))
	return v
}

// look verifies, at a time when everything in the queue is due.
func (v *verified) look(t testing.TB) {
	t.Helper()
	v.clock = v.clock.Add(10 * reverifyAfter)
	v.verify.verifyDue(t.Context(), v.clock)
}

func (v *verified) twice(t testing.TB) {
	t.Helper()
	v.look(t)
	v.look(t)
}

// old makes the instance verify its knowledge of the dispatch with the next tap.
func (v *verified) old(id dispatch.ID) {
	v.inflight.mu.Lock()
	defer v.inflight.mu.Unlock()
	if f, ok := v.inflight.taken.Peek(id); ok {
		f.verifyAt = time.Time{}
		v.inflight.taken.Add(id, f)
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
		if _, err := p.raw.ExecContext(p.t.Context(), statement, id); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestLostClaim: a lost claim refuses taps until the second look at most, in the process that made it and in one that knows it
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
			i.old(id)
			i.mustRefuse(t, Tap{id, v[1], 1}, true)
			i.look(t)
			if i.LostClaims() != 0 || s.key(id) == "" {
				t.Fatal("one look is enough for an alert")
			}
			i.look(t)
			if n := i.LostClaims(); n != 1 {
				t.Fatalf("%d lost claims", n)
			}
			for _, want := range []string{
				"level=ERROR", `msg="ALERT: the database has lost a committed claim`, "dispatch=" + string(id), "round=1", "driver=" + string(v[0]),
				`database_says="no driver holds the dispatch"`, "FirstTap has announced the dispatch again",
			} {
				if !strings.Contains(i.logged.String(), want) {
					t.Errorf("%s is not in the log:\n%s", want, i.logged)
				}
			}
			if got := s.key(id); got != "" {
				t.Errorf("the marker is still %q", got)
			}
			if round := testkit.Await(t, "the announcement", i.claims.announced); round != 1 {
				t.Errorf("announced in round %d", round)
			}
			i.mustWin(t, Tap{id, v[1], 1})
			i.mustRefuse(t, Tap{id, v[2], 1}, true)
			i.twice(t)
			if n := i.LostClaims(); n != 1 || len(i.claims.announced) != 0 {
				t.Errorf("the new claim counts as lost: %d", n)
			}
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
			s.exec("UPDATE dispatches SET work_ends_at = work_starts_at WHERE id = ?", id) // or the driver is busy
			*list = append(*list, id)
		}
	}
	for _, id := range lost {
		s.lose(id)
	}
	i.twice(t)
	if i.looks.asked.Load() != 0 {
		t.Fatal("the database is asked for no reason")
	}
	i.claims.fail = dispatch.ErrUnavailable
	i.mustFail(t, Tap{s.dispatch(), v[1], 1}, dispatch.ErrUnavailable)
	i.claims.fail = nil
	i.twice(t)
	if n := i.LostClaims(); n != int64(len(lost)) || i.looks.asked.Load() != 2 {
		t.Errorf("%d lost claims by %d looks, want %d by 2", n, i.looks.asked.Load(), len(lost))
	}
	for _, id := range lost {
		if s.key(id) != "" {
			t.Errorf("the marker of %s is still there", id)
		}
		testkit.Await(t, "the announcement", i.claims.announced)
	}
	for _, id := range kept {
		if got := s.key(id); got != takenValue(v[0], 1) {
			t.Errorf("the marker of %s, which is taken, is %q", id, got)
		}
		i.mustRefuse(t, Tap{id, v[1], 1}, true)
	}
	// The lost claims have the rest verified once more, and then it stops.
	i.twice(t)
	asked := i.looks.asked.Load()
	i.twice(t)
	if i.looks.asked.Load() != asked || i.LostClaims() != int64(len(lost)) || len(i.claims.announced) != 0 {
		t.Errorf("it goes on: %d looks, %d lost claims", i.looks.asked.Load(), i.LostClaims())
	}
}

// TestAlertNamesBothDrivers: the alert of a round that was won again names both drivers, and the dispatch is not announced.
func TestAlertNamesBothDrivers(t *testing.T) {
	assign := func(t *testing.T, s *shared, i *verified, id dispatch.ID, second dispatch.DriverID) {
		must(t, errorOf(i.backoffice.Assign(t.Context(), id, s.stored(id).Version, second, "key_1")))
	}
	for name, again := range map[string]func(t *testing.T, s *shared, i *verified, id dispatch.ID, second dispatch.DriverID){
		"on this instance, without Redis' marker": func(t *testing.T, s *shared, i *verified, id dispatch.ID, second dispatch.DriverID) {
			s.redis.Del(t.Context(), lockName(id))
			i.mustWin(t, Tap{id, second, noRound})
		},
		"by the backoffice": assign,
		"by the backoffice on an instance that knows it by the marker alone": func(t *testing.T, s *shared, i *verified, id dispatch.ID, second dispatch.DriverID) {
			i.inflight.forget(id)
			assign(t, s, i, id, second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			i, id, v := s.verified(), s.dispatch(), s.drivers(3)
			i.mustWin(t, Tap{id, v[0], 1})
			s.lose(id)
			again(t, s, i, id, v[1])
			i.twice(t)
			if n := i.LostClaims(); n != 1 || !strings.Contains(i.logged.String(), "driver "+string(v[1])+" holds the dispatch") || !strings.Contains(i.logged.String(), "driver="+string(v[0])) {
				t.Errorf("%d lost claims, logged %s", n, i.logged)
			}
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
	for _, statement := range []string{"DELETE FROM outbox", "DELETE FROM events", "DELETE FROM dispatches"} {
		s.exec(statement)
	}
	i.old(id)
	i.mustRefuse(t, Tap{id, v[1], 1}, true)
	i.twice(t)
	if n := i.LostClaims(); n != 1 || !strings.Contains(i.logged.String(), "the dispatch does not exist") || len(i.verify.pending) != 0 {
		t.Errorf("%d lost claims, %d doubts left, logged %s", n, len(i.verify.pending), i.logged)
	}
	i.mustFail(t, Tap{id, v[1], 1}, dispatch.ErrNotFound)
}

// TestAnnouncementOfALostClaimFails: the announcement is retried until it succeeds, and the alert is not repeated.
func TestAnnouncementOfALostClaimFails(t *testing.T) {
	s := newShared(t)
	i, id, v := s.verified(), s.dispatch(), s.drivers(2)
	i.mustWin(t, Tap{id, v[0], 1})
	s.lose(id)
	i.old(id)
	i.mustRefuse(t, Tap{id, v[1], 1}, true)
	readonly := "CREATE TRIGGER readonly BEFORE UPDATE ON dispatches BEGIN SELECT RAISE(ABORT, 'read only'); END"
	s.exec(readonly)
	i.twice(t)
	testkit.Await(t, "the announcement that fails", i.claims.announced)
	if i.LostClaims() != 1 || s.count("events WHERE type = 'dispatch.opened'") != 0 {
		t.Fatal("not noticed, or announced all the same")
	}
	s.exec("DROP TRIGGER readonly")
	i.twice(t)
	testkit.Await(t, "the announcement", i.claims.announced)
	if i.LostClaims() != 1 || s.count("events WHERE type = 'dispatch.opened' AND reason_code = 'CLAIM_FAILED'") != 1 || len(i.verify.pending) != 0 {
		t.Errorf("%d lost claims, doubts %v", i.LostClaims(), i.verify.pending)
	}
}

// TestLostClaimIsAnnouncedAgain: drivers whom another process has refused since the first announcement get another one.
func TestLostClaimIsAnnouncedAgain(t *testing.T) {
	s := newShared(t)
	one, two, id, v := s.verified(), s.verified(), s.dispatch(), s.drivers(2)
	one.mustWin(t, Tap{id, v[0], 1})
	two.mustRefuse(t, Tap{id, v[1], 1}, true) // which knows it by the marker
	s.lose(id)
	one.old(id)
	one.mustRefuse(t, Tap{id, v[1], 1}, true)
	one.twice(t)
	testkit.Await(t, "the first announcement", one.claims.announced)
	two.old(id)
	two.mustRefuse(t, Tap{id, v[1], 1}, true)
	two.twice(t)
	if two.LostClaims() != 1 || s.count("events WHERE reason_code = 'CLAIM_FAILED'") != 1 {
		t.Fatal("the second process has not noticed, or has announced at once")
	}
	s.exec("UPDATE events SET at = at - 60000000")
	two.reannouncer.checkDue(t.Context(), time.Now().Add(time.Minute))
	s.mustCount(2, "events WHERE reason_code = 'CLAIM_FAILED'")
}

// slowly answers the first look late, as a new primary does that is still applying its relay log.
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

// TestLooksAreApart: the looks are verifyGap apart, even after a slow first one, so that a new primary has time to catch up.
func TestLooksAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slowly{}
		v := alone(h).verify
		v.add("dsp_1", holder{"drv_1", 1}, time.Now())
		ctx, stop := context.WithTimeout(t.Context(), 10*verifyInterval)
		defer stop()
		v.run(ctx)
		if h.askedAgain.Sub(h.answered) < verifyGap || v.lost.Load() != 0 || len(v.pending) != 0 {
			t.Errorf("asked again %s after the answer, %d lost", h.askedAgain.Sub(h.answered), v.lost.Load())
		}
	})
}

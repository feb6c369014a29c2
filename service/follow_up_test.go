package service

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// refuseDuringClaim lets bob be refused during ann's claim, and returns ann's result.
func refuseDuringClaim(t *testing.T, a *Acceptor, claims *intercepted, id dispatch.ID, round int) error {
	t.Helper()
	release := claims.hold(t, a, Tap{id, ann, round})
	a.mustRefuse(t, Tap{id, bob, round}, false)
	return release()
}

// TestAnnouncedAgain: a claim that fails after it has refused a tap has the dispatch announced again, once.
func TestAnnouncedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		fail  error
		round int
		want  []int
	}{
		{"it succeeded", nil, 1, nil},
		{"it was refused", dispatch.ErrDriverBusy, 1, []int{1}},
		{"it was refused, no round", &dispatch.NotEligibleError{}, noRound, []int{noRound}},
		{"it could not be decided", dispatch.ErrUnavailable, 1, []int{1}},
		{"unknown outcome", dispatch.ErrUnknown, 1, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
				claims.fail = c.fail
				stop := testkit.Run(t, a.Run)
				mustBe(t, refuseDuringClaim(t, a, claims, r.d.ID, c.round), c.fail)
				pass(time.Minute)
				r.mustAnnounce(t, c.want...)
				stop()
				r.mustAnnounce(t, c.want...)
			})
		})
	}
}

// TestAnnouncedAtTheOpening: two drivers tap together before the opening, and one of them is refused without hearing when it is. That
// driver is notified at the opening, also if the opening was put off or brought forward, and if the database is away at that time.
func TestAnnouncedAtTheOpening(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		stop := testkit.Run(t, a.Run)
		r.opens(20 * time.Minute)
		mustBe(t, refuseDuringClaim(t, a, claims, r.d.ID, 1), dispatch.ErrNotOpenYet)
		pass(15 * time.Minute)
		r.opens(20 * time.Minute)
		pass(6 * time.Minute)
		r.opens(2 * time.Minute)
		pass(2*time.Minute - time.Second)
		r.mustAnnounce(t)
		r.isAway(2)
		pass(time.Second + followUpTick)
		r.mustAnnounce(t)
		pass(2*followUpRetry + 2*followUpTick)
		r.mustAnnounce(t, 1)
		pass(time.Minute)
		stop()
		r.mustAnnounce(t, 1)
	})
}

func TestNoAnnouncementWithoutARefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		claims.fail = dispatch.ErrDriverBusy
		stop := testkit.Run(t, a.Run)
		a.mustFail(t, Tap{r.d.ID, ann, 1}, claims.fail)
		pass(time.Minute)
		stop()
		r.mustAnnounce(t)
	})
}

// TestAnnouncedSoon: the announcement comes within a tick, or when the process ends.
func TestAnnouncedSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		claims.fail = dispatch.ErrUnavailable
		stop := testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(followUpTick)
		r.mustAnnounce(t, 1)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		stop()
		r.mustAnnounce(t, 1, 1)
	})
}

func TestFollowUpRetriesWhileTheDatabaseIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		r.away, claims.fail = 100, dispatch.ErrUnavailable
		testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(99 * (followUpRetry + followUpTick))
		if len(r.announced) != 0 && r.away > 0 {
			t.Fatal("announced while the database was away")
		}
		pass(time.Minute)
		if r.mustAnnounce(t, 1); r.away != 0 {
			t.Errorf("away for %d more", r.away)
		}
	})
}

func TestFollowUpGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		r.away, claims.fail = 1<<20, dispatch.ErrUnavailable
		testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(followUpFor / 2)
		refuseDuringClaim(t, a, claims, r.d.ID, 1) // the time begins again
		pass(followUpFor - 2*followUpRetry)
		if a.memory.stillToFollow() != 1 {
			t.Error("the last refusal is not followed up any more")
		}
		pass(4 * followUpRetry)
		asked := r.away
		pass(followUpFor)
		if r.away != asked || a.memory.stillToFollow() != 0 {
			t.Errorf("asked %d times more, %d still open", asked-r.away, a.memory.stillToFollow())
		}
	})
}

// TestEndWithoutFollowUps: what the last checks have not settled is lost with the process, and the log says how much.
func TestEndWithoutFollowUps(t *testing.T) {
	for away, want := range map[int]int{0: 0, 1: 1} {
		inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
			log := &testkit.LogBuffer{}
			a.log = slog.New(slog.NewTextHandler(log, nil))
			r.away, claims.fail = away, dispatch.ErrUnavailable
			stop := testkit.Run(t, a.Run)
			refuseDuringClaim(t, a, claims, r.d.ID, 1)
			stop()
			if log.Count("rounds=1") != want || log.Count("level=WARN") != want {
				t.Errorf("the database is away %d times: %s", away, log)
			}
		})
	}
}

func TestFollowUpsAreBounded(t *testing.T) {
	a, first := alone(newRow()), dispatch.NewID(time.Now())
	log := &testkit.LogBuffer{}
	a.log = slog.New(slog.NewTextHandler(log, nil))
	a.memory.follow(offer{first, 1}, time.Hour, false)
	for i := range maxFollowUps + 10 {
		a.memory.follow(offer{dispatch.NewID(time.UnixMicro(int64(i))), 1}, time.Hour, false)
	}
	if n := a.memory.stillToFollow(); n != maxFollowUps || a.memory.followUps.Contains(offer{first, 1}) {
		t.Errorf("%d, want %d, the newest", n, maxFollowUps)
	}
	a.followUp(t.Context(), time.Now())
	if log.Count("level=ERROR") != 1 || log.Count("dropped=11") != 1 {
		t.Errorf("the log does not say how many will not be notified: %s", log)
	}
}

func TestTakenIsNotFollowedUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, claims *intercepted, a *Acceptor) {
		claims.fail = dispatch.ErrUnavailable
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		claims.fail = nil
		a.mustWin(t, Tap{r.d.ID, cyd, 1})
		testkit.Run(t, a.Run)
		pass(time.Minute)
		r.mustAnnounce(t)
	})
}

func TestEarliestFollowUpCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *row, _ *intercepted, a *Acceptor) {
		a.memory.follow(offer{r.d.ID, 1}, time.Second, false)
		a.memory.follow(offer{r.d.ID, 1}, time.Hour, false)
		a.followUp(t.Context(), time.Now().Add(time.Second-1))
		r.mustAnnounce(t)
		a.followUp(t.Context(), time.Now().Add(time.Second))
		if r.mustAnnounce(t, 1); a.memory.stillToFollow() != 0 {
			t.Error("it is still followed up")
		}
	})
}

// TestOlderRoundDoesNotReplaceTheFollowUp: the newer of two rounds is announced again, whichever is due first.
func TestOlderRoundDoesNotReplaceTheFollowUp(t *testing.T) {
	r := newRow()
	r.d.Round = 2
	a := alone(r)
	a.memory.follow(offer{r.d.ID, 2}, followUpRetry, false)
	a.memory.follow(offer{r.d.ID, 1}, 0, false)
	a.followUp(t.Context(), time.Now().Add(2*followUpRetry))
	if !slices.Contains(r.announced, 2) {
		t.Errorf("announced in rounds %v: round 2 is missing", r.announced)
	}
}

// TestAnnouncementIsWritten: the database has one event, however many taps were refused, and no second one
// within reannounceInterval.
func TestAnnouncementIsWritten(t *testing.T) {
	p := newPlace(t)
	v, id := p.drivers(10), p.dispatch()
	for _, holder := range p.drivers(2, onDuty(false)) {
		claims := &intercepted{ClaimStore: p, announced: make(chan int, 10)}
		a := alone(claims)
		testkit.Run(t, a.Run)
		release := claims.hold(t, a, Tap{id, holder, 1})
		testkit.Together(len(v), func(i int) { a.mustFail(t, Tap{id, v[i], 1}, dispatch.ErrAlreadyTaken) })
		mustBe(t, release(), dispatch.ErrNotEligible)
		if round := testkit.Await(t, "the announcement", claims.announced); round != 1 {
			t.Errorf("announced in round %d", round)
		}
	}
	p.mustCount(1, "events WHERE next_at IS NOT NULL "+
		"AND dispatch_id = ? AND type = 'dispatch.opened' AND reason_code = 'CLAIM_FAILED' AND round = 1", id)
}

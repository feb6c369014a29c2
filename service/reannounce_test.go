package service

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// refuseDuringClaim lets bob be refused during ann's claim, and returns ann's result.
func refuseDuringClaim(t *testing.T, a *Acceptor, claims *slow, id dispatch.ID, round int) error {
	t.Helper()
	claims.release = make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := a.Accept(t.Context(), Tap{id, ann, round})
		first <- err
	}()
	synctest.Wait()
	var taken *dispatch.TakenError
	if _, err := a.Accept(t.Context(), Tap{id, bob, round}); !errors.As(err, &taken) || taken.Final {
		t.Fatalf("bob got %v", err)
	}
	close(claims.release)
	return <-first
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
			synctest.Test(t, func(t *testing.T) {
				r := newRow()
				claims := &slow{ClaimStore: r, fail: c.fail}
				a := alone(claims)
				stop := testkit.Run(t, a.Run)
				if err := refuseDuringClaim(t, a, claims, r.d.ID, c.round); !errors.Is(err, c.fail) {
					t.Fatal(err)
				}
				pass(time.Minute)
				if !slices.Equal(r.announced, c.want) {
					t.Errorf("announced in rounds %v, want %v", r.announced, c.want)
				}
				stop()
				if !slices.Equal(r.announced, c.want) {
					t.Errorf("announced in rounds %v at the end, want %v", r.announced, c.want)
				}
			})
		})
	}
}

func TestNoAnnouncementWithoutARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		a := alone(&slow{ClaimStore: r, fail: dispatch.ErrDriverBusy})
		stop := testkit.Run(t, a.Run)
		if _, err := a.Accept(t.Context(), Tap{r.d.ID, ann, 1}); err == nil {
			t.Fatal("no error")
		}
		pass(time.Minute)
		stop()
		if len(r.announced) > 0 {
			t.Errorf("announced in rounds %v", r.announced)
		}
	})
}

// TestAnnouncedSoon: the announcement comes within a tick, or when the process ends.
func TestAnnouncedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		claims := &slow{ClaimStore: r, fail: dispatch.ErrUnavailable}
		a := alone(claims)
		stop := testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(followUpTick)
		synctest.Wait()
		if !slices.Equal(r.announced, []int{1}) {
			t.Errorf("announced in rounds %v within a tick", r.announced)
		}
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		stop()
		if !slices.Equal(r.announced, []int{1, 1}) {
			t.Errorf("announced in rounds %v at the end", r.announced)
		}
	})
}

func TestFollowUpRetriesWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		r.away = 100
		claims := &slow{ClaimStore: r, fail: dispatch.ErrUnavailable}
		a := alone(claims)
		testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(99 * (followUpRetry + followUpTick))
		if len(r.announced) != 0 && r.away > 0 {
			t.Fatal("announced while the database was away")
		}
		pass(time.Minute)
		if !slices.Equal(r.announced, []int{1}) || r.away != 0 {
			t.Errorf("announced in rounds %v, away for %d more", r.announced, r.away)
		}
	})
}

func TestFollowUpGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		r.away = 1 << 20
		claims := &slow{ClaimStore: r, fail: dispatch.ErrUnavailable}
		a := alone(claims)
		testkit.Run(t, a.Run)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		pass(followUpFor + 2*followUpRetry)
		asked := r.away
		pass(followUpFor)
		if r.away != asked || len(a.reannouncer.open) != 0 {
			t.Errorf("asked %d times more, %d still open", asked-r.away, len(a.reannouncer.open))
		}
	})
}

func TestFollowUpsAreBounded(t *testing.T) {
	c := newReannouncer(newRow(), noGate{}, quiet)
	for i := range maxFollowUps + 10 {
		c.schedule(Tap{dispatch.NewID(time.UnixMicro(int64(i))), dispatch.DriverID(strconv.Itoa(i)), 1}, time.Hour)
	}
	if len(c.open) != maxFollowUps {
		t.Errorf("%d, want %d", len(c.open), maxFollowUps)
	}
}

func TestTakenIsNotFollowedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		claims := &slow{ClaimStore: r, fail: dispatch.ErrUnavailable}
		a := alone(claims)
		refuseDuringClaim(t, a, claims, r.d.ID, 1)
		claims.fail = nil
		if _, err := a.Accept(t.Context(), Tap{r.d.ID, cyd, 1}); err != nil {
			t.Fatal(err)
		}
		testkit.Run(t, a.Run)
		pass(time.Minute)
		if len(r.announced) > 0 {
			t.Errorf("cyd has it, and it was announced in rounds %v", r.announced)
		}
	})
}

func TestEarliestFollowUpCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRow()
		c := newReannouncer(r, noGate{}, quiet)
		tap := Tap{r.d.ID, ann, 1}
		c.schedule(tap, time.Second)
		c.schedule(tap, time.Hour)
		c.checkDue(t.Context(), time.Now().Add(time.Second-1))
		if len(r.announced) != 0 {
			t.Error("too early")
		}
		c.checkDue(t.Context(), time.Now().Add(time.Second))
		if !slices.Equal(r.announced, []int{1}) || len(c.open) != 0 {
			t.Errorf("announced %v, open %v", r.announced, c.open)
		}
	})
}

// TestAnnouncementIsWritten uses the real database: there is one event with its outbox row, however many taps were refused,
// and no second one within reannounceInterval.
func TestAnnouncementIsWritten(t *testing.T) {
	p := newPlace(t)
	v, id := p.drivers(10), p.dispatch()
	offDuty := p.drivers(2, func(v *dispatch.Driver) { v.OnDuty = false })
	for _, holder := range offDuty {
		claims := &slow{
			ClaimStore: p, entered: make(chan dispatch.DriverID, 1), release: make(chan struct{}), announced: make(chan int, 10),
		}
		a := alone(claims)
		testkit.Run(t, a.Run)
		refused := make(chan error, 1)
		go func() {
			_, err := a.Accept(t.Context(), Tap{id, holder, 1})
			refused <- err
		}()
		testkit.Await(t, "the claim", claims.entered)
		testkit.Together(len(v), func(i int) {
			if _, err := a.Accept(t.Context(), Tap{id, v[i], 1}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
				t.Error(err)
			}
		})
		close(claims.release)
		if err := testkit.Await(t, "the refusal", refused); !errors.Is(err, dispatch.ErrNotEligible) {
			t.Fatal(err)
		}
		if round := testkit.Await(t, "the announcement", claims.announced); round != 1 {
			t.Errorf("announced in round %d", round)
		}
	}
	from := "events e JOIN outbox o ON o.event_id = e.id WHERE dispatch_id = ? AND type = 'dispatch.opened' AND reason_code = 'CLAIM_FAILED' AND round = 1"
	if n := p.count(from, id); n != 1 {
		t.Errorf("%d announcements are stored, want one", n)
	}
}

package service

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// TestOldMarkerDoesNotSilenceTheNextRound: a marker of an earlier round, which its instance could not drop, does not keep the
// next round from being announced again.
func TestOldMarkerDoesNotSilenceTheNextRound(t *testing.T) {
	s := newShared(t)
	i, id, v := s.instance(), s.dispatch(), s.drivers(3)
	s.next(id, v[0])
	s.set(id, takenValue(v[0], 1))
	i.claims.entered, i.claims.release, i.claims.fail = make(chan dispatch.DriverID, 1), make(chan struct{}), dispatch.ErrUnavailable
	i.claims.announced = make(chan int, 10)
	failed := make(chan error, 1)
	go func() {
		_, err := i.Accept(t.Context(), Tap{id, v[1], 2})
		failed <- err
	}()
	testkit.Await(t, "the claim", i.claims.entered)
	if _, err := i.Accept(t.Context(), Tap{id, v[2], 2}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Fatal(err)
	}
	close(i.claims.release)
	if err := testkit.Await(t, "the failure", failed); !errors.Is(err, dispatch.ErrUnavailable) {
		t.Fatal(err)
	}
	i.reannouncer.checkDue(t.Context(), time.Now().Add(followUpRetry))
	select {
	case <-i.claims.announced:
	default:
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
	i.reannouncer.schedule(Tap{id, v[1], 2}, 0)
	if _, err := i.Accept(t.Context(), Tap{id, v[2], 1}); !errors.Is(err, dispatch.ErrAlreadyTaken) {
		t.Fatal(err)
	}
	if _, still := i.reannouncer.open[id]; !still {
		t.Error("round 2 was to be followed up, and a tap on round 1 ended that")
	}
}

// TestOlderRoundDoesNotReplaceTheFollowUp: the newer of two rounds is announced again, whichever is due first.
func TestOlderRoundDoesNotReplaceTheFollowUp(t *testing.T) {
	r := newRow()
	r.d.Round = 2
	c := newReannouncer(r, noGate{}, quiet)
	c.schedule(Tap{r.d.ID, ann, 2}, followUpRetry)
	c.schedule(Tap{r.d.ID, bob, 1}, 0)
	c.checkDue(t.Context(), time.Now().Add(2*followUpRetry))
	if !slices.Contains(r.announced, 2) {
		t.Errorf("announced in rounds %v: round 2 is missing", r.announced)
	}
}

// TestGarbageIsNoMarker: a malformed value does not refuse taps.
func TestGarbageIsNoMarker(t *testing.T) {
	s := newShared(t)
	v := s.drivers(4)
	for n, value := range []string{"taken:drv_other:garbage", "taken:drv_other:", "taken::1", "taken:drv_other:-1"} {
		i, id := s.instance(), s.dispatch()
		s.set(id, value)
		if _, err := i.Accept(t.Context(), Tap{id, v[n], 1}); err != nil {
			t.Errorf("%q in the key of an open dispatch: %v", value, err)
		}
	}
}

// TestSignatureHasOneSpelling: the last character of a signature has two unused bits. A token with other bits there is refused,
// or the cache would have four entries for one token.
func TestSignatureHasOneSpelling(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	tokens := NewTokens(TokenOptions{Revocations: NoRevocations(), Secret: secret, Now: (&clock{fixed}).now})
	good := with(nil)
	last := strings.IndexByte(alphabet, good[len(good)-1])
	for bits := 1; bits < 4; bits++ {
		token := good[:len(good)-1] + string(alphabet[last|bits])
		if _, err := tokens.Driver(token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("...%s was issued, and ...%s is good too", good[len(good)-4:], token[len(token)-4:])
		}
	}
}

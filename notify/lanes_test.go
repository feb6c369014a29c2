package notify

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"

	"firsttap/testkit"
)

// some returns n pushes of an event, with ids made of the event and a number.
func some(event string, kind dispatch.EventType, silent bool, n int) []outbox.Push {
	pushes := make([]outbox.Push, n)
	for i := range pushes {
		pushes[i] = outbox.Push{
			ID: dispatch.NotificationID(fmt.Sprint(event, i)), Event: dispatch.EventID(event), Type: kind, Silent: silent,
		}
	}
	return pushes
}

// leave removes n pushes and returns their names.
func (l *lanes) leave(n int) (ids []string) {
	for range n {
		ids = append(ids, string(l.next().ID))
	}
	return ids
}

func TestEventsTakeTurns(t *testing.T) {
	l := newLanes()
	if !l.empty() || l.next() != nil {
		t.Error("nothing waits, and something comes")
	}
	l.add(some("a", dispatch.EventOpened, false, 4))
	l.add(nil)
	if got := l.leave(1); !slices.Equal(got, []string{"a0"}) {
		t.Error(got)
	}
	l.add(some("b", dispatch.EventReopened, false, 2))
	l.add(some("c", dispatch.EventUpdated, false, 1))
	got := l.leave(3)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a1", "b0", "c0"}) {
		t.Errorf("of three events one each should come, not %v", got)
	}
	l.add(some("b", dispatch.EventReopened, false, 1))
	got = l.leave(5 - 1)
	if slices.Index(got, "a2") > 1 || slices.Index(got, "b1") > 1 || !slices.Contains(got, "a3") || !l.empty() {
		t.Errorf("they come as %v", got)
	}
	testkit.Equal(t, "known events that are done", 0, len(l.rings[outbox.LaneOffer].byEvent))
}

func TestLanesHaveTheirShares(t *testing.T) {
	l := newLanes()
	l.add(some("over", dispatch.EventTaken, true, 100))
	l.add(some("offer", dispatch.EventOpened, false, 100))
	l.add(some("own", dispatch.EventAccepted, false, 100))
	l.add(some("canceled", dispatch.EventCanceled, false, 100))
	of := map[string]int{}
	for range 80 {
		of[string(l.next().Event)]++
	}
	if of["own"] != 20 || of["canceled"] != 20 || of["offer"] != 30 || of["over"] != 10 {
		t.Errorf("of 80: %v", of)
	}
}

func TestRemovedPushesAreNotSent(t *testing.T) {
	l := newLanes()
	l.add(some("a", dispatch.EventOpened, false, 3))
	l.add(some("b", dispatch.EventTaken, true, 2))
	l.add(some("c", dispatch.EventAccepted, false, 1))
	gone := l.remove(func(p *outbox.Push) bool { return p.ID == "a1" || p.Event == "b" })
	testkit.Equal(t, "removed pushes", 3, len(gone))
	got := l.leave(3)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a0", "a2", "c0"}) || !l.empty() {
		t.Errorf("%v are left", got)
	}
	l.add(some("b", dispatch.EventTaken, true, 1))
	if got := l.remove(anyPush); len(got) != 1 || !l.empty() || l.next() != nil {
		t.Errorf("%v of all", got)
	}
}

// refusing is a push service that refuses every push.
type refusing struct{ Sender }

func (refusing) Send(context.Context, outbox.Push) Outcome { return Outcome{Class: Poison} }

// TestSendFindsNothing: a push may be released just after the throttle started its place. No place is lost.
func TestSendFindsNothing(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	r := NewRelay(RelayOptions{Sender: refusing{}, Log: log})
	r.results = newResultWriter(nil, r.throttle, log)
	r.deadTokens = newDeadTokens(nil, r.throttle, time.Minute, log, r.metrics)
	ctx, stop := context.WithCancel(t.Context())
	var running, settling sync.WaitGroup
	settling.Go(func() {
		for s := range r.results.queue {
			if s.throttled {
				r.throttle.recorded(1)
			}
		}
	})
	running.Go(func() { r.send(ctx, ctx) })
	for range 5000 {
		for r.throttle.reserve(1, ahead, time.Now()) == 0 {
			runtime.Gosched()
		}
		p := some("a", dispatch.EventOpened, false, 1)
		p[0].ReadAt, p[0].LeasedUntil = time.Now(), time.Now().Add(time.Hour)
		r.ready.add(p)
		r.releaseAll(anyPush, 0)
	}
	stop()
	running.Wait()
	r.attempts.Wait()
	r.releaseAll(anyPush, 0)
	r.results.finish()
	settling.Wait()
	if c := r.throttle; c.inflight != 0 || c.reserved != 0 || c.unrecorded != 0 {
		t.Errorf("%d in flight, %d reserved, %d unrecorded", c.inflight, c.reserved, c.unrecorded)
	}
}

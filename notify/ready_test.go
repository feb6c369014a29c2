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
	"firsttap/dispatch/outbox"

	"firsttap/internal/testkit"
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
func (r *ready) leave(n int) (ids []string) {
	for range n {
		ids = append(ids, string(r.next().ID))
	}
	return ids
}

// What an expansion has leased and what was leased from the backlog take turns; each queue is in order.
func TestCommittedPushesPassABacklog(t *testing.T) {
	r := newReady()
	if !r.empty() || r.next() != nil {
		t.Error("nothing waits, and something comes")
	}
	r.add(fromBacklog, some("old", dispatch.EventOpened, false, 4))
	r.add(fromExpansion, some("new", dispatch.EventAccepted, false, 2))
	r.add(fromBacklog, nil)
	got := r.leave(6)
	late := slices.Index(got, "new1") > 3
	old := slices.DeleteFunc(got, func(id string) bool { return id[:3] == "new" })
	if late || !slices.Equal(old, []string{"old0", "old1", "old2", "old3"}) || !r.empty() {
		t.Errorf("they come as %v", got)
	}
}

func TestRemovedPushesAreNotSent(t *testing.T) {
	r := newReady()
	r.add(fromBacklog, some("a", dispatch.EventOpened, false, 3))
	r.add(fromExpansion, some("b", dispatch.EventTaken, true, 2))
	r.add(fromExpansion, some("c", dispatch.EventAccepted, false, 1))
	gone := r.remove(func(p *outbox.Push) bool { return p.ID == "a1" || p.Event == "b" })
	testkit.Equal(t, "removed pushes", 3, len(gone))
	got := r.leave(3)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a0", "a2", "c0"}) || !r.empty() {
		t.Errorf("%v are left", got)
	}
	r.add(fromBacklog, some("b", dispatch.EventTaken, true, 1))
	if got := r.remove(anyPush); len(got) != 1 || !r.empty() || r.next() != nil {
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
	r.results = newResultWriter(nil, nil, r.throttle, log)
	r.tokens = newTokens(nil, time.Minute, log, r.metrics)
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
		r.ready.add(fromBacklog, p)
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

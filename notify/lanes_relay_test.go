package notify_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/repository/pushes"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
)

// turnstile is a push service that lets a limited number of pushes pass, and records their order.
type turnstile struct {
	mu      sync.Mutex
	changed sync.Cond
	limit   int // of pushes that pass; -1 for all
	passed  []sent
}

type sent struct {
	dispatch dispatch.ID
	kind     dispatch.EventType
}

func newTurnstile(o *office) *turnstile {
	s := &turnstile{limit: -1}
	s.changed.L = &s.mu
	o.fcm.OnSend(func(r fcmtest.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for s.limit >= 0 && len(s.passed) >= s.limit {
			s.changed.Wait()
		}
		s.passed = append(s.passed, sent{dispatch.ID(r.Data["dispatch_id"]), dispatch.EventType(r.Data["type"])})
	})
	o.t.Cleanup(func() { s.let(-1) })
	return s
}

// let lets n more pushes pass and holds the others; -1 lets all pass.
func (s *turnstile) let(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit = n; n >= 0 {
		s.limit += len(s.passed)
	}
	s.changed.Broadcast()
}

// order returns the pushes that have passed, without the first n.
func (s *turnstile) order(n int) []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent{}, s.passed[min(n, len(s.passed)):]...)
}

// count returns how many of the pushes are of one kind about a dispatch.
func count(all []sent, id dispatch.ID, kind dispatch.EventType) (n int) {
	for _, s := range all {
		if s == (sent{id, kind}) {
			n++
		}
	}
	return n
}

// until returns the pushes up to the nth of one kind about a dispatch.
func until(all []sent, n int, id dispatch.ID, kind dispatch.EventType) []sent {
	for i, s := range all {
		if s == (sent{id, kind}) {
			if n--; n == 0 {
				return all[:i+1]
			}
		}
	}
	return all
}

// written counts the notifications of one kind about a dispatch.
func (o *office) written(id dispatch.ID, kind dispatch.EventType) (n int) {
	o.t.Helper()
	items := everything(o.t, func(p dispatch.Page) ([]outbox.Notification, string, error) {
		return o.store.Notifications.Notifications(o.t.Context(), id, p)
	})
	for _, item := range items {
		if item.Type == kind {
			n++
		}
	}
	return n
}

// narrow allows few requests in flight, and makes leases outlast the test.
func narrow(n *notify.RelayOptions, b *pushes.Options) {
	n.MaxInFlight, n.AttemptTimeout, b.LeaseTerm = 4, time.Minute, time.Hour
}

// inOrder has every request take its time, and as long as it has to: a request that stands still is not overtaken by hundreds.
func (o *office) inOrder() {
	o.timeout = time.Hour
	o.fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 50 * time.Millisecond })
}

// A winner's message, a cancelation and a small offer wait for a part of a large audience, not for all of it.
func TestLargeAudienceDelaysNoOtherPush(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d instances", instances), func(t *testing.T) {
			t.Parallel()
			onDatabasesInAll(t, testkit.Scale(300, 700), func(t *testing.T, o *office) { largeAudienceDelaysNoOtherPush(t, o, instances) })
		})
	}
}

func largeAudienceDelaysNoOtherPush(t *testing.T, o *office, instances int) {
	const few = 20
	large := len(o.cars)
	most := large * 2 / 3
	o.inOrder()
	near := o.hire("busan", few)
	s := newTurnstile(o)
	o.relay(narrow)
	for range instances - 1 {
		o.relayBeside(narrow)
	}
	open, taken := o.offerIn("busan"), o.offerIn("busan")
	o.accept(taken, near[0])
	o.eventually("all before is settled", func() bool {
		done := count(s.order(0), open.ID, dispatch.EventOpened) == few && count(s.order(0), taken.ID, dispatch.EventAccepted) == 1
		return done && o.rows()["PENDING "] == 0
	})
	before := len(s.order(0))

	s.let(large / 7)
	crowd := o.offer()
	o.eventually("some of the audience are sent the offer", func() bool { return len(s.order(before)) == large/7 })
	o.accept(open, near[1])
	o.cancel(taken)
	small := o.offerIn("busan")
	o.eventually("the others are written", func() bool {
		return o.written(open.ID, dispatch.EventAccepted) == 1 && o.written(taken.ID, dispatch.EventCanceled) >= 1 &&
			o.written(small.ID, dispatch.EventOpened) == few
	})
	held := len(s.order(0))
	s.let(-1)
	o.eventually("all of the audience are sent the offer", func() bool {
		return count(s.order(before), crowd.ID, dispatch.EventOpened) == large
	})

	order := s.order(held)
	for what, end := range map[string][]sent{
		"the winner's message": until(order, 1, open.ID, dispatch.EventAccepted),
		"the cancelation":      until(order, 1, taken.ID, dispatch.EventCanceled),
		"the small offer":      until(order, few, small.ID, dispatch.EventOpened),
	} {
		n := count(end, crowd.ID, dispatch.EventOpened)
		t.Logf("%s waited for %d of a large audience of which %d were left", what, n, large-large/7)
		if n > most {
			t.Errorf("%s waited for %d of the large audience, want %d at most", what, n, most)
		}
	}
}

// Two large audiences are written in parts: a small one that comes after them does not wait until they are.
func TestASmallAudienceIsWrittenBetweenLargeOnes(t *testing.T) {
	t.Parallel()
	inBubble(t, 60, func(t *testing.T, o *office) {
		large := len(o.cars)
		few := o.hire("busan", 3)
		o.offer()
		o.offer()
		small := o.offerIn("busan") // all are due when the relay starts
		o.slow = "Expand"           // and none overtakes the expansion that is next
		r := o.relay(func(_ *notify.RelayOptions, b *pushes.Options) { b.BatchSize = 5 })
		o.eventually("all phones show the offers", func() bool { return o.shows(dispatch.EventOpened) == 2*large+len(few) })
		events, _, err := o.store.Journal.Events(t.Context(), small.ID, dispatch.Page{Limit: 1})
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		parts, later := 0, 0
		for _, c := range r.wire.made() {
			switch {
			case slices.Contains(c.events, events[0].ID):
				later = 0
			case c.name == "Expand":
				parts++
				later++
			}
		}
		if parts < 20 || later < parts/2 {
			t.Errorf("of the %d parts of two large audiences only %d were written after the small one", parts, later)
		}
	})
}

func (o *office) cancel(d dispatch.Dispatch) {
	o.t.Helper()
	_, err := o.store.Dispatches.Update(o.t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Cancel(d.Version, dispatch.System, "RAIN", now)
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

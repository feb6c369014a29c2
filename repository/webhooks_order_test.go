package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
	"firsttap/webhook"
)

// receiver is an endpoint that notes what it gets.
type receiver struct {
	mu  sync.Mutex
	got map[laneKey][]dispatch.EventID
}

func (r *receiver) take(l webhook.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lane := deliveryLane(&l.Delivery)
	if r.got == nil {
		r.got = map[laneKey][]dispatch.EventID{}
	}
	r.got[lane] = append(r.got[lane], l.Delivery.Event)
}

// deliverAll sends what is due, by all the instances at once, until each of the lanes has had so many deliveries.
func (r *receiver) deliverAll(t *testing.T, deliveries int, instances ...*courier) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), testkit.Patience)
	defer end()
	mustAll(t, len(instances), func(i int) error {
		for ctx.Err() == nil {
			leases, err := instances[i].sends.LeaseDeliveries(ctx, 8, nil, 16)
			if err != nil {
				return err
			}
			results := collect(leases, func(l webhook.Lease) webhook.Result { r.take(l); return succeeded(l) })
			if _, err := instances[i].sends.CompleteDeliveries(ctx, results); err != nil {
				return err
			}
			r.mu.Lock()
			n := 0
			for _, events := range r.got {
				n += len(events)
			}
			r.mu.Unlock()
			if n >= deliveries {
				return nil
			}
		}
		return errors.New("not all was delivered in time")
	})
}

// mustHaveGot fails the test unless the endpoint got these events of the dispatch, in this order.
func (r *receiver) mustHaveGot(t *testing.T, to webhook.ID, d dispatch.ID, events []dispatch.EventID) {
	t.Helper()
	testkit.Equal(t, "the events in the order of their arrival", events, r.got[laneKey{to, d}])
}

// Of the events of a dispatch, which several instances expand at once while others send, none is sent before an earlier one.
func TestConcurrentExpansionsKeepTheOrder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		to := db.endpoint(t, "*", nil)
		for range testkit.Scale(15, 60) {
			d, events := a.changed(t, 3)
			var r receiver
			var all sync.WaitGroup
			all.Go(func() { r.deliverAll(t, len(events), a, b) })
			mustAll(t, len(events), func(i int) error {
				in := []*courier{a, b}[i%2]
				if i == 1 {
					return in.relay.CompleteEvents(t.Context(), events[i:i+1])
				}
				return errorOf(in.relay.expandFully(t.Context(), events[i], 0))
			})
			all.Wait()
			r.mustHaveGot(t, to, d.ID, events)
		}
		db.mustCount(t, 0, "webhook_lanes")
	})
}

// A later event waits for an earlier one of its dispatch that is not written yet, and for nothing else: not for one that the endpoint does
// not want, and not for another dispatch.
func TestLaterEventWaitsForTheEarlier(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		all, updates := db.endpoint(t, "*", nil), db.endpoint(t, "dispatch.updated", nil)
		_, events := in.changed(t, 2)
		_, others := in.changed(t, 1)
		in.expanded(t, events[1], others[0])
		leases := in.mustLease(t, 2)
		got := map[webhook.ID]dispatch.EventID{}
		for _, l := range leases {
			got[l.Delivery.Endpoint] = l.Delivery.Event
		}
		testkit.Equal(t, "what is sent", map[webhook.ID]dispatch.EventID{updates: events[1], all: others[0]}, got)
		next := db.count(t, "webhook_lanes WHERE webhook_id = ? AND claim = '' AND next_at <= ?", all, micros(db.now(t).Add(recheckBlocked)))
		testkit.Equal(t, "the lane is looked at again soon", 1, next)
		in.expanded(t, events[0])
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1 WHERE claim = ''")
		testkit.Equal(t, "the earlier one first", events[0], in.mustLease(t, 1)[0].Delivery.Event)
	})
}

// An endpoint that fails holds back the later events of its dispatch, and neither other dispatches nor other endpoints.
func TestFailureHoldsBackItsLaneOnly(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		bad, good := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		one, events := in.changed(t, 3)
		two, others := in.changed(t, 3)
		in.expanded(t, slices.Concat(events, others)...)
		var r receiver
		for range 4 {
			leases, err := in.sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
			must(t, err)
			in.mustComplete(t, collect(leases, func(l webhook.Lease) webhook.Result {
				r.take(l)
				if l.Delivery.Endpoint == bad && l.Delivery.Dispatch == one.ID {
					return failed(l)
				}
				return succeeded(l)
			})...)
		}
		r.mustHaveGot(t, bad, one.ID, events[:1])
		r.mustHaveGot(t, bad, two.ID, others)
		r.mustHaveGot(t, good, one.ID, events)
		r.mustHaveGot(t, good, two.ID, others)
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1")
		again := in.mustLease(t, 1)[0]
		if again.Delivery.Event != events[0] || again.Attempt != 2 {
			t.Errorf("sent again: %+v", again)
		}
	})
}

// Each endpoint gets as many leases as it has free places, however many of its lanes are due.
func TestLeasesOfABusyEndpoint(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		slow, quick := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		for range 6 {
			_, events := in.changed(t, 1)
			in.expanded(t, events...)
		}
		count := func(busy map[webhook.ID]int, limit int) map[webhook.ID]int {
			t.Helper()
			leases, err := in.sends.LeaseDeliveries(t.Context(), 4, busy, limit)
			must(t, err)
			got := map[webhook.ID]int{}
			for _, l := range leases {
				got[l.Delivery.Endpoint]++
			}
			return got
		}
		testkit.Equal(t, "leases", map[webhook.ID]int{slow: 1, quick: 4}, count(map[webhook.ID]int{slow: 3}, 100))
		testkit.Equal(t, "leases of a full endpoint", map[webhook.ID]int{quick: 2}, count(map[webhook.ID]int{slow: 4}, 100))
		testkit.Equal(t, "leases up to the limit", map[webhook.ID]int{slow: 2}, count(nil, 2))
		testkit.Equal(t, "leases of none", map[webhook.ID]int{}, count(nil, 0))
	})
}

// A writer and a completion of the same lane leave no delivery without a lane, and no lane that nobody sends.
func TestWritersAndCompletionsStrandNoLane(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		db.endpoint(t, "*", nil)
		db.endpoint(t, "*", nil)
		for round := range testkit.Scale(40, 80) {
			d, events := a.changed(t, 2)
			other, more := a.changed(t, 2)
			a.expanded(t, events[0], more[0])
			results := collect(a.mustLease(t, 4), succeeded)
			slices.SortFunc(results, func(x, y webhook.Result) int {
				return (round%2*2 - 1) * compareLanes(deliveryLane(&x.Lease.Delivery), deliveryLane(&y.Lease.Delivery))
			})
			mustAll(t, 3, func(i int) error {
				switch i {
				case 0:
					return errorOf(a.sends.CompleteDeliveries(t.Context(), results))
				case 1:
					return b.relay.CompleteEvents(t.Context(), []dispatch.EventID{more[1], events[1]})
				}
				return errorOf(b.sends.LeaseDeliveries(t.Context(), 100, nil, 0))
			})
			db.mustCount(t, 0, `webhook_deliveries d LEFT JOIN webhook_lanes l ON l.webhook_id = d.webhook_id AND l.dispatch_id = d.dispatch_id
				WHERE d.status = 'PENDING' AND l.dispatch_id IS NULL`)
			db.mustCount(t, 4, "webhook_deliveries WHERE status = 'PENDING'")
			a.mustComplete(t, collect(a.mustLease(t, 4), succeeded)...)
			if t.Failed() {
				t.Fatalf("round %d of %s and %s", round, d.ID, other.ID)
			}
			db.mustCount(t, 0, "webhook_lanes")
		}
	})
}

// Two instances that expand and send at once deliver 200 events of 20 dispatches, each at least once and in the order of its dispatch.
func TestTwoInstancesDeliverAll(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		to := []webhook.ID{db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)}
		const dispatches, each = 20, 10
		all := map[dispatch.ID][]dispatch.EventID{}
		var events []dispatch.EventID
		for range dispatches {
			d, own := a.changed(t, each)
			all[d.ID] = own
			events = append(events, own...)
		}
		var r receiver
		var done sync.WaitGroup
		done.Go(func() { r.deliverAll(t, len(to)*len(events), a, b) })
		const workers = 4
		mustAll(t, workers, func(k int) error {
			in := []*courier{a, b}[k%2]
			for i := k; i < len(events); i += workers {
				if err := errorOf(in.relay.expandFully(t.Context(), events[i], 0)); err != nil {
					return fmt.Errorf("%s: %w", events[i], err)
				}
			}
			return nil
		})
		done.Wait()
		for d, events := range all {
			for _, id := range to {
				r.mustHaveGot(t, id, d, events)
			}
		}
		db.mustCount(t, 0, "webhook_lanes")
		db.mustCount(t, 2*dispatches*each, "webhook_deliveries WHERE status = 'DELIVERED' AND attempt = 1")
	})
}

// A lane whose lease was lost is another process's: the result is ignored, and so is one that comes twice.
func TestLostLeaseOfADelivery(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		to := db.endpoint(t, "*", nil)
		_, events := a.changed(t, 2)
		a.expanded(t, events...)
		old := a.mustLease(t, 1)[0]
		b.mustLease(t, 0)
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1") // the lease has ended
		taken := b.mustLease(t, 1)[0]
		testkit.Equal(t, "the delivery that was taken over", old.Delivery, taken.Delivery)
		before := a.deliveries(t, to)
		for _, late := range []webhook.Result{succeeded(old), failed(old), {Lease: old, Attempt: failed(old).Attempt, Gone: true}} {
			if paused := a.mustComplete(t, late); len(paused) != 0 {
				t.Errorf("paused: %v", paused)
			}
		}
		must(t, a.sends.ReleaseDeliveries(t.Context(), []webhook.Lease{old}))
		testkit.Equal(t, "the deliveries after a late result", before, a.deliveries(t, to))
		db.mustCount(t, 1, "webhook_lanes WHERE claim = 'ins_b' AND next_at > ?", micros(db.now(t)))
		db.mustCount(t, 1, "webhooks WHERE status = 'ACTIVE' AND failing_since IS NULL")

		b.mustComplete(t, failed(taken))
		db.exec(t, "UPDATE webhook_lanes SET next_at = 1")
		b.mustLease(t, 1)
		b.mustComplete(t, failed(taken)) // which has been counted
		testkit.Equal(t, "attempts", 1, b.deliveries(t, to)[0].Attempt)
		db.mustCount(t, 1, "webhook_lanes WHERE claim = 'ins_b'")

		must(t, b.sends.ReleaseDeliveries(t.Context(), []webhook.Lease{taken}))
		if l := a.mustLease(t, 1)[0]; l.Attempt != 2 || !l.LeasedUntil.After(time.Now()) {
			t.Errorf("leased after the release: %+v", l)
		}
	})
}

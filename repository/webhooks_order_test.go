package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
	"firsttap/webhook"
)

// pair is a dispatch and an endpoint that gets its events.
type pair struct {
	webhook  webhook.ID
	dispatch dispatch.ID
}

// receiver is an endpoint that notes what it gets.
type receiver struct {
	mu  sync.Mutex
	got map[pair][]dispatch.EventID
	n   int
}

func (r *receiver) take(l webhook.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got == nil {
		r.got = map[pair][]dispatch.EventID{}
	}
	p := pair{l.Delivery.Endpoint, l.Delivery.Dispatch}
	r.got[p] = append(r.got[p], l.Delivery.Event)
	r.n++
}

func (r *receiver) has(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n >= n
}

// deliverAll writes and sends what there is, by all the instances at once, until so many deliveries have been sent.
func (r *receiver) deliverAll(t *testing.T, deliveries int, instances ...*courier) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), testkit.Patience)
	defer end()
	mustAll(t, 2*len(instances), func(i int) error {
		sends := instances[i/2].sends
		for !r.has(deliveries) {
			if ctx.Err() != nil {
				return errors.New("not all was delivered in time")
			}
			if i%2 == 0 {
				if _, _, err := sends.WriteDeliveries(ctx, webhookBody); err != nil {
					return err
				}
				continue
			}
			leases, _, err := sends.LeaseDeliveries(ctx, 8, nil, 16)
			if err != nil {
				return err
			}
			results := collect(leases, func(l webhook.Lease) webhook.Result { r.take(l); return succeeded(l) })
			if _, err := sends.CompleteDeliveries(ctx, results); err != nil {
				return err
			}
		}
		return nil
	})
}

// mustHaveGot fails the test unless the endpoint got these events of the dispatch, in this order.
func (r *receiver) mustHaveGot(t *testing.T, to webhook.ID, d dispatch.ID, events []dispatch.EventID) {
	t.Helper()
	testkit.Equal(t, "the events in the order of their arrival", events, r.got[pair{to, d}])
}

// A delivery waits for that of an earlier event of its dispatch, also while that is still to be written, and no other
// dispatch does.
func TestLaterEventWaitsForTheEarlier(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		db.endpoint(t, "*", nil)
		_, events := in.changed(t, 2)
		_, others := in.changed(t, 1)
		in.unwritten(t, events[:1], func() {
			testkit.Equal(t, "what is sent", others[0], in.mustLease(t, 1)[0].Delivery.Event)
			db.mustCount(t, 1, "webhook_deliveries WHERE event_id = ? AND next_at <= ?", events[1], micros(db.now(t).Add(recheckUnwritten)))
			db.exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
			in.mustLease(t, 0)
		})
		db.exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		l := in.mustLease(t, 1)[0]
		testkit.Equal(t, "the earlier one first", events[0], l.Delivery.Event)
		db.exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		in.mustLease(t, 0)
		in.mustComplete(t, succeeded(l))
		testkit.Equal(t, "then the later one", events[1], in.mustLease(t, 1)[0].Delivery.Event)
	})
}

// An event whose transaction is committed late, as that of a decline may be, is sent next, and not beside a later one
// that is being sent.
func TestALateEventIsSentNext(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		db.endpoint(t, "*", nil)
		_, events := in.changed(t, 4)
		late := events[1]
		in.unwritten(t, []dispatch.EventID{late}, func() {
			db.exec(t, "DELETE FROM webhook_events")
			in.mustComplete(t, succeeded(in.mustLease(t, 1)[0]))
			l := in.mustLease(t, 1)[0]
			testkit.Equal(t, "the next one", events[2], l.Delivery.Event)
			db.write(t, []webhookEventRow{{l.Delivery.Dispatch, late}})
			in.fanOut(t)
			in.mustLease(t, 0)
			in.mustComplete(t, succeeded(l))
			for _, want := range []dispatch.EventID{late, events[3]} {
				l := in.mustLease(t, 1)[0]
				testkit.Equal(t, "the next one", want, l.Delivery.Event)
				in.mustComplete(t, succeeded(l))
			}
		})
	})
}

// An endpoint that fails holds back the later events of its dispatch, and neither other dispatches nor other endpoints.
func TestFailureHoldsBackItsDispatchOnly(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		bad, good := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		one, events := in.changed(t, 3)
		two, others := in.changed(t, 3)
		in.fanOut(t)
		var r receiver
		for range 4 {
			leases, _, err := in.sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
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
		db.allDue(t)
		again := in.mustLease(t, 1)[0]
		if again.Delivery.Event != events[0] || again.Attempt != 2 {
			t.Errorf("sent again: %+v", again)
		}
	})
}

// Each endpoint gets as many leases as it has free places, however many of its deliveries are due.
func TestLeasesOfABusyEndpoint(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		slow, quick := db.endpoint(t, "*", nil), db.endpoint(t, "*", nil)
		for range 6 {
			in.changed(t, 1)
		}
		in.fanOut(t)
		count := func(busy map[webhook.ID]int, limit int) map[webhook.ID]int {
			t.Helper()
			leases, _, err := in.sends.LeaseDeliveries(t.Context(), 4, busy, limit)
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

// Whatever is written and leased while a delivery ends: the next one of its dispatch is due then.
func TestTheNextDeliveryIsDueAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		db.endpoint(t, "*", nil)
		db.endpoint(t, "*", nil)
		for range testkit.Scale(15, 100) {
			one, two := a.add(t, nil), a.add(t, nil)
			a.fanOut(t)
			results := collect(a.mustLease(t, 4), succeeded)
			a.mustUpdate(t, one.ID, touch)
			a.mustUpdate(t, two.ID, touch)
			mustAll(t, 3, func(i int) error {
				switch i {
				case 0:
					return errorOf(a.sends.CompleteDeliveries(t.Context(), results))
				case 1:
					_, _, err := b.sends.WriteDeliveries(t.Context(), webhookBody)
					return err
				}
				leases, _, err := b.sends.LeaseDeliveries(t.Context(), 100, nil, 100)
				return errors.Join(err, b.sends.ReleaseDeliveries(t.Context(), leases))
			})
			a.fanOut(t)
			a.mustComplete(t, collect(a.mustLease(t, 4), succeeded)...)
		}
		db.mustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
	})
}

// The end of a delivery waits for a lease that is about to put the next one off for it, and then makes that one due.
func TestTheNextDeliveryIsPutOffMeanwhile(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to := db.endpoint(t, "*", nil)
		d, events := in.changed(t, 2)
		in.fanOut(t)
		l := in.mustLease(t, 1)[0]
		db.exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		lease := db.begun(t, fmt.Sprintf("UPDATE webhook_deliveries SET next_at = 4000000000000000"+
			" WHERE dispatch_id = '%s' AND webhook_id = '%s' AND event_id = '%s'", d.ID, to, events[1]))
		ended := begin(func() error { return errorOf(in.sends.CompleteDeliveries(t.Context(), []webhook.Result{succeeded(l)})) })
		testkit.Eventually(t, "the completion waits", func() bool {
			return slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool {
				return strings.HasPrefix(s.Statement, "UPDATE webhook_deliveries FORCE INDEX (PRIMARY) SET next_at")
			})
		})
		must(t, lease.Commit())
		must(t, testkit.Await(t, "the completion", ended))
		testkit.Equal(t, "the next one", events[1], in.mustLease(t, 1)[0].Delivery.Event)
	})
}

// A delivery whose lease was lost is another process's: the result is ignored, and so is one that comes twice.
func TestLostLeaseOfADelivery(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		to := db.endpoint(t, "*", nil)
		a.changed(t, 2)
		a.fanOut(t)
		old := a.mustLease(t, 1)[0]
		b.mustLease(t, 0)
		db.allDue(t) // the lease has ended
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
		db.mustCount(t, 1, "webhook_deliveries WHERE claim = 'ins_b' AND next_at > ?", micros(db.now(t)))
		db.mustCount(t, 1, "webhooks WHERE status = 'ACTIVE' AND failing_since IS NULL")

		b.mustComplete(t, failed(taken))
		db.allDue(t)
		b.mustLease(t, 1)
		b.mustComplete(t, failed(taken)) // which has been counted
		testkit.Equal(t, "attempts", 1, b.deliveries(t, to)[0].Attempt)
		db.mustCount(t, 1, "webhook_deliveries WHERE claim = 'ins_b'")

		must(t, b.sends.ReleaseDeliveries(t.Context(), []webhook.Lease{taken}))
		if l := a.mustLease(t, 1)[0]; l.Attempt != 2 || !l.LeasedUntil.After(time.Now()) {
			t.Errorf("leased after the release: %+v", l)
		}
	})
}

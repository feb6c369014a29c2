package webhooks_test

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
	"firsttap/dispatch/webhook"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/webhooks"
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
func (r *receiver) deliverAll(t *testing.T, deliveries int, instances ...*Courier) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), testkit.Patience)
	defer end()
	MustAll(t, 2*len(instances), func(i int) error {
		sends := instances[i/2].Sends
		for !r.has(deliveries) {
			if ctx.Err() != nil {
				return errors.New("not all was delivered in time")
			}
			if i%2 == 0 {
				if _, _, err := sends.WriteDeliveries(ctx, WebhookBody); err != nil {
					return err
				}
				continue
			}
			leases, _, err := sends.LeaseDeliveries(ctx, 8, nil, 16)
			if err != nil {
				return err
			}
			results := Collect(leases, func(l webhook.Lease) webhook.Result { r.take(l); return succeeded(l) })
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

// release ends the leases of deliveries that were not sent.
func release(in *Courier, t testing.TB, leases []webhook.Lease) error {
	return ErrorOf(in.Sends.CompleteDeliveries(t.Context(), Collect(leases, func(l webhook.Lease) webhook.Result {
		return webhook.Result{Lease: l, Unsent: true}
	})))
}

// A delivery waits for that of an earlier event of its dispatch, also while that is still to be written, and no other
// dispatch does.
func TestLaterEventWaitsForTheEarlier(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		db.AddEndpoint(t, "*", nil)
		_, events := changed(in.Bench, t, 2)
		_, others := changed(in.Bench, t, 1)
		unwritten(in, t, events[:1], func() {
			testkit.Equal(t, "what is sent", others[0], in.MustLease(t, 1)[0].Delivery.Event)
			db.MustCount(t, 1, "webhook_deliveries WHERE event_id = ? AND next_at <= ?", events[1], database.Micros(db.Now(t).Add(webhooks.RecheckUnwritten)))
			db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
			in.MustLease(t, 0)
		})
		db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		l := in.MustLease(t, 1)[0]
		testkit.Equal(t, "the earlier one first", events[0], l.Delivery.Event)
		db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		in.MustLease(t, 0)
		in.MustComplete(t, succeeded(l))
		testkit.Equal(t, "then the later one", events[1], in.MustLease(t, 1)[0].Delivery.Event)
	})
}

// An event whose transaction is committed late, as that of a decline may be, is sent next, and not beside a later one
// that is being sent.
func TestALateEventIsSentNext(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		db.AddEndpoint(t, "*", nil)
		_, events := changed(in.Bench, t, 4)
		late := events[1]
		unwritten(in, t, []dispatch.EventID{late}, func() {
			db.Exec(t, "DELETE FROM webhook_events")
			in.MustComplete(t, succeeded(in.MustLease(t, 1)[0]))
			l := in.MustLease(t, 1)[0]
			testkit.Equal(t, "the next one", events[2], l.Delivery.Event)
			db.Write(t, []webhooks.EventRow{{DispatchID: l.Delivery.Dispatch, EventID: late}})
			fanOut(in, t)
			in.MustLease(t, 0)
			in.MustComplete(t, succeeded(l))
			for _, want := range []dispatch.EventID{late, events[3]} {
				l := in.MustLease(t, 1)[0]
				testkit.Equal(t, "the next one", want, l.Delivery.Event)
				in.MustComplete(t, succeeded(l))
			}
		})
	})
}

// An endpoint that fails holds back the later events of its dispatch, and neither other dispatches nor other endpoints.
func TestFailureHoldsBackItsDispatchOnly(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		bad, good := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "*", nil)
		one, events := changed(in.Bench, t, 3)
		two, others := changed(in.Bench, t, 3)
		fanOut(in, t)
		var r receiver
		for range 4 {
			leases, _, err := in.Sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
			Must(t, err)
			in.MustComplete(t, Collect(leases, func(l webhook.Lease) webhook.Result {
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
		allDue(db, t)
		again := in.MustLease(t, 1)[0]
		if again.Delivery.Event != events[0] || again.Attempt != 2 {
			t.Errorf("sent again: %+v", again)
		}
	})
}

// Each endpoint gets as many leases as it has free places, however many of its deliveries are due.
func TestLeasesOfABusyEndpoint(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		slow, quick := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "*", nil)
		for range 6 {
			changed(in.Bench, t, 1)
		}
		fanOut(in, t)
		count := func(busy map[webhook.ID]int, limit int) map[webhook.ID]int {
			t.Helper()
			leases, _, err := in.Sends.LeaseDeliveries(t.Context(), 4, busy, limit)
			Must(t, err)
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
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.Courier(t, "ins_a"), db.Courier(t, "ins_b")
		db.AddEndpoint(t, "*", nil)
		db.AddEndpoint(t, "*", nil)
		for range testkit.Scale(15, 100) {
			one, two := a.Add(t, nil), a.Add(t, nil)
			fanOut(a, t)
			results := Collect(a.MustLease(t, 4), succeeded)
			a.MustUpdate(t, one.ID, Touch)
			a.MustUpdate(t, two.ID, Touch)
			MustAll(t, 3, func(i int) error {
				switch i {
				case 0:
					return ErrorOf(a.Sends.CompleteDeliveries(t.Context(), results))
				case 1:
					_, _, err := b.Sends.WriteDeliveries(t.Context(), WebhookBody)
					return err
				}
				leases, _, err := b.Sends.LeaseDeliveries(t.Context(), 100, nil, 100)
				return errors.Join(err, release(b, t, leases))
			})
			fanOut(a, t)
			a.MustComplete(t, Collect(a.MustLease(t, 4), succeeded)...)
		}
		db.MustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
	})
}

// The end of a delivery waits for a lease that is about to put the next one off for it, and then makes that one due.
func TestTheNextDeliveryIsPutOffMeanwhile(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		d, events := changed(in.Bench, t, 2)
		fanOut(in, t)
		l := in.MustLease(t, 1)[0]
		db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1 WHERE claim = ''")
		lease := db.Begun(t, fmt.Sprintf("UPDATE webhook_deliveries SET next_at = 4000000000000000"+
			" WHERE dispatch_id = '%s' AND webhook_id = '%s' AND event_id = '%s'", d.ID, to, events[1]))
		ended := Begin(func() error {
			return ErrorOf(in.Sends.CompleteDeliveries(t.Context(), []webhook.Result{succeeded(l)}))
		})
		testkit.Eventually(t, "the completion waits", func() bool {
			return slices.ContainsFunc(servertest.Sessions(t, db.Raw), func(s servertest.Session) bool {
				return strings.HasPrefix(s.Statement, "UPDATE webhook_deliveries FORCE INDEX (PRIMARY) SET next_at")
			})
		})
		Must(t, lease.Commit())
		Must(t, testkit.Await(t, "the completion", ended))
		testkit.Equal(t, "the next one", events[1], in.MustLease(t, 1)[0].Delivery.Event)
	})
}

// A delivery whose lease was lost is another process's: the result is ignored, and so is one that comes twice.
func TestLostLeaseOfADelivery(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.Courier(t, "ins_a"), db.Courier(t, "ins_b")
		to := db.AddEndpoint(t, "*", nil)
		changed(a.Bench, t, 2)
		fanOut(a, t)
		old := a.MustLease(t, 1)[0]
		b.MustLease(t, 0)
		allDue(db, t) // the lease has ended
		taken := b.MustLease(t, 1)[0]
		testkit.Equal(t, "the delivery that was taken over", old.Delivery, taken.Delivery)
		before := deliveries(a.Bench, t, to)
		for _, late := range []webhook.Result{succeeded(old), failed(old), {Lease: old, Attempt: failed(old).Attempt, Gone: true}} {
			if paused := a.MustComplete(t, late); len(paused) != 0 {
				t.Errorf("paused: %v", paused)
			}
		}
		Must(t, release(a, t, []webhook.Lease{old}))
		testkit.Equal(t, "the deliveries after a late result", before, deliveries(a.Bench, t, to))
		db.MustCount(t, 1, "webhook_deliveries WHERE claim = 'ins_b' AND next_at > ?", database.Micros(db.Now(t)))
		db.MustCount(t, 1, "webhooks WHERE status = 'ACTIVE' AND failing_since IS NULL")

		b.MustComplete(t, failed(taken))
		allDue(db, t)
		b.MustLease(t, 1)
		b.MustComplete(t, failed(taken)) // which has been counted
		testkit.Equal(t, "attempts", 1, deliveries(b.Bench, t, to)[0].Attempt)
		db.MustCount(t, 1, "webhook_deliveries WHERE claim = 'ins_b'")

		taken.Attempt = 2
		Must(t, release(b, t, []webhook.Lease{taken}))
		testkit.Equal(t, "attempts that are kept", 1, len(deliveries(b.Bench, t, to)[0].Attempts))
		if l := a.MustLease(t, 1)[0]; l.Attempt != 2 || !l.LeasedUntil.After(time.Now()) {
			t.Errorf("leased after the release: %+v", l)
		}
	})
}

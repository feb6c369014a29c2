//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/dispatch/webhook"
)

// TestHangingEndpoint: an endpoint that hangs occupies its own 16 attempts, however long its queue is, and all other
// endpoints, 49 of them, get what they are due without any wait.
func TestHangingEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.world.answer = func(ctx context.Context, l webhook.Lease) int {
			if l.Delivery.Endpoint == "hangs" {
				return hang(ctx)
			}
			return 200
		}
		k.store.add("hangs", 10_000)
		k.Wake()
		time.Sleep(5 * time.Second)
		began := time.Now()
		for n := range webhook.MaxEndpoints - 1 {
			k.store.add(webhook.ID(fmt.Sprint("well-", n)), 100)
		}
		k.Wake()
		for {
			synctest.Wait()
			if due, _, _, _ := k.store.counts(); due <= 10_000-16 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		// Of 100 deliveries each, 16 are leased at a time, and recorded after 10 ms.
		if took := time.Since(began); took > time.Second {
			t.Errorf("the others waited for %s", took)
		}
		if _, most := k.world.attempted("hangs"); most != perEndpoint {
			t.Errorf("at most %d attempts at the endpoint that hangs, want %d", most, perEndpoint)
		}
		k.store.set(func() {
			clear(k.store.due)
		})
	})
}

// TestAllEndpointsHang: even if all but one hang, that one gets what it is due.
func TestAllEndpointsHang(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.world.answer = func(ctx context.Context, l webhook.Lease) int {
			if l.Delivery.Endpoint == "well" {
				return 200
			}
			return hang(ctx)
		}
		for n := range webhook.MaxEndpoints - 1 {
			k.store.add(webhook.ID(fmt.Sprint("hangs-", n)), 100)
		}
		k.Wake()
		synctest.Wait()
		if n := k.world.underWay(); n != perEndpoint*(webhook.MaxEndpoints-1) {
			t.Errorf("%d attempts are under way at once", n)
		}
		time.Sleep(time.Second)
		k.store.add("well", 16)
		k.Wake()
		time.Sleep(time.Second)
		synctest.Wait()
		if n, _ := k.world.attempted("well"); n != 16 {
			t.Errorf("%d of 16 deliveries were attempted", n)
		}
		k.store.set(func() {
			clear(k.store.due)
		})
	})
}

// TestResultsAreBatched: results that come within 10 ms are recorded in one transaction, and room is made by the
// record, not by the answer.
func TestResultsAreBatched(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.store.add("a", 2*perEndpoint)
		k.Wake()
		synctest.Wait()
		if n, _ := k.world.attempted("a"); n != perEndpoint {
			t.Errorf("%d attempts before the first record, want %d", n, perEndpoint)
		}
		time.Sleep(2*resultInterval + time.Millisecond)
		synctest.Wait()
		if sizes := k.store.batchSizes(); !slices.Equal(sizes, []int{perEndpoint, perEndpoint}) {
			t.Errorf("batches of %v", sizes)
		}
		if due, leased, _, _ := k.store.counts(); due+leased != 0 {
			t.Errorf("%d due, %d leased", due, leased)
		}
		if n := testutil.ToFloat64(k.metrics.attempts.WithLabelValues(resultDelivered)); n != 2*perEndpoint {
			t.Errorf("%v are counted as delivered", n)
		}
	})
}

// TestIdleCourier: without a delivery that is due, a courier asks for the time of the next one, and leases nothing.
func TestIdleCourier(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		time.Sleep(time.Hour)
		if k.store.leaseCount() != 0 {
			t.Errorf("%d leases in an idle hour", k.store.leaseCount())
		}
		k.store.set(func() {
			k.store.next = time.Now().Add(90 * time.Minute)
		})
		time.Sleep(80 * time.Minute)
		if k.store.leaseCount() != 0 {
			t.Errorf("%d leases before anything was due", k.store.leaseCount())
		}
	})
}

// TestDueWithoutAWord: what becomes due without anybody saying so is attempted at that moment.
func TestDueWithoutAWord(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		at := time.Now().Add(time.Minute)
		k.store.set(func() {
			k.store.next = at
		})
		time.Sleep(time.Until(at) - time.Nanosecond)
		synctest.Wait()
		if k.store.leaseCount() != 0 {
			t.Errorf("%d leases before it was due", k.store.leaseCount())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if k.store.leaseCount() == 0 {
			t.Error("not leased when it was due")
		}
		k.store.set(func() {
			k.store.next = time.Time{}
		})
	})
}

// TestDrain: a courier that is stopped leases nothing more, waits for the attempts in flight, records them, and
// releases what it leased at the last moment. What has no answer after the drain is released too, and counts as no
// failure of the endpoint.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.world.answer = func(ctx context.Context, l webhook.Lease) int {
			if l.Delivery.Endpoint == "slow" {
				time.Sleep(7 * time.Second)
				return 200
			}
			return hang(ctx)
		}
		k.store.add("slow", 20)
		k.Wake()
		time.Sleep(time.Second)
		k.store.add("hangs", 3)
		k.Wake()
		synctest.Wait()
		k.options.DrainTimeout = 8 * time.Second
		began := time.Now()
		k.stop()
		if took := time.Since(began); took != 8*time.Second+resultInterval && took != 8*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if due, leased, completed, released := k.store.counts(); due != 4 || leased != 0 || completed != 16 || released != 3 {
			t.Errorf("%d due, %d leased, %d completed, %d released", due, leased, completed, released)
		}
		if n := testutil.ToFloat64(k.metrics.attempts.WithLabelValues(resultNoAnswer)); n != 0 {
			t.Errorf("%v are counted as failed", n)
		}
	})
}

// TestLeaseDuringTheStop: a lease that was under way when the courier was stopped is released, unsent.
func TestLeaseDuringTheStop(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.store.set(func() { k.store.duringLease = func() { time.Sleep(2 * time.Second) } })
		k.store.add("a", 5)
		k.Wake()
		time.Sleep(time.Second)
		k.stop()
		due, leased, completed, released := k.store.counts()
		if n, _ := k.world.attempted("a"); due != 0 || leased != 0 || completed != 0 || released != 5 || n != 0 {
			t.Errorf("%d due, %d leased, %d completed, %d released, %d attempts", due, leased, completed, released, n)
		}
	})
}

// TestShortLease: a lease that may end before an attempt does is released: another process would attempt the delivery
// at the same time.
func TestShortLease(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.store.set(func() { k.store.term = webhook.AttemptTimeout - time.Millisecond })
		k.store.add("a", 5)
		k.Wake()
		time.Sleep(100 * time.Millisecond)
		_, _, completed, released := k.store.counts()
		if n, _ := k.world.attempted("a"); completed != 0 || released != 5 || n != 0 {
			t.Errorf("%d completed, %d released, %d attempts", completed, released, n)
		}
	})
}

// TestDatabaseAway: results are kept while the database does not answer, and recorded when it does, without another
// attempt. A result whose lease is about to end is given up, and the endpoint may have another delivery in its place.
func TestDatabaseAway(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.world.answer = func(context.Context, webhook.Lease) int { time.Sleep(time.Second); return 200 }
		k.store.add("a", perEndpoint)
		k.Wake()
		synctest.Wait()
		k.store.setFailure(errors.New("away"))
		time.Sleep(10 * time.Second)
		k.store.setFailure(nil)
		time.Sleep(writeRetry)
		synctest.Wait()
		_, _, completed, _ := k.store.counts()
		if n, _ := k.world.attempted("a"); completed != perEndpoint || n != perEndpoint {
			t.Errorf("%d completed, %d attempts", completed, n)
		}

		k.store.add("a", perEndpoint)
		k.Wake()
		synctest.Wait()
		k.store.setFailure(errors.New("away"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if _, room := k.room(); room != maxBatch || k.log.Count("they may be sent again when their leases end") != 1 {
			t.Errorf("room for %d; the log says:\n%s", room, k.log)
		}
		if n := k.log.Count("not leased; the courier tries again until they are"); n != 2 {
			t.Errorf("the log says %d times in two outages that nothing can be leased", n)
		}
		k.store.setFailure(nil)
	})
}

// TestStopWhileTheDatabaseIsAway: the courier gives up when the drain has ended.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.store.add("a", 3)
		k.Wake()
		synctest.Wait()
		k.store.setFailure(errors.New("away"))
		began := time.Now()
		k.stop()
		if took := time.Since(began); took > defaultDrain+writeTimeout || k.log.Count("results of webhook deliveries not recorded") != 1 {
			t.Errorf("the stop took %s; the log says:\n%s", took, k.log)
		}
	})
}

// TestEventsAreWritten: after a commit, the deliveries of all new events are written and sent at once. While no
// endpoint is active, events are taken from the queue once a second, however many commits there are.
func TestEventsAreWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		k.store.set(func() { k.store.events = 3 })
		began := time.Now()
		k.OnCommit()
		for {
			synctest.Wait()
			if n, _ := k.world.attempted("written"); n == 3 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("sent after %s", took)
		}
		var before int
		k.store.set(func() { k.store.silent, before = true, k.store.writes })
		for range 1000 {
			k.OnCommit()
			time.Sleep(10 * time.Millisecond)
		}
		k.store.set(func() {
			if n := k.store.writes - before; n < 9 || n > 12 {
				t.Errorf("%d writes in ten seconds without an endpoint", n)
			}
		})
	})
}

// TestFailures: they are counted by what the endpoint did, the last one of a delivery is logged, and so is an
// endpoint that is paused, once and without its URL.
func TestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, k *courier) {
		status := map[webhook.ID]int{"gone": 410, "broken": 500, "away": 0, "well": 204}
		k.world.answer = func(_ context.Context, l webhook.Lease) int { return status[l.Delivery.Endpoint] }
		for endpoint := range status {
			k.store.add(endpoint, 2)
		}
		k.store.set(func() {
			k.store.due["broken"][0].Attempt = 8
			k.store.due["gone"][0].Attempt = 8
			since := time.Now()
			k.store.paused = []webhook.Endpoint{
				{ID: "whk_1", URL: "https://hush.test/", Status: webhook.Paused, PauseReason: webhook.PausedGone, FailingSince: &since},
			}
		})
		k.Wake()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		for result, want := range map[string]float64{resultDelivered: 2, resultRefused: 2, resultGone: 2, resultNoAnswer: 2} {
			if got := testutil.ToFloat64(k.metrics.attempts.WithLabelValues(result)); got != want {
				t.Errorf("%s: %v, want %v", result, got, want)
			}
		}
		if got := testutil.ToFloat64(k.metrics.paused.WithLabelValues("gone")); got != 1 {
			t.Errorf("%v paused", got)
		}
		log := k.log.String()
		if k.log.Count("ALERT: webhook endpoint paused") != 1 || k.log.Count("failed for the last time") != 1 || strings.Contains(log, "hush") {
			t.Errorf("the log says:\n%s", log)
		}
	})
}

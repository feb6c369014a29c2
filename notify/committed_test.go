//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"firsttap/repository/pushes"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify"
)

// due returns how many events wait for a relay, or were left by one. It does not count events that a relay leases.
func (o *office) due() int {
	o.t.Helper()
	owner := dispatch.NewUniqueID("ins_", time.Now())
	leased, err := o.store.Outbox(pushes.Options{Owner: owner, LeaseTerm: time.Microsecond}).LeaseEvents(o.t.Context(), 1000)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(leased)
}

// untilFinished waits until the relay has completed so many events.
func (o *office) untilFinished(r *relaying, events int) {
	o.t.Helper()
	o.eventually("every event is completed", func() bool { return r.wire.finished() == events })
}

// longLeases makes leases outlast the test where time is real: what a relay has forgotten then stays so.
func (o *office) longLeases(_ *notify.RelayOptions, b *pushes.Options) {
	if !o.bubble {
		b.LeaseTerm = time.Hour
	}
}

// assignUnseen has a driver win a dispatch that nobody was told about.
func (o *office) assignUnseen(v dispatch.Driver) dispatch.Dispatch {
	o.t.Helper()
	d := o.offerIn(v.Regions[0])
	o.accept(d, v)
	return d
}

// start has the winner start the work: an event with nothing to be sent.
func (o *office) start(d dispatch.Dispatch) {
	o.t.Helper()
	_, err := o.store.Dispatches.Update(o.t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Start(dispatch.Driver{ID: d.Claim.Driver}, now)
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// Events with nothing to be sent are completed together, and no relay finds one later.
func TestEventsWithoutDeliveries(t *testing.T) {
	t.Parallel()
	onDatabasesInAll(t, 1, func(t *testing.T, o *office) {
		const jobs = 20
		var won []dispatch.Dispatch
		r := o.relay(o.longLeases)
		for _, v := range o.accounts(jobs, "jeju") {
			won = append(won, o.assignUnseen(v))
		}
		o.untilFinished(r, 2*jobs)
		r.wire.set(noFault, 0)
		for _, d := range won {
			o.start(d)
		}
		o.untilFinished(r, 3*jobs)
		r.stop()
		calls := map[string]int{}
		for _, c := range r.wire.made() {
			calls[c.name]++
		}
		testkit.Equal(t, "events that are due", 0, o.due())
		if n := calls["RecordResults"]; calls["Expand"] > 0 || n == 0 || o.bubble && n > 2 {
			t.Errorf("%d events are expanded, and %d statements complete the others", calls["Expand"], n)
		}
	})
}

// Claims that are committed within some milliseconds are expanded by few calls.
func TestClaimsThatComeFast(t *testing.T) {
	t.Parallel()
	inBubble(t, 20, func(t *testing.T, o *office) {
		r := o.relay(nil)
		drivers := o.accounts(len(o.cars), "jeju")
		var offers []dispatch.Dispatch
		for range drivers {
			offers = append(offers, o.offerIn("jeju"))
		}
		o.untilFinished(r, len(offers))
		r.wire.set(noFault, 0)
		testkit.Together(len(drivers), func(i int) { o.accept(offers[i], drivers[i]) })
		o.untilFinished(r, 2*len(offers))
		calls := 0
		for _, c := range r.wire.made() {
			if c.name == "Expand" {
				calls++
			}
		}
		if calls == 0 || calls > 3 {
			t.Errorf("%d claims are expanded by %d calls, want few", len(offers), calls)
		}
	})
}

// Events that have to wait for another's expansion are expanded together: the drivers of all of them are told, and nobody twice.
func TestWaitingEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, 20, func(t *testing.T, o *office) {
		r := o.relay(nil)
		without := o.accounts(len(o.cars), "jeju")
		var seen, unseen []dispatch.Dispatch
		for range o.cars {
			seen, unseen = append(seen, o.offer()), append(unseen, o.offerIn("jeju"))
		}
		o.eventually("all are told of all", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars)*len(seen) })
		synctest.Wait() // until the other offers are expanded, too
		r.wire.set(noFault, 0)
		r.wire.setNext(replyIsLate, "Expand")
		began := time.Now()
		for i := range seen {
			o.accept(seen[i], o.cars[i])
			o.accept(unseen[i], without[i])
		}
		o.eventually("the winners alone are told that they won", func() bool {
			return o.shows(dispatch.EventOpened) == 0 && o.shows(dispatch.EventAccepted) == len(o.cars)
		})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a winner was told after %s, when the lease had ended", took)
		}
		calls, events := 0, 0
		for _, c := range r.wire.made() {
			if c.name == "Expand" {
				calls, events = calls+1, events+len(c.events)
			}
		}
		if events != len(seen)+len(unseen) || calls > events/4 {
			t.Errorf("%d events are expanded by %d calls, want %d by few", events, calls, len(seen)+len(unseen))
		}
		testkit.Equal(t, "messages that came twice", 0, o.twice())
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// Cancelations of dispatches that nobody was offered, which have no driver either, hide no later cancelation.
func TestCancelationsWithoutRecipients(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		r := o.relay(nil)
		cancel := func(d dispatch.Dispatch) {
			t.Helper()
			_, err := o.store.Dispatches.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Cancel(d.Version, "key_1", "RAIN", now)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		first, last := o.offer(), o.offer()
		unseen := []dispatch.Dispatch{o.offerIn("jeju"), o.offerIn("jeju")}
		o.eventually("all are told of both", func() bool { return o.shows(dispatch.EventOpened) == 2*len(o.cars) })
		synctest.Wait() // until the other offers are expanded, too
		r.wire.setNext(replyIsLate, "Expand")
		cancel(first)
		for _, d := range unseen {
			cancel(d) // and waits for the first
		}
		o.eventually("the first offer is gone from all phones", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		cancel(last)
		o.eventually("no phone shows a canceled offer", func() bool { return o.shows(dispatch.EventOpened) == 0 })
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// A relay that stops completes first what waits for its completion.
func TestRelayEndsWithCompletions(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r := o.relay(nil)
		d := o.assignUnseen(o.accounts(1, "jeju")[0])
		synctest.Wait()
		o.start(d)
		synctest.Wait()
		before := time.Now()
		r.stop()
		testkit.Equal(t, "time to stop", 0, time.Since(before))
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// If the completion of events fails, the relay completes them within seconds. It does not wait until their leases end.
func TestCompletionFails(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r := o.relay(o.longLeases)
		d := o.assignUnseen(o.accounts(1, "jeju")[0])
		synctest.Wait()
		r.wire.setNext(requestIsLost, "RecordResults")
		o.start(d)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "faults that have not struck", 0, r.wire.ahead())
		r.stop() // which releases what the relay has leased and not completed
		testkit.Equal(t, "events that are not completed", 0, o.due())
	})
}

// Other events are expanded while the expansion of one event is slow.
func TestSlowExpansionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r, _ := o.relayBeside(nil)
		r.wire.setNext(replyIsLate, "Expand")
		o.offer()
		o.offer()
		r.Wake()
		began := time.Now()
		o.eventually("an offer arrives", func() bool { return o.shows(dispatch.EventOpened) == 1 })
		if took := time.Since(began); took >= lateReplyDelay {
			t.Errorf("the first offer arrived after %s, when the slow expansion had ended", took)
		}
		o.eventually("both arrive", func() bool { return o.shows(dispatch.EventOpened) == 2 })
	})
}

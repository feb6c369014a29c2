package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/testkit"
)

// due returns how many events wait for a relay, or were left by one.
func (o *office) due() int {
	o.t.Helper()
	owner := dispatch.NewUniqueID("ins_", time.Now())
	leased, err := o.store.Outbox(repository.OutboxOptions{Owner: owner, LeaseTerm: time.Microsecond}).LeaseEvents(o.t.Context(), 1000)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(leased)
}

// assignUnseen has a driver win a dispatch that nobody was told about.
func (o *office) assignUnseen(v dispatch.Driver) dispatch.Dispatch {
	o.t.Helper()
	d := o.offerIn(v.Regions[0])
	o.accept(d, v)
	return d
}

// Events that concern no device are completed together. Only the first few of them are expanded, and no relay finds one later.
func TestEventsWithoutRecipients(t *testing.T) {
	t.Parallel()
	onDatabasesInAll(t, 1, func(t *testing.T, o *office) {
		const jobs = 50
		drivers := o.accounts(jobs, "jeju")
		r := o.relay(nil)
		r.wire.set(noFault, 0)
		for _, v := range drivers {
			d := o.assignUnseen(v)
			_, err := o.store.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Start(v, now)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		o.wait(time.Minute, 2*time.Second) // in a bubble, until every lease has ended
		calls := map[string]int{}
		for _, c := range r.wire.made() {
			calls[c.name]++
		}
		testkit.Equal(t, "events that are due", 0, o.due())
		// Each offer is expanded.
		if n := calls["Expand"] - jobs; n > jobs/5 {
			t.Errorf("%d of %d events without recipients were expanded", n, 2*jobs)
		}
		if n := calls["CompleteEvents"]; n == 0 || o.bubble && n > 5 {
			t.Errorf("%d statements completed them", n)
		}
	})
}

// Events with recipients between others without: each is told to whom it concerns.
func TestEventsWithAndWithoutRecipients(t *testing.T) {
	t.Parallel()
	onDatabasesInAll(t, 20, func(t *testing.T, o *office) {
		without := o.accounts(1+len(o.cars), "jeju")
		r := o.relay(nil)
		var seen []dispatch.Dispatch
		for range o.cars {
			seen = append(seen, o.offer())
		}
		o.eventually("all are told of all", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars)*len(seen) })
		o.assignUnseen(without[len(seen)])
		if o.bubble {
			synctest.Wait()                                  // the relay has learned that events may have no recipients
			r.wire.setNext(replyIsLate, "WithoutRecipients") // the others wait together
		}
		began := time.Now()
		for i, d := range seen {
			o.assignUnseen(without[i])
			o.accept(d, o.cars[i])
		}
		o.eventually("the winners alone are told that they won", func() bool {
			return o.shows(dispatch.EventOpened) == 0 && o.shows(dispatch.EventAccepted) == len(o.cars)
		})
		if took := time.Since(began); o.bubble && took > 2*lateReplyDelay {
			t.Errorf("a winner was told after %s, when the lease had ended", took)
		}
		testkit.Equal(t, "messages that came twice", 0, o.twice())
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// A relay that stops completes first what waits for its completion.
func TestRelayEndsWithCompletions(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r := o.relay(nil)
		for i, v := range o.accounts(2, "jeju") {
			o.assignUnseen(v)
			if i == 0 {
				time.Sleep(time.Second) // the relay has learned that events may have no recipients
			}
		}
		synctest.Wait()
		before := time.Now()
		r.stop()
		testkit.Equal(t, "time to stop", 0, time.Since(before))
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

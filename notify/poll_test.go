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

// A relay that has nothing to do only asks what is due.
func TestIdleRelay(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, o *office) {
		r := o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.PollInterval = time.Second })
		v := o.accounts(1, "jeju")[0]
		o.assignUnseen(v)
		time.Sleep(time.Minute)
		r.wire.set(noFault, 0)
		time.Sleep(time.Minute)
		calls := map[string]int{}
		for _, c := range r.wire.made() {
			calls[c.name]++
		}
		if n := calls["Due"]; n < 48 || len(calls) != 1 { // most of them get the poll of before
			t.Errorf("in a minute it called %v", calls)
		}
	})
}

// A relay takes the events of a dead instance over when their leases end, and not up to a second later.
func TestEndOfALease(t *testing.T) {
	const term = 10*time.Second + 123*time.Millisecond
	inBubble(t, 3, func(t *testing.T, o *office) {
		o.offer()
		dead := o.store.Outbox(pushes.Options{Owner: "ins_dead", LeaseTerm: term})
		if leased, err := dead.LeaseEvents(t.Context(), 10); len(leased) != 1 || err != nil {
			t.Fatalf("leased %v, %v", leased, err)
		}
		o.relay(nil)
		time.Sleep(term - time.Millisecond)
		testkit.Equal(t, "phones that show the offer before the lease has ended", 0, o.shows(dispatch.EventOpened))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		testkit.Equal(t, "phones that show it", len(o.cars), o.shows(dispatch.EventOpened))
	})
}

// A relay that can't poll, because a table that it does not need is locked, still takes events over and counts its backlog.
func TestRelayWithoutPolls(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, o *office) {
		another := o.store
		r := o.relay(nil)
		r.wire.blind()
		synctest.Wait() // until it has found nothing to take over
		o.store = another
		o.offer()
		o.untilAllShow()
		time.Sleep(time.Minute)
		n := 0
		for _, c := range r.wire.made() {
			if c.name == "Backlog" {
				n++
			}
		}
		if n == 0 {
			t.Error("the backlog is not counted")
		}
	})
}

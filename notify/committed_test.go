package notify_test

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
)

// Events that concern no device are not expanded after the first few, and completed together. No relay finds them later.
func TestEventsWithoutRecipients(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, o *office) {
		const jobs = 50
		without := o.accounts(1, "jeju")[0]
		r := o.relay(nil)
		r.wire.set(noFault, 0)
		for range jobs {
			o.accept(o.offerIn("jeju"), without)
		}
		o.wait(time.Second, time.Second)
		calls := map[string]int{}
		for _, c := range r.wire.made() {
			calls[c.name]++
		}
		if calls["Expand"] > jobs/10 || calls["CompleteEvents"] == 0 || calls["CompleteEvents"] > jobs/10 {
			t.Errorf("the relay's calls for %d dispatches are %v", jobs, calls)
		}
		r.stop()
		o.wait(time.Minute, time.Minute) // until any lease has ended
		later := o.store.Outbox(repository.OutboxOptions{Owner: dispatch.NewUniqueID("ins_", time.Now()), LeaseTerm: time.Minute})
		if due, err := later.LeaseEvents(t.Context(), 1000); err != nil || len(due) > 0 {
			t.Errorf("%d events are left, %v", len(due), err)
		}
	})
}

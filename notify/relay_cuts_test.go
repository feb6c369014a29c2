//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
)

// Whichever call of a relay the network loses or delays, every phone gets the push once, and nothing waits for ever.
func TestACallIsLost(t *testing.T) {
	t.Parallel()
	once := func(t *testing.T, o *office) {
		testkit.Equal(t, "messages that came twice", 0, o.twice())
	}
	// The call is repeated.
	eachCall(t, requestIsLost, 10*time.Second, once)
	eachCall(t, replyIsLate, 10*time.Second, once)
	// What a lost reply leased is sent when the lease ends.
	eachCall(t, replyIsLost, afterLease, once)
}

// When the expansion of an event fails, and the request that releases its lease fails too, the release is repeated: the event does not
// wait for the end of its lease.
func TestAReleaseIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, 65, func(t *testing.T, o *office) { // the first 64 pushes need no expansion
		r := o.relay(nil)
		synctest.Wait()
		r.wire.setNext(requestIsLost, "Expand", "ReleaseEvents")
		o.offer()
		time.Sleep(15 * time.Second) // two pauses between releases, and a poll
		testkit.Equal(t, "faults that have not struck", 0, r.wire.ahead())
		o.mustHaveSentAll()
	})
}

// Whenever a relay is killed, another sends its pushes when its leases end, and every phone shows the push once.
func TestARelayIsKilled(t *testing.T) {
	t.Parallel()
	for _, f := range []fault{killedBefore, killedAfter} {
		eachCall(t, f, afterLease, func(t *testing.T, o *office) {
			// What the push service accepted and the relay did not record is sent again.
			if again := o.twice(); again > len(o.cars) {
				t.Errorf("%d messages came twice", again)
			}
		})
	}
}

// afterLease is by when a push is sent whose first lease was lost: the lease of 30 s, a poll, and an attempt.
const afterLease = 36 * time.Second

// eachCall runs, for each call that a relay makes about one offer and two claims without recipients, a relay with that fault beside one
// without. All must be sent after the time settled, and no event be left when the leases have ended.
func eachCall(t *testing.T, f fault, settled time.Duration, judge func(*testing.T, *office)) {
	t.Helper()
	calls := 0
	run := func(t *testing.T, f fault, n int) {
		inBubble(t, 3, func(t *testing.T, o *office) {
			o.fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 50 * time.Millisecond })
			without := o.accounts(1, "jeju")[0]
			o.relayBeside(nil)
			r := o.relay(nil)
			synctest.Wait()
			r.wire.set(f, n)
			o.offer()
			for range 2 {
				o.assignUnseen(without)
				synctest.Wait()
			}
			time.Sleep(time.Duration(testkit.Scale(1, 10)) * time.Second)
			if f == noFault {
				calls = len(r.wire.made())
			}
			time.Sleep(settled)
			o.mustHaveSentAll()
			judge(t, o)
			time.Sleep(afterLease)
			testkit.Equal(t, "events that are due", 0, o.due())
		})
	}
	run(t, noFault, 0)
	for n := 1; n <= calls; n++ {
		t.Run(fmt.Sprintf("%s, call %d", f, n), func(t *testing.T) { run(t, f, n) })
	}
}

package outbox_test

import (
	"testing"

	. "firsttap/dispatch"
	"firsttap/outbox"
)

func TestLaneOf(t *testing.T) {
	for _, e := range []EventType{
		EventCreated, EventOpened, EventAccepted, EventTaken, EventDeclined, EventWithdrawn, EventReopened, EventUnassigned,
		EventUpdated, EventExpired, EventCanceled, EventStarted, EventCompleted, EventReminder,
	} {
		for _, delivery := range e.Deliveries() {
			want := map[Audience]outbox.Lane{AudienceClaimant: outbox.LaneClaimant, AudienceEligible: outbox.LaneOffer, AudienceOffered: outbox.LaneOfferEnd}[delivery.Audience]
			if got := outbox.LaneOf(delivery.Type, delivery.Silent); got != want {
				t.Errorf("%+v: lane %d, want %d", delivery, got, want)
			}
		}
	}
}

// Whatever waits beside it, each lane has its share; nobody's place is lost to a lane that is empty.
func TestLaneTurns(t *testing.T) {
	shares := map[outbox.Lane]int{outbox.LaneClaimant: 4, outbox.LaneOffer: 3, outbox.LaneRetry: 2, outbox.LaneOfferEnd: 1}
	for mask := range 1 << outbox.LaneCount {
		var waiting [outbox.LaneCount]bool
		all := 0
		for l := range waiting {
			if waiting[l] = mask&(1<<l) != 0; waiting[l] {
				all += shares[outbox.Lane(l)]
			}
		}
		var turns outbox.LaneRotation
		var got [outbox.LaneCount]int
		for range 7 * all {
			l, ok := turns.Next(waiting)
			if !ok {
				t.Fatalf("%v: nobody's turn", waiting)
			}
			got[l]++
		}
		for l, n := range got {
			if waiting[l] && n != 7*shares[outbox.Lane(l)] || !waiting[l] && n != 0 {
				t.Errorf("%v: lane %d had %d of %d turns", waiting, l, n, 7*all)
			}
		}
		if _, ok := turns.Next([outbox.LaneCount]bool{}); ok {
			t.Error("a turn where nobody waits")
		}
	}
}

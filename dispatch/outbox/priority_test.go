package outbox_test

import (
	"testing"

	. "firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

func TestPriorityOf(t *testing.T) {
	for _, e := range []EventType{
		EventCreated, EventOpened, EventAccepted, EventTaken, EventDeclined, EventWithdrawn, EventReopened, EventUnassigned,
		EventUpdated, EventExpired, EventCanceled, EventStarted, EventCompleted, EventReminder,
	} {
		for _, delivery := range e.Deliveries() {
			want := map[Audience]outbox.Priority{
				AudienceClaimant: outbox.PriorityJob, AudienceEligible: outbox.PriorityOffer, AudienceOffered: outbox.PriorityOfferEnd,
			}[delivery.Audience]
			if got := outbox.PriorityOf(delivery.Type, delivery.Silent); got != want {
				t.Errorf("%+v: priority %d, want %d", delivery, got, want)
			}
		}
	}
}

package dispatch_test

import (
	"reflect"
	"testing"
	"time"

	. "firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

var allEvents = []EventType{
	EventCreated, EventOpened, EventAccepted, EventTaken, EventDeclined, EventWithdrawn, EventReopened, EventUnassigned,
	EventUpdated, EventExpired, EventCanceled, EventStarted, EventCompleted, EventReminder,
}

func TestTellings(t *testing.T) {
	want := map[EventType][]Delivery{
		EventCreated:    {{Audience: AudienceEligible, Type: EventOpened}},
		EventOpened:     {{Audience: AudienceEligible, Type: EventOpened}},
		EventReopened:   {{Audience: AudienceEligible, Type: EventReopened}},
		EventUpdated:    {{Audience: AudienceEligible, Type: EventUpdated}},
		EventAccepted:   {{Audience: AudienceClaimant, Type: EventAccepted}, {Audience: AudienceOffered, Type: EventTaken, Silent: true}},
		EventUnassigned: {{Audience: AudienceClaimant, Type: EventUnassigned}},
		EventReminder:   {{Audience: AudienceClaimant, Type: EventReminder}},
		EventCanceled:   {{Audience: AudienceClaimant, Type: EventCanceled}, {Audience: AudienceOffered, Type: EventCanceled, Silent: true}},
		EventExpired:    {{Audience: AudienceOffered, Type: EventExpired, Silent: true}},
	}
	for _, e := range allEvents {
		if got := e.Deliveries(); !reflect.DeepEqual(got, want[e]) {
			t.Errorf("%s: %+v, want %+v", e, got, want[e])
		}
	}
}

// Eligible drivers get offers, and other audiences do not.
func TestOffers(t *testing.T) {
	want := map[EventType]bool{EventOpened: true, EventReopened: true, EventUpdated: true}
	for _, e := range allEvents {
		if e.IsOffer() != want[e] {
			t.Errorf("%s: %v", e, e.IsOffer())
		}
		for _, telling := range e.Deliveries() {
			if telling.Type.IsOffer() != (telling.Audience == AudienceEligible) {
				t.Errorf("%s: %+v", e, telling)
			}
		}
	}
}

func TestTellUntil(t *testing.T) {
	d := inState(Pending, "")
	expires, starts, ends := d.ExpiresAt, d.WorkStartsAt, d.WorkEndsAt // in 9 minutes, 1 hour, 2 hours
	for _, tt := range []struct {
		telling Delivery
		after   time.Duration // noon
		want    time.Time
	}{
		{Delivery{Type: EventOpened}, 0, expires},
		{Delivery{Type: EventReopened}, 0, expires},
		{Delivery{Type: EventUpdated}, time.Hour, expires}, // however late
		{Delivery{Type: EventReminder}, 0, starts},
		{Delivery{Type: EventReminder}, 3 * time.Hour, starts},
		{Delivery{Type: EventTaken, Silent: true}, -5 * time.Minute, expires},
		{Delivery{Type: EventTaken, Silent: true}, -time.Minute, expires},
		{Delivery{Type: EventTaken, Silent: true}, 0, noon.Add(10 * time.Minute)},
		{Delivery{Type: EventExpired, Silent: true}, time.Hour, noon.Add(70 * time.Minute)},
		{Delivery{Type: EventCanceled, Silent: true}, 0, noon.Add(10 * time.Minute)},
		{Delivery{Type: EventCanceled}, 0, ends},
		{Delivery{Type: EventAccepted}, 0, ends},
		{Delivery{Type: EventUnassigned}, time.Hour, ends},
		{Delivery{Type: EventAccepted}, 90 * time.Minute, noon.Add(150 * time.Minute)},
	} {
		if got := d.DeliverUntil(tt.telling, noon.Add(tt.after)); !got.Equal(tt.want) {
			t.Errorf("%+v %v after noon: until %v, want %v", tt.telling, tt.after, got, tt.want)
		}
	}
}

// TestSuperseded is the whole table of pushes about round 2 and later states of the dispatch.
func TestSuperseded(t *testing.T) {
	offer := map[state]bool{scheduled: true, pending: true}
	held := map[state]bool{accepted: true, inProgress: true, completed: true}
	every := map[state]bool{}
	for _, s := range states {
		every[s] = true
	}
	for _, tt := range []struct {
		event    EventType
		silent   bool
		stands   map[state]bool // in the same round
		anyRound bool           // or in whichever
	}{
		{event: EventOpened, stands: offer}, {event: EventReopened, stands: offer}, {event: EventUpdated, stands: offer},
		{event: EventReminder, stands: map[state]bool{accepted: true}},
		{event: EventAccepted, stands: held},
		{event: EventTaken, silent: true, stands: every}, {event: EventExpired, silent: true, stands: every},
		{event: EventCanceled, silent: true, stands: every},
		{event: EventCanceled, stands: every, anyRound: true},
	} {
		for _, s := range states {
			d := inState(s.Status, s.holder)
			for round := d.Round - 1; round <= d.Round+1; round++ {
				want := !tt.stands[s] || round != d.Round && !tt.anyRound
				if got := d.Superseded(tt.event, tt.silent, me, round); got != want {
					t.Errorf("%s (silent: %v) of round %d, now %s in %d: %v", tt.event, tt.silent, round, s.Status, d.Round, got)
				}
			}
		}
	}
}

func TestPushesToAFormerHolderAreSuperseded(t *testing.T) {
	d := inState(Accepted, other)
	for _, e := range []EventType{EventAccepted, EventReminder} {
		if !d.Superseded(e, false, me, d.Round) {
			t.Errorf("%s is not superseded although another driver has the dispatch", e)
		}
	}
}

// A driver who has a job back gets no push that it is lost: that push could arrive after "You have the job", and would stay on the screen.
func TestWhoHasTheJobBackHearsOfNoLoss(t *testing.T) {
	for _, s := range states {
		d := inState(s.Status, s.holder)
		for round := d.Round - 1; round <= d.Round; round++ {
			want := round < d.Round && s.holder == me && s.Status != Canceled
			if got := d.Superseded(EventUnassigned, false, me, round); got != want {
				t.Errorf("the unassignment in round %d, now %s in %d, held by %q: superseded is %v", round, s.Status, d.Round, s.holder, got)
			}
		}
	}
}

// An event has the deliveries of its type, except for overdue dispatches that the service closes, and for an update that keeps drivers'
// offers valid.
func TestPushed(t *testing.T) {
	for _, kind := range allEvents {
		for _, tt := range []struct {
			actor, reason string
			pushed        bool
		}{
			{System, "", true}, {System, ReasonClaimFailed, true}, {"key_1", "RAIN", true},
			{"key_1", ReasonOverdue, true}, // an admin used the same reason code
			{System, ReasonOverdue, false},
			{"key_1", ReasonExtended, kind != EventUpdated}, // of another event it is an admin's own reason code
			{"key_1", ReasonWindowChanged, kind != EventUpdated},
		} {
			var want []Delivery
			if tt.pushed {
				want = kind.Deliveries()
			}
			e := Event{Type: kind, Actor: tt.actor, ReasonCode: tt.reason}
			if got := e.Deliveries(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s by %s, %q: %+v, want %+v", kind, tt.actor, tt.reason, got, want)
			}
		}
	}
}

func TestATopicHasItsDispatchsName(t *testing.T) {
	if a, b := outbox.TopicOf("dsp_a"), outbox.TopicOf("dsp_b"); a != "dispatch-dsp_a" || b != "dispatch-dsp_b" {
		t.Error(a, b)
	}
}

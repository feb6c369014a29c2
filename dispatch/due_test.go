package dispatch_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	. "firsttap/dispatch"
)

// An offer expires when its window has passed.
func TestExpire(t *testing.T) {
	for _, s := range states {
		t.Run(string(s.Status), func(t *testing.T) {
			d := inState(s.Status, s.holder)
			want := d
			var events []Event
			if s == expired {
				want.Version, want.UpdatedAt = d.Version+1, noon
				events = []Event{{Type: EventExpired, Dispatch: d.ID, Round: 2, Actor: System, At: noon}}
			}
			mustBeEvents(t, d.Expire(noon), events...)
			if !reflect.DeepEqual(d, want) {
				t.Errorf("now %+v, want %+v", d, want)
			}
		})
	}
}

// The work starts at one o'clock.
func TestRemind(t *testing.T) {
	const hour, second = time.Hour, time.Second
	for _, tt := range []struct {
		name            string
		before          time.Duration
		accepted, asked time.Duration // after noon
		reminds         bool
	}{
		{"at its time", hour, -second, 0, true},
		{"later", hour, -second, hour - second, true},
		{"before its time", hour, -second, -time.Microsecond, false},
		{"when the work starts", hour, -second, hour, false},
		{"after it has started", hour, -second, 2 * hour, false},
		{"accepted just before its time", hour, -time.Microsecond, 0, true},
		{"accepted at its time", hour, 0, 0, false},
		{"accepted after its time", hour, second, 2 * second, false},
		{"a shorter notice", 30 * time.Minute, -second, 0, false},
		{"no reminders", 0, -second, hour - time.Microsecond, false},
		{"no reminders, as the work starts", 0, -second, hour, false},
	} {
		for _, s := range states {
			d := inState(s.Status, s.holder)
			now := noon.Add(tt.asked)
			if d.Claim != nil {
				d.Claim.AcceptedAt = noon.Add(tt.accepted)
			}
			want := d
			var events []Event
			if tt.reminds && s == accepted {
				want.UpdatedAt = now // the version stays
				events = []Event{{Type: EventReminder, Dispatch: d.ID, Round: 2, Driver: me, Actor: System, At: now}}
			}
			t.Run(fmt.Sprintf("%s %s held by %q", tt.name, s.Status, s.holder), func(t *testing.T) {
				mustBeEvents(t, d.Remind(tt.before, now), events...)
				if !reflect.DeepEqual(d, want) {
					t.Errorf("now %+v, want %+v", d, want)
				}
			})
		}
	}
}

// The work ends at two o'clock.
func TestCloseOverdue(t *testing.T) {
	closed := map[state]struct {
		to Status
		EventType
	}{accepted: {Canceled, EventCanceled}, inProgress: {Completed, EventCompleted}}
	for _, after := range []time.Duration{0, 24 * time.Hour} {
		for late, overdue := range map[time.Duration]bool{
			-3 * time.Hour: false, -time.Microsecond: false, 0: false, time.Microsecond: true, 1000 * time.Hour: true,
		} {
			for _, s := range states {
				d := inState(s.Status, s.holder)
				now := d.WorkEndsAt.Add(after + late)
				want := d
				var events []Event
				if end, ok := closed[s]; ok && overdue {
					want.Status, want.Version, want.UpdatedAt = end.to, d.Version+1, now
					events = []Event{{
						Type: end.EventType, Dispatch: d.ID, Round: 2, Driver: me, Actor: System, ReasonCode: ReasonOverdue, At: now,
					}}
				}
				t.Run(fmt.Sprintf("%s held by %q, %v late after %v", s.Status, s.holder, late, after), func(t *testing.T) {
					mustBeEvents(t, d.CloseOverdue(after, now), events...)
					if !reflect.DeepEqual(d, want) {
						t.Errorf("now %+v, want %+v", d, want)
					}
				})
			}
		}
	}
}

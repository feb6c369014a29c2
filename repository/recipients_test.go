package repository

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// The expansion of an event without recipients writes and drops nothing. An event with recipients is never taken for one.
func TestWithoutRecipients(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var committed []outbox.Committed
		db = db.by(openWith(t, db.url, Options{
			Log: quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour,
			OnCommit: func(d dispatch.Dispatch, events []dispatch.Event) {
				for _, e := range events {
					committed = append(committed, outbox.Committed{Event: e, Dispatch: d})
				}
			},
		}))
		driver := func(class string, equipped bool, edit func(*dispatch.Driver)) dispatch.DriverID {
			v := db.addDriver(t, func(v *dispatch.Driver) {
				v.VehicleClass = class
				if edit != nil {
					edit(v)
				}
			})
			if equipped {
				db.device(t, v.ID, nil)
			}
			return v.ID
		}
		offer := func(class string) dispatch.Dispatch {
			return db.add(t, func(d *dispatch.Dispatch) { d.VehicleClass = class })
		}
		now := db.now(t)
		driver("equipped", true, nil)
		driver("off duty", true, func(v *dispatch.Driver) { v.OnDuty = false })
		driver("elsewhere", true, func(v *dispatch.Driver) { v.Regions = []string{"jeju"} })
		db.device(t, driver("quarantined", false, nil), func(p *dispatch.Device) { p.QuarantinedAt = &now })
		tests := []struct {
			name string
			none bool
			make func() // its last event is the test's
		}{
			{"an offer", false, func() { offer("equipped") }},
			{"an offer to nobody", true, func() { offer("nobody") }},
			{"an offer to a driver off duty", true, func() { offer("off duty") }},
			{"an offer elsewhere", true, func() { offer("elsewhere") }},
			{"an offer to a quarantined device", true, func() { offer("quarantined") }},
			{"an offer in a region that SQL can't compare", false, func() {
				db.add(t, func(d *dispatch.Dispatch) { d.VehicleClass, d.Region = "elsewhere", "seoul & busan" })
			}},
			{"a longer offer", true, func() { db.mustUpdate(t, offer("equipped").ID, extended(1)) }},
			{"a claim with a device", false, func() { db.mustAccept(t, offer("x").ID, driver("x", true, nil)) }},
			{"a claim without a device", true, func() { db.mustAccept(t, offer("y").ID, driver("y", false, nil)) }},
			{"a claim that ends an offer", false, func() {
				d := offer("z")
				db.notifications(t, d, 1, nil)
				db.mustAccept(t, d.ID, driver("z", false, nil))
			}},
			{"a cancelation of nothing", true, func() { db.mustUpdate(t, offer("nobody").ID, cancel) }},
			{"a cancelation of an offer", false, func() {
				d := offer("nobody")
				db.notifications(t, d, 1, nil)
				db.mustUpdate(t, d.ID, cancel)
			}},
		}
		var events []outbox.Committed
		for _, tt := range tests {
			tt.make()
			events = append(events, committed[len(committed)-1])
		}
		o := db.Outbox(OutboxOptions{Owner: "ins_a", LeaseTerm: time.Hour})
		none, err := o.WithoutRecipients(t.Context(), events)
		must(t, err)
		without := map[dispatch.EventID]bool{}
		for _, id := range none {
			without[id] = true
		}
		for i, tt := range tests {
			id := events[i].Event.ID
			if without[id] != tt.none {
				t.Errorf("%s: without recipients: %t, want %t", tt.name, without[id], tt.none)
			}
			x, err := o.Expand(t.Context(), id, 100)
			must(t, err)
			if n := len(x.Pushes) + x.Unleased + x.Dropped; tt.none && n > 0 {
				t.Errorf("%s: its expansion writes or drops %d notifications", tt.name, n)
			}
		}
	})
}

// Only what the owner leases is completed.
func TestCompleteEvents(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		events := db.manyEvents(t, 3)
		db.exec(t, "UPDATE outbox SET claim = 'ins_a', next_at = ? WHERE event_id <> ?", micros(db.now(t).Add(term)), events[2])
		db.exec(t, "UPDATE outbox SET claim = 'ins_b', next_at = ? WHERE event_id = ?", micros(db.now(t).Add(term)), events[2])
		must(t, db.as("ins_a").CompleteEvents(t.Context(), events))
		for i, want := range []int{stateDone, stateDone, statePending} {
			if row := db.outboxRow(t, events[i]); row.State != want || want == stateDone && row.Claim != "" {
				t.Errorf("event %d is %+v", i, row)
			}
		}
	})
}

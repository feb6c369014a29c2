package repository

import (
	"context"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// created is what a Store told its process of a new dispatch.
type created struct {
	event  dispatch.Event
	pushes []outbox.Push
}

// creator opens the database for an instance whose relay has room for so many pushes. It also returns the latest creation of that instance.
func (db *database) creator(t testing.TB, room int, observer StatementObserver) (*database, *created) {
	t.Helper()
	var c created
	return db.by(openWith(t, db.url, Options{
		Log: quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour, Observer: observer,
		PushRoom: func() int { return room },
		OnCommit: func(_ dispatch.Dispatch, events []dispatch.Event, pushes []outbox.Push) {
			c = created{events[len(events)-1], pushes}
		},
	})), &c
}

// The pushes of a new dispatch are written with it and handed over, ready to send. Another instance sends them if this one dies.
func TestFirstPushesAreWrittenWithTheDispatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db, c := db.creator(t, 3, nil)
		devices := db.equipped(t, 3)
		began := time.Now()
		d := db.add(t, nil)
		db.mustTell(t, c.event.ID, dispatch.EventOpened, false, devices...)
		testkit.Equal(t, "pushes", len(devices), len(c.pushes))
		for _, p := range c.pushes {
			row := db.toldOf(t, c.event.ID)[p.Device.ID]
			if p.ID != row.ID || p.Event != c.event.ID || p.Type != dispatch.EventOpened || p.Round != 1 || p.Dispatch.ID != d.ID || p.Driver != row.DriverID ||
				!p.UsefulUntil.Equal(d.ExpiresAt) || time.Until(p.LeasedUntil) < time.Minute || p.ReadAt.Before(began) || p.Device.PushToken == "" {
				t.Errorf("the push is %+v, its row %+v", p, row)
			}
		}
		testkit.Equal(t, "the event's lease", "ins_a", db.leaseOf(t, c.event.ID).Claim)
		o := db.as("ins_a")
		all, err := o.Notified(t.Context(), []dispatch.EventID{c.event.ID})
		must(t, err)
		testkit.Equal(t, "events that need no expansion", []dispatch.EventID{c.event.ID}, all)
		x, err := o.Expand(t.Context(), c.event.ID, 10)
		must(t, err)
		testkit.Equal(t, "pushes of its expansion", 0, len(x.Pushes)+x.Unleased)

		db.exec(t, "UPDATE notifications SET next_at = 1") // the leases have ended
		leased, _, err := db.as("ins_b").LeaseNotifications(t.Context(), 10)
		must(t, err)
		testkit.Equal(t, "pushes that another instance sends", len(devices), len(leased))
	})
}

// A creation leaves its pushes to the relay if that has no room for all, or if nobody is to be told now.
func TestPushesThatAreNotWrittenWithTheDispatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for name, tt := range map[string]struct {
			devices, room int
			pushAt        time.Duration
		}{
			"no room": {devices: 1}, "room for one only": {devices: 2, room: 1}, "nobody is eligible": {room: 10},
			"more than a creation writes": {devices: maxFirstPushes + 1, room: 2 * maxFirstPushes}, "pushed later": {devices: 1, room: 10, pushAt: time.Minute},
		} {
			db, c := db.creator(t, tt.room, nil)
			db.exec(t, "UPDATE devices SET quarantined_at = 1")
			if tt.devices > 0 {
				db.equipped(t, tt.devices)
			}
			_, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
				w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
				d, events := dispatch.New(dispatch.NewID(now), "", someTerms(now), w, dispatch.System, now)
				events[0].PushAt = now.Add(tt.pushAt)
				return d, events, nil
			})
			must(t, err)
			testkit.Equal(t, name+": pushes", 0, len(c.pushes)+len(db.toldOf(t, c.event.ID)))
		}
	})
}

// Whoever becomes eligible after a creation has read its audience, and before its COMMIT, is found afterwards.
func TestEligibleBeforeTheCommit(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		outside := db
		late := db.equipped(t, 1)[0]
		db.exec(t, "UPDATE devices SET quarantined_at = 1")
		early := db.equipped(t, 1)[0]
		db, c := db.creator(t, 10, func(ctx context.Context, s Statement) (context.Context, func(error)) {
			if s.Operation == "commit" {
				outside.exec(t, "UPDATE devices SET quarantined_at = NULL")
			}
			return ctx, func(error) {}
		})
		db.add(t, nil)
		db.mustTell(t, c.event.ID, dispatch.EventOpened, false, early)
		o := db.as("ins_a")
		all, err := o.Notified(t.Context(), []dispatch.EventID{c.event.ID})
		must(t, err)
		testkit.Equal(t, "events that need no expansion", 0, len(all))
		x, err := o.Expand(t.Context(), c.event.ID, 10)
		must(t, err)
		testkit.Equal(t, "pushes of its expansion", 1, len(x.Pushes))
		db.mustTell(t, c.event.ID, dispatch.EventOpened, false, early, late)
	})
}

// An event needs an expansion as long as an eligible driver has a device without its notification, and only then.
func TestNotified(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db, c := db.creator(t, 10, nil)
		db.equipped(t, 1)
		for _, tt := range []struct {
			name string
			all  bool
			edit func(*dispatch.Driver)
			when func(event dispatch.EventID)
		}{
			{name: "an eligible driver"},
			{name: "off duty", all: true, edit: func(v *dispatch.Driver) { v.OnDuty = false }},
			{name: "suspended", all: true, edit: func(v *dispatch.Driver) { v.SuspendedUntil = new(time.Now().Add(time.Hour)) }},
			{name: "no longer suspended", edit: func(v *dispatch.Driver) { v.SuspendedUntil = new(time.Now().Add(-time.Hour)) }},
			{name: "in another region", all: true, edit: func(v *dispatch.Driver) { v.Regions = []string{"jeju"} }},
			{name: "with another vehicle", all: true, edit: func(v *dispatch.Driver) { v.VehicleClass = "boom" }},
			{name: "too low", all: true, edit: func(v *dispatch.Driver) { v.WorkingHeightM = new(1.0) }},
			{name: "of unknown height", all: true, edit: func(v *dispatch.Driver) { v.WorkingHeightM = nil }},
			{name: "another process's event", edit: func(v *dispatch.Driver) { v.OnDuty = false }, when: func(event dispatch.EventID) {
				db.exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", event)
			}},
			{name: "an event that is complete", edit: func(v *dispatch.Driver) { v.OnDuty = false }, when: func(event dispatch.EventID) {
				must(t, db.as("ins_a").CompleteEvents(t.Context(), []dispatch.EventID{event}))
			}},
		} {
			db.add(t, func(d *dispatch.Dispatch) { d.MinWorkingHeightM = new(2.0) })
			v := db.addDriver(t, func(v *dispatch.Driver) {
				v.WorkingHeightM = new(30.0)
				if tt.edit != nil {
					tt.edit(v)
				}
			})
			device := db.device(t, v.ID, nil)
			if tt.when != nil {
				tt.when(c.event.ID)
			}
			all, err := db.as("ins_a").Notified(t.Context(), []dispatch.EventID{c.event.ID})
			must(t, err)
			testkit.Equal(t, tt.name+": needs no expansion", tt.all, slices.Contains(all, c.event.ID))
			db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id = ?", device.ID)
		}
	})
}

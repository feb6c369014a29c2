package repository

import (
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// mustTellAll expands the event part by part, each by another owner as if the one before had died, and returns how many parts that took.
// between is called after each part.
func (db *database) mustTellAll(t *testing.T, event dispatch.EventID, size int, between func(part int)) int {
	t.Helper()
	owners := []*Outbox{db.as("ins_a", parts(size)), db.as("ins_b", parts(size))}
	for part := 1; ; part++ {
		o := owners[part%2]
		db.exec(t, "UPDATE events SET claim = ?, next_at = ? WHERE id = ?", o.Owner, micros(db.now(t).Add(term)), event)
		told, err := o.expandFully(t.Context(), event, 3)
		if err != nil || part > 100 {
			t.Fatalf("part %d: %v, %+v", part, err, told)
		}
		between(part)
		if !told.More {
			return part
		}
	}
}

// Each device of a large audience gets one notification, whoever goes on after a part.
func TestAWalkThroughALargeAudience(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const drivers, size = 230, 50
		devices := db.equipped(t, drivers)
		second := db.device(t, devices[7].Driver, nil)
		db.drivers(t, 20) // have no device
		db.add(t, nil)
		event := db.lend(t, "ins_b", dispatch.EventCreated)
		var steps []int
		n := db.mustTellAll(t, event, size, func(int) { steps = append(steps, db.count(t, "notifications")) })
		if n != (drivers+20)/size && n != (drivers+20)/size+1 {
			t.Errorf("%d parts: %v notifications", n, steps)
		}
		db.mustTell(t, event, dispatch.EventOpened, false, append(devices, second)...)
		db.mustCount(t, 0, "expansions")
		due := map[int64]int{}
		for _, r := range db.toldOf(t, event) {
			if due[r.DueAt]++; r.Claim == "" && due[r.DueAt] > dueBatch {
				t.Errorf("%d notifications are due at %d", due[r.DueAt], r.DueAt)
			}
		}
	})
}

// A walk goes on behind a page that had nobody to tell.
func TestAWalkPassesPagesWithoutRecipients(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const size = 20
		db.drivers(t, 100) // have no device
		db.add(t, nil)
		if n := db.mustTellAll(t, db.lend(t, "ins_b", dispatch.EventCreated), size, func(int) {}); n > 6 {
			t.Errorf("%d parts for 100 drivers", n)
		}
		db.mustCount(t, 0, "expansions")

		devices := db.equipped(t, 100)
		slices.SortFunc(devices, func(a, b dispatch.Device) int { return strings.Compare(string(a.Driver), string(b.Driver)) })
		opened := db.add(t, nil)
		db.mustTellAll(t, db.lend(t, "ins_b", dispatch.EventCreated), size, func(int) {})
		db.exec(t, "UPDATE notifications SET claim = ''")
		for _, v := range devices[60:] { // the others' offers are dropped by the end
			db.exec(t, "UPDATE notifications SET state = 1, sent_at = ? WHERE driver_id = ?", micros(db.now(t).Add(-time.Minute)), v.Driver)
		}
		db.mustUpdate(t, opened.ID, cancel)
		canceled := db.lend(t, "ins_b", dispatch.EventCanceled)
		db.mustTellAll(t, canceled, size, func(int) {})
		db.mustTell(t, canceled, dispatch.EventCanceled, true, devices[60:]...)
		db.mustCount(t, 0, "expansions")
	})
}

// The walk begins with another driver for each event: nobody is always late.
func TestTheFirstPartIsAnotherEachTime(t *testing.T) {
	t.Parallel()
	db := pooled(t, servertest.SQLite)
	const drivers, size, events = 40, 10, 80
	db.equipped(t, drivers)
	o := db.as("ins_a", parts(size))
	early := map[dispatch.DriverID]bool{}
	for range events {
		db.add(t, nil)
		for _, p := range o.mustExpand(t, db, dispatch.EventCreated, size).Pushes {
			early[p.Device.Driver] = true
		}
	}
	testkit.Equal(t, "drivers who were in the first part of some event", drivers, len(early))
}

// A walk ends when the dispatch is taken, and the end of the offer walks to those who have it, and to nobody twice.
func TestAWalkIsCutShort(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		devices := db.equipped(t, 90)
		d := db.add(t, nil)
		o := db.as("ins_a", parts(20))
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		for range 3 {
			told, err := o.expandFully(t.Context(), event, 20)
			if err != nil || !told.More || len(told.Pushes) != 20 {
				t.Fatalf("%+v, %v", told, err)
			}
		}
		var offered []dispatch.Device
		for id := range db.toldOf(t, event) {
			for _, v := range devices {
				if v.ID == id {
					offered = append(offered, v)
				}
			}
		}
		db.mustAccept(t, d.ID, offered[0].Driver)
		if told, err := o.expandFully(t.Context(), event, 20); err != nil || told.More || told.Dropped != 1 {
			t.Errorf("%+v, %v", told, err)
		}
		db.mustCount(t, 0, "expansions")
		db.exec(t, "UPDATE notifications SET state = 1, claim = '', sent_at = ?", micros(db.now(t).Add(-time.Minute)))
		taken := db.lend(t, "ins_b", dispatch.EventAccepted)
		db.mustTellAll(t, taken, 20, func(int) {})
		db.mustTell(t, taken, dispatch.EventAccepted, false, offered[0])
		db.mustTell(t, taken, dispatch.EventTaken, true, offered[1:]...)
		db.mustCount(t, 0, "expansions")
	})
}

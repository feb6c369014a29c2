package pushes_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// mustTellAll expands the event part by part, each by another owner as if the one before had died, and returns how many parts that took.
// between is called after each part.
func mustTellAll(db *Bench, t *testing.T, event dispatch.EventID, size int, between func(part int)) int {
	t.Helper()
	owners := []*Outbox{db.As("ins_a", parts(size)), db.As("ins_b", parts(size))}
	for part := 1; ; part++ {
		o := owners[part%2]
		db.Exec(t, "UPDATE events SET claim = ?, next_at = ? WHERE id = ?", o.Owner, database.Micros(db.Now(t).Add(Term)), event)
		told, err := o.ExpandFully(t.Context(), event, 3)
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
	Each(t, func(t *testing.T, db *Bench) {
		const drivers, size = 230, 50
		devices := db.Equipped(t, drivers)
		second := db.Device(t, devices[7].Driver, nil)
		db.Fleet(t, 20) // have no device
		db.Add(t, nil)
		event := db.Lend(t, "ins_b", dispatch.EventCreated)
		var steps []int
		n := mustTellAll(db, t, event, size, func(int) { steps = append(steps, db.Count(t, "notifications")) })
		if n != (drivers+20)/size && n != (drivers+20)/size+1 {
			t.Errorf("%d parts: %v notifications", n, steps)
		}
		db.MustTell(t, event, dispatch.EventOpened, false, append(devices, second)...)
		db.MustCount(t, 0, "expansions")
		due := map[int64]int{}
		for _, r := range db.ToldOf(t, event) {
			if due[r.DueAt]++; r.Claim == "" && due[r.DueAt] > pushes.DueBatch {
				t.Errorf("%d notifications are due at %d", due[r.DueAt], r.DueAt)
			}
		}
	})
}

// A walk goes on behind a page that had nobody to tell.
func TestAWalkPassesPagesWithoutRecipients(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const size = 20
		db.Fleet(t, 100) // have no device
		db.Add(t, nil)
		if n := mustTellAll(db, t, db.Lend(t, "ins_b", dispatch.EventCreated), size, func(int) {}); n > 6 {
			t.Errorf("%d parts for 100 drivers", n)
		}
		db.MustCount(t, 0, "expansions")

		devices := db.Equipped(t, 100)
		slices.SortFunc(devices, func(a, b dispatch.Device) int { return strings.Compare(string(a.Driver), string(b.Driver)) })
		opened := db.Add(t, nil)
		mustTellAll(db, t, db.Lend(t, "ins_b", dispatch.EventCreated), size, func(int) {})
		db.Exec(t, "UPDATE notifications SET claim = ''")
		for _, v := range devices[60:] { // the others' offers are dropped by the end
			db.Exec(t, "UPDATE notifications SET state = 1, sent_at = ? WHERE driver_id = ?", database.Micros(db.Now(t).Add(-time.Minute)), v.Driver)
		}
		db.MustUpdate(t, opened.ID, Cancel)
		canceled := db.Lend(t, "ins_b", dispatch.EventCanceled)
		mustTellAll(db, t, canceled, size, func(int) {})
		db.MustTell(t, canceled, dispatch.EventCanceled, true, devices[60:]...)
		db.MustCount(t, 0, "expansions")
	})
}

// The walk begins with another driver for each event: nobody is always late.
func TestTheFirstPartIsAnotherEachTime(t *testing.T) {
	t.Parallel()
	db := Pooled(t, servertest.SQLite)
	const drivers, size, events = 40, 10, 80
	db.Equipped(t, drivers)
	o := db.As("ins_a", parts(size))
	early := map[dispatch.DriverID]bool{}
	for range events {
		db.Add(t, nil)
		for _, p := range o.MustExpand(t, db, dispatch.EventCreated, size).Pushes {
			early[p.Device.Driver] = true
		}
	}
	testkit.Equal(t, "drivers who were in the first part of some event", drivers, len(early))
}

// A walk ends when the dispatch is taken, and the end of the offer walks to those who have it, and to nobody twice.
func TestAWalkIsCutShort(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 90)
		d := db.Add(t, nil)
		o := db.As("ins_a", parts(20))
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		for range 3 {
			told, err := o.ExpandFully(t.Context(), event, 20)
			if err != nil || !told.More || len(told.Pushes) != 20 {
				t.Fatalf("%+v, %v", told, err)
			}
		}
		var offered []dispatch.Device
		for id := range db.ToldOf(t, event) {
			for _, v := range devices {
				if v.ID == id {
					offered = append(offered, v)
				}
			}
		}
		db.MustAccept(t, d.ID, offered[0].Driver)
		if told, err := o.ExpandFully(t.Context(), event, 20); err != nil || told.More || told.Dropped != 1 {
			t.Errorf("%+v, %v", told, err)
		}
		db.MustCount(t, 0, "expansions")
		db.Exec(t, "UPDATE notifications SET state = 1, claim = '', sent_at = ?", database.Micros(db.Now(t).Add(-time.Minute)))
		taken := db.Lend(t, "ins_b", dispatch.EventAccepted)
		mustTellAll(db, t, taken, 20, func(int) {})
		db.MustTell(t, taken, dispatch.EventAccepted, false, offered[0])
		db.MustTell(t, taken, dispatch.EventTaken, true, offered[1:]...)
		db.MustCount(t, 0, "expansions")
	})
}

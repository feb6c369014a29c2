package pushes_test

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// ofEachPriority writes n due notifications of each priority.
func ofEachPriority(db *Bench, t testing.TB, n int) {
	t.Helper()
	d, devices := db.Add(t, nil), ToDevices(db.Equipped(t, n))
	for _, kind := range []dispatch.Delivery{
		{Type: dispatch.EventOpened}, {Type: dispatch.EventCanceled}, {Type: dispatch.EventCanceled, Silent: true},
	} {
		db.WriteNotifications(t, d, n, func(i int, row *pushes.NotificationRow) {
			devices(i, row)
			row.Type, row.Silent = kind.Type, kind.Silent
		})
	}
}

// Of what is leased offers have most, and each lower priority a tenth. What a priority does not need is the others'.
func TestEachPriorityHasItsShare(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ofEachPriority(db, t, 20)
		o := db.As("ins_a")
		for i, want := range [][3]int{{8, 1, 1}, {12, 6, 2}, {0, 13, 7}, {0, 0, 10}, {}} {
			pushes, _, err := o.LeaseNotifications(t.Context(), []int{10, 20, 20, 20, 20}[i])
			Must(t, err)
			var got [3]int
			for _, p := range pushes {
				got[outbox.PriorityOf(p.Type, p.Silent)-outbox.PriorityOffer]++
			}
			testkit.Equal(t, fmt.Sprintf("offers, pushes about a job and ends of offers in lease %d", i), want, got)
		}
	})
}

// Of all priorities at once, no two processes lease the same.
func TestPrioritiesAreLeasedOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ofEachPriority(db, t, 100)
		var ids []dispatch.NotificationID
		Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM notifications").Scan(&ids).Error)
		Drain(t, db, db.Instances(t, 6), ids, func(o *Outbox) ([]dispatch.NotificationID, error) {
			pushes, _, err := o.LeaseNotifications(t.Context(), 7)
			return pushIDs(pushes), err
		})
	})
}

// A small event waits for 64 or so of a large one, and not for all of it, also where the large one has waited for long.
func TestASmallEventPassesALargeOne(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const large, small = 200, 3 // written in one part each
		for _, first := range db.Equipped(t, large/2) {
			db.Device(t, first.Driver, nil)
		}
		db.Add(t, nil)
		o := db.As("ins_a")
		crowd := o.MustExpand(t, db, dispatch.EventCreated, 0).Event.ID
		db.Exec(t, "UPDATE notifications SET due_at = due_at - 60000000")
		o.MustLease(t, pushes.DueBatch+6, pushes.DueBatch+6)
		db.Exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id NOT IN (SELECT id FROM (SELECT id FROM devices ORDER BY id LIMIT 3) few)")
		db.Add(t, nil)
		few := o.MustExpand(t, db, dispatch.EventCreated, 1)
		if len(few.Pushes) != 1 || few.Unleased != small-1 {
			t.Fatalf("%d pushes, %d left", len(few.Pushes), few.Unleased)
		}
		db.Exec(t, "UPDATE devices SET quarantined_at = NULL")
		of := map[dispatch.EventID]int{}
		for _, p := range o.MustLease(t, 2*pushes.DueBatch-6+small-1, 2*pushes.DueBatch-6+small-1) {
			of[p.Event]++
		}
		if of[few.Event.ID] != small-1 || of[crowd] != 2*pushes.DueBatch-6 {
			t.Errorf("%d of the small event, %d of the large one", of[few.Event.ID], of[crowd])
		}
	})
}

// A push that is released unsent is due at once, before those that were written later.
func TestReleasedPushIsDueAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ofEachPriority(db, t, 2)
		o := db.As("ins_a")
		pushes := o.MustLease(t, 10, 6)
		o.MustRecord(t, outbox.SendResult{Status: outbox.Pending}, pushIDs(pushes)...)
		for _, p := range pushes {
			row := db.Stored(t, p.ID)
			testkit.Equal(t, "when it is due", row.CreatedAt, row.DueAt)
		}
		o.MustLease(t, 10, 6)
	})
}

// How long something has been due counts from when it was written, although it may be due before others that waited then.
func TestBacklogIsNoOlderThanItsPushes(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		minute := db.Now(t).Add(-time.Minute)
		db.WriteNotifications(t, db.Add(t, nil), 1, func(_ int, n *pushes.NotificationRow) {
			n.ID, n.DueAt = dispatch.NewNotificationID(minute), database.Micros(minute.Add(-time.Hour))
		})
		due, oldest, err := db.Backlog(t.Context())
		if err != nil || due != 1 || !Near(time.Now().Add(-oldest), time.Now().Add(-time.Minute)) {
			t.Errorf("%d are due, the oldest for %v, %v", due, oldest, err)
		}
	})
}

func parts(n int) func(*pushes.Options) { return func(o *pushes.Options) { o.BatchSize = n } }

// A large audience is written in parts by the owner of the event, and each device is notified once.
func TestAPartAtATime(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const phones = 25
		db.Equipped(t, phones)
		db.Add(t, nil)
		large := func(o *pushes.Options) { o.TopicThreshold = 10 }
		a, b := db.As("ins_a", parts(10), large), db.As("ins_b", parts(10), large)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		for i, take := range []int{3, 0} {
			told, err := a.ExpandFully(t.Context(), event, take)
			if err != nil || !told.More || len(told.Pushes) != take || told.Unleased != 10-take {
				t.Fatalf("part %d: %+v, %v", i, told, err)
			}
			if lease := db.LeaseOf(t, event); lease.Claim != "ins_a" || lease.NextAt < database.Micros(db.Now(t)) {
				t.Errorf("after part %d the event has the lease %+v", i, lease)
			}
			MustBeError(t, "another instance expands it", ErrorOf(b.ExpandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
		}
		db.Exec(t, "UPDATE events SET next_at = 1") // a dies
		b.MustLeaseEvents(t, 10, 1)
		if told, err := b.ExpandFully(t.Context(), event, 0); err != nil || told.More || told.Unleased != phones-20 {
			t.Errorf("the last part: %+v, %v", told, err)
		}
		testkit.Equal(t, "the event's lease after the last part", EventLease{}, db.LeaseOf(t, event))
		testkit.Equal(t, "devices that get a push", phones, len(db.ToldOf(t, event)))
		db.MustCount(t, phones, "topic_members")
	})
}

// The rest of an audience gets no offer once the dispatch is taken; the winner is notified before all offers are dropped.
func TestAPartThatComesTooLate(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 25)
		d := db.Add(t, nil)
		o := db.As("ins_a", parts(10))
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		if told, err := o.ExpandFully(t.Context(), event, 3); err != nil || !told.More || len(told.Pushes) != 3 {
			t.Fatalf("%+v, %v", told, err)
		}
		db.MustAccept(t, d.ID, devices[0].Driver)
		if told, err := o.ExpandFully(t.Context(), event, 3); err != nil || told.More || told.Dropped != 1 || len(told.Pushes)+told.Unleased != 0 {
			t.Errorf("%+v, %v", told, err)
		}
		taken := db.Lend(t, "ins_a", dispatch.EventAccepted)
		o = db.As("ins_a", parts(2))
		dropped, pushed := 0, 0
		for i, more := 0, true; more; i++ { // 7 are due: 2, 2, 2, 1; then come the 10 who have an offer, two in a part
			told, err := o.ExpandFully(t.Context(), taken, 10)
			if more = told.More; err != nil || i >= 10 {
				t.Fatalf("part %d: %+v, %v", i, told, err)
			}
			if i == 0 && (len(told.Pushes) != 1 || told.Pushes[0].Type != dispatch.EventAccepted || told.Pushes[0].Device.ID != devices[0].ID) {
				t.Errorf("the first part tells %+v", told.Pushes)
			}
			dropped, pushed = dropped+told.Dropped, pushed+len(told.Pushes)
		}
		if n := db.Count(t, "notifications WHERE state = 3 AND result = 'superseded'"); dropped != 7 || n != 7 {
			t.Errorf("%d offers are dropped, %d rows say so", dropped, n)
		}
		db.MustTell(t, taken, dispatch.EventAccepted, false, devices[0])
		if n := db.Count(t, "notifications WHERE type = 'dispatch.taken'"); n > 3 || n < 2 {
			t.Errorf("%d of the 3 drivers with an offer being sent get the push that it is taken", n)
		}
	})
}

// Any number of offers is dropped, in parts: a statement of SQLite takes 32,766 of them at most, and a transaction of all would hold
// their rows for long.
func TestManyOffersAreDroppedInParts(t *testing.T) {
	t.Parallel()
	db := Pooled(t, servertest.SQLite)
	const offers, part = 2*1000 + 500, 1000
	d, winner := db.Add(t, nil), db.Equipped(t, 1)[0]
	db.WriteNotifications(t, d, offers, nil)
	db.MustAccept(t, d.ID, winner.Driver)
	o := db.As("ins_a")
	event := db.Lend(t, "ins_a", dispatch.EventAccepted)
	dropped := 0
	for more := true; more; {
		told, err := o.ExpandFully(t.Context(), event, 10)
		Must(t, err)
		if told.Dropped > part {
			t.Errorf("%d are dropped in one transaction", told.Dropped)
		}
		dropped, more = dropped+told.Dropped, told.More
	}
	if dropped != offers {
		t.Errorf("%d of %d are dropped", dropped, offers)
	}
}

// A push has its token's verdict, by the clock of the sender; suspect tokens come last.
func TestSuspectsComeLast(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 30)
		Must(t, ErrorOf(db.RecordVerdict(t.Context(), outbox.Suspected, devices[:10])))
		db.Exec(t, "UPDATE devices SET suspected_at = suspected_at - 3600000000 WHERE suspected_at IS NOT NULL")
		suspects := map[dispatch.DeviceID]bool{}
		for _, v := range devices[:10] {
			suspects[v.ID] = true
		}
		db.Add(t, nil)
		o := db.As("ins_a")
		told := o.MustExpand(t, db, dispatch.EventCreated, 25)
		rest := o.MustLease(t, 10, 5)
		if len(told.Pushes) != 25 {
			t.Fatalf("%d are sent at once", len(told.Pushes))
		}
		for i, p := range append(told.Pushes, rest...) {
			since := p.Device.SuspectedAt
			if since != nil && !Near(*since, time.Now().Add(-time.Hour)) {
				t.Errorf("suspected at %s", since)
			}
			if is := suspects[p.Device.ID]; is != (since != nil) || is != (i >= 20) {
				t.Errorf("push %d is to a suspect: %t; it says: since %v", i, is, since)
			}
		}
	})
}

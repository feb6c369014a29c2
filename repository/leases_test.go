package repository

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/servertest"
	"firsttap/testkit"
)

// ofEachPriority writes n due notifications of each priority.
func (db *database) ofEachPriority(t testing.TB, n int) {
	t.Helper()
	d, devices := db.add(t, nil), toDevices(db.equipped(t, n))
	for _, kind := range []dispatch.Delivery{
		{Type: dispatch.EventOpened}, {Type: dispatch.EventCanceled}, {Type: dispatch.EventCanceled, Silent: true},
	} {
		db.notifications(t, d, n, func(i int, row *notificationRow) {
			devices(i, row)
			row.Type, row.Silent = kind.Type, kind.Silent
		})
	}
}

// Of what is leased offers have most, and each lower priority a tenth. What a priority does not need is the others'.
func TestEachPriorityHasItsShare(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.ofEachPriority(t, 20)
		o := db.as("ins_a")
		for i, want := range [][3]int{{8, 1, 1}, {12, 6, 2}, {0, 13, 7}, {0, 0, 10}, {}} {
			pushes, _, err := o.LeaseNotifications(t.Context(), []int{10, 20, 20, 20, 20}[i])
			must(t, err)
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
	each(t, func(t *testing.T, db *database) {
		db.ofEachPriority(t, 100)
		var ids []dispatch.NotificationID
		must(t, db.serve.Raw("SELECT id FROM notifications").Scan(&ids).Error)
		drain(t, db.instances(t, 6), ids, func(o *Outbox) ([]dispatch.NotificationID, error) {
			pushes, _, err := o.LeaseNotifications(t.Context(), 7)
			return pushIDs(pushes), err
		})
	})
}

// A small event waits for 64 or so of a large one, and not for all of it, also where the large one has waited for long.
func TestASmallEventPassesALargeOne(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const large, small = 200, 3 // written in one part each
		for _, first := range db.equipped(t, large/2) {
			db.device(t, first.Driver, nil)
		}
		db.add(t, nil)
		o := db.as("ins_a")
		crowd := o.mustExpand(t, db, dispatch.EventCreated, 0).Event.ID
		db.exec(t, "UPDATE notifications SET due_at = due_at - 60000000")
		o.mustLease(t, dueBatch+6, dueBatch+6)
		db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id NOT IN (SELECT id FROM (SELECT id FROM devices ORDER BY id LIMIT 3) few)")
		db.add(t, nil)
		few := o.mustExpand(t, db, dispatch.EventCreated, 1)
		if len(few.Pushes) != 1 || few.Unleased != small-1 {
			t.Fatalf("%d pushes, %d left", len(few.Pushes), few.Unleased)
		}
		db.exec(t, "UPDATE devices SET quarantined_at = NULL")
		of := map[dispatch.EventID]int{}
		for _, p := range o.mustLease(t, 2*dueBatch-6+small-1, 2*dueBatch-6+small-1) {
			of[p.Event]++
		}
		if of[few.Event.ID] != small-1 || of[crowd] != 2*dueBatch-6 {
			t.Errorf("%d of the small event, %d of the large one", of[few.Event.ID], of[crowd])
		}
	})
}

// A push that is released unsent is due at once, before those that were written later.
func TestReleasedPushIsDueAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.ofEachPriority(t, 2)
		o := db.as("ins_a")
		pushes := o.mustLease(t, 10, 6)
		o.mustRecord(t, outbox.SendResult{Status: outbox.Pending}, pushIDs(pushes)...)
		for _, p := range pushes {
			row := db.stored(t, p.ID)
			testkit.Equal(t, "when it is due", row.CreatedAt, row.DueAt)
		}
		o.mustLease(t, 10, 6)
	})
}

// How long something has been due counts from when it was written, although it may be due before others that waited then.
func TestBacklogIsNoOlderThanItsPushes(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		minute := db.now(t).Add(-time.Minute)
		db.notifications(t, db.add(t, nil), 1, func(_ int, n *notificationRow) {
			n.ID, n.DueAt = dispatch.NewNotificationID(minute), micros(minute.Add(-time.Hour))
		})
		due, oldest, err := db.as("ins_a").Backlog(t.Context())
		if err != nil || due != 1 || !near(time.Now().Add(-oldest), time.Now().Add(-time.Minute)) {
			t.Errorf("%d are due, the oldest for %v, %v", due, oldest, err)
		}
	})
}

func parts(n int) func(*OutboxOptions) { return func(o *OutboxOptions) { o.BatchSize = n } }

// A large audience is written in parts by the owner of the event, and each device is notified once.
func TestAPartAtATime(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const phones = 25
		db.equipped(t, phones)
		db.add(t, nil)
		large := func(o *OutboxOptions) { o.TopicThreshold = 10 }
		a, b := db.as("ins_a", parts(10), large), db.as("ins_b", parts(10), large)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		for i, take := range []int{3, 0} {
			told, err := a.expandFully(t.Context(), event, take)
			if err != nil || !told.More || len(told.Pushes) != take || told.Unleased != 10-take {
				t.Fatalf("part %d: %+v, %v", i, told, err)
			}
			if lease := db.leaseOf(t, event); lease.Claim != "ins_a" || lease.NextAt < micros(db.now(t)) {
				t.Errorf("after part %d the event has the lease %+v", i, lease)
			}
			mustBeError(t, "another instance expands it", errorOf(b.expandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
		}
		db.exec(t, "UPDATE events SET next_at = 1") // a dies
		b.mustLeaseEvents(t, 10, 1)
		if told, err := b.expandFully(t.Context(), event, 0); err != nil || told.More || told.Unleased != phones-20 {
			t.Errorf("the last part: %+v, %v", told, err)
		}
		testkit.Equal(t, "the event's lease after the last part", eventLease{}, db.leaseOf(t, event))
		testkit.Equal(t, "devices that get a push", phones, len(db.toldOf(t, event)))
		db.mustCount(t, phones, "topic_members")
	})
}

// The rest of an audience gets no offer once the dispatch is taken; the winner is notified before all offers are dropped.
func TestAPartThatComesTooLate(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		devices := db.equipped(t, 25)
		d := db.add(t, nil)
		o := db.as("ins_a", parts(10))
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		if told, err := o.expandFully(t.Context(), event, 3); err != nil || !told.More || len(told.Pushes) != 3 {
			t.Fatalf("%+v, %v", told, err)
		}
		db.mustAccept(t, d.ID, devices[0].Driver)
		if told, err := o.expandFully(t.Context(), event, 3); err != nil || told.More || told.Dropped != 1 || len(told.Pushes)+told.Unleased != 0 {
			t.Errorf("%+v, %v", told, err)
		}
		taken := db.lend(t, "ins_a", dispatch.EventAccepted)
		o = db.as("ins_a", parts(2))
		dropped, pushed := 0, 0
		for i, more := 0, true; more; i++ { // 7 are due: 2, 2, 2, 1; then come the 10 who have an offer, two in a part
			told, err := o.expandFully(t.Context(), taken, 10)
			if more = told.More; err != nil || i >= 10 {
				t.Fatalf("part %d: %+v, %v", i, told, err)
			}
			if i == 0 && (len(told.Pushes) != 1 || told.Pushes[0].Type != dispatch.EventAccepted || told.Pushes[0].Device.ID != devices[0].ID) {
				t.Errorf("the first part tells %+v", told.Pushes)
			}
			dropped, pushed = dropped+told.Dropped, pushed+len(told.Pushes)
		}
		if n := db.count(t, "notifications WHERE state = 3 AND result = 'superseded'"); dropped != 7 || n != 7 {
			t.Errorf("%d offers are dropped, %d rows say so", dropped, n)
		}
		db.mustTell(t, taken, dispatch.EventAccepted, false, devices[0])
		if n := db.count(t, "notifications WHERE type = 'dispatch.taken'"); n > 3 || n < 2 {
			t.Errorf("%d of the 3 drivers with an offer being sent get the push that it is taken", n)
		}
	})
}

// Any number of offers is dropped, in parts: a statement of SQLite takes 32,766 of them at most, and a transaction of all would hold
// their rows for long.
func TestManyOffersAreDroppedInParts(t *testing.T) {
	t.Parallel()
	db := pooled(t, servertest.SQLite)
	const offers, part = 2*1000 + 500, 1000
	d, winner := db.add(t, nil), db.equipped(t, 1)[0]
	db.notifications(t, d, offers, nil)
	db.mustAccept(t, d.ID, winner.Driver)
	o := db.as("ins_a")
	event := db.lend(t, "ins_a", dispatch.EventAccepted)
	dropped := 0
	for more := true; more; {
		told, err := o.expandFully(t.Context(), event, 10)
		must(t, err)
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
	each(t, func(t *testing.T, db *database) {
		devices := db.equipped(t, 30)
		must(t, db.MarkDevicesSuspect(t.Context(), devices[:10]))
		must(t, db.MarkPushAccepted(t.Context(), devices[10:20]))
		db.exec(t, "UPDATE devices SET suspected_at = suspected_at - 3600000000 WHERE suspected_at IS NOT NULL")
		known := map[dispatch.DeviceID]string{}
		for i, v := range devices {
			known[v.ID] = []string{"suspected", "good", "new"}[i/10]
		}
		db.add(t, nil)
		o := db.as("ins_a")
		told := o.mustExpand(t, db, dispatch.EventCreated, 25)
		rest := o.mustLease(t, 10, 5)
		if len(told.Pushes) != 25 {
			t.Fatalf("%d are sent at once", len(told.Pushes))
		}
		for i, p := range append(told.Pushes, rest...) {
			is := "new"
			switch v := p.Device; {
			case v.SuspectedAt != nil:
				is = "suspected"
				if !near(*v.SuspectedAt, time.Now().Add(-time.Hour)) {
					t.Errorf("suspected at %s", v.SuspectedAt)
				}
			case v.PushAcceptedAt != nil:
				is = "good"
				if !near(*v.PushAcceptedAt, time.Now()) {
					t.Errorf("good at %s", v.PushAcceptedAt)
				}
			}
			if is != known[p.Device.ID] {
				t.Errorf("push %d says %s of a token that is %s", i, is, known[p.Device.ID])
			}
			if (i >= 20) != (is == "suspected") {
				t.Errorf("push %d is to one that is %s", i, is)
			}
		}
	})
}

package repository

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/servertest"
	"firsttap/testkit"
)

// inLanes writes n notifications in each lane that are due: those of LaneRetry as if they had been sent in vain.
func (db *database) inLanes(t testing.TB, d dispatch.Dispatch, n int) {
	t.Helper()
	devices := db.equipped(t, n)
	for l, kind := range map[outbox.Lane]dispatch.EventType{
		outbox.LaneClaimant: dispatch.EventCanceled, outbox.LaneRetry: dispatch.EventUpdated,
		outbox.LaneOffer: dispatch.EventOpened, outbox.LaneOfferEnd: dispatch.EventCanceled,
	} {
		db.notifications(t, d, n, func(i int, row *notificationRow) {
			toDevices(devices)(i, row)
			row.Type, row.Silent = kind, l == outbox.LaneOfferEnd
			from, _ := laneRange(outbox.LaneOf(kind, row.Silent))
			if row.Turn = from + 1 + int64(i); l != outbox.LaneRetry {
				row.NextAt = row.Turn
			}
		})
	}
}

func laneOf(p outbox.Push) outbox.Lane {
	if p.Type == dispatch.EventUpdated {
		return outbox.LaneRetry
	}
	return outbox.LaneOf(p.Type, p.Silent)
}

func TestEachLaneHasItsShare(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.inLanes(t, d, 20)
		o := db.as("ins_a")
		lease := func(limit int) (of [outbox.LaneCount]int) {
			pushes, dropped, err := o.LeaseNotifications(t.Context(), limit)
			if err != nil || len(dropped) != 0 {
				t.Fatalf("%v, %v", dropped, err)
			}
			for _, p := range pushes {
				of[laneOf(p)]++
			}
			return of
		}
		if of := lease(10); of != [...]int{4, 2, 3, 1} {
			t.Errorf("of ten: %v", of)
		}
		var of [outbox.LaneCount]int
		for range 10 { // however few there is room for
			for l, n := range lease(1) {
				of[l] += n
			}
		}
		if of != [...]int{4, 2, 3, 1} {
			t.Errorf("of ten, one after the other: %v", of)
		}
		if of := lease(50); of != [...]int{12, 16, 14, 8} { // the share of those that end is the others'
			t.Errorf("of fifty, where two lanes end: %v", of)
		}
		if of := lease(50); of[0]+of[1]+of[2]+of[3] != 10 {
			t.Errorf("of the rest: %v", of)
		}
		if of := lease(50); of != [outbox.LaneCount]int{} {
			t.Errorf("of nothing: %v", of)
		}
	})
}

// Of all lanes at once, no two processes lease the same.
func TestLanesAreLeasedOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.inLanes(t, db.add(t, nil), 100)
		var ids []dispatch.NotificationID
		must(t, db.general.Raw("SELECT id FROM notifications").Scan(&ids).Error)
		drain(t, db.instances(t, 6), ids, func(o *Outbox) ([]dispatch.NotificationID, error) {
			pushes, _, err := o.LeaseNotifications(t.Context(), 7)
			return pushIDs(pushes), err
		})
	})
}

// A small event waits for 64 or so of a large one, and not for all of it.
func TestEventsTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const large, small = 200, 3 // written in one part each
		for _, first := range db.equipped(t, large/2) {
			db.device(t, first.Driver, nil)
		}
		db.add(t, nil)
		o := db.as("ins_a")
		crowd := o.mustExpand(t, db, dispatch.EventCreated, 0).Event.ID
		o.mustLease(t, perTurn+6, perTurn+6)
		db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id NOT IN (SELECT id FROM (SELECT id FROM devices ORDER BY id LIMIT 3) few)")
		db.add(t, nil)
		few := o.mustExpand(t, db, dispatch.EventCreated, 1)
		if len(few.Pushes) != 1 || few.Unleased != small-1 {
			t.Fatalf("%d pushes, %d left", len(few.Pushes), few.Unleased)
		}
		db.exec(t, "UPDATE devices SET quarantined_at = NULL")
		of := map[dispatch.EventID]int{}
		for _, p := range o.mustLease(t, 2*perTurn-6+small-1, 2*perTurn-6+small-1) {
			of[p.Event]++
		}
		if of[few.Event.ID] != small-1 || of[crowd] != 2*perTurn-6 {
			t.Errorf("%d of the small event, %d of the large one", of[few.Event.ID], of[crowd])
		}
	})
}

// A returned push keeps its turn.
func TestReturnedPushKeepsItsTurn(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.inLanes(t, d, 2)
		o := db.as("ins_a")
		pushes := o.mustLease(t, 10, 8)
		o.mustRecord(t, outbox.SendResult{Status: outbox.Pending}, pushIDs(pushes)...)
		for _, p := range pushes {
			row := db.stored(t, p.ID)
			if row.NextAt != row.Turn {
				t.Errorf("its turn is %d, next_at %d", row.Turn, row.NextAt)
			}
			if n := row.notification(); n.NextAt == nil || n.NextAt.Before(n.CreatedAt) {
				t.Errorf("made at %v, due at %v", n.CreatedAt, n.NextAt)
			}
		}
		o.mustLease(t, 10, 8)
	})
}

// How long something has been due counts from when it was written, unless it has been leased since.
func TestBacklogOfTurns(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		o := db.as("ins_a")
		hour := db.now(t).Add(-time.Hour)
		for _, tt := range []struct {
			edit   func(*notificationRow)
			oldest time.Duration
		}{
			{func(n *notificationRow) { n.Turn, n.NextAt = 1, 1 }, 0},
			{func(n *notificationRow) {
				n.ID, n.NextAt = dispatch.NewNotificationID(hour), micros(hour.Add(50*time.Minute))
			}, 10 * time.Minute},
			{func(n *notificationRow) { n.ID, n.Turn, n.NextAt = dispatch.NewNotificationID(hour), 2, 2 }, time.Hour},
		} {
			before, _, err := o.Backlog(t.Context())
			must(t, err)
			db.notifications(t, d, 1, func(_ int, n *notificationRow) { tt.edit(n) })
			due, oldest, err := o.Backlog(t.Context())
			if err != nil || due != before+1 || !near(time.Now().Add(-oldest), time.Now().Add(-tt.oldest)) {
				t.Errorf("%d are due, the oldest for %v, %v; want %d, %v", due, oldest, err, before+1, tt.oldest)
			}
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
			told, err := a.Expand(t.Context(), event, take)
			if err != nil || !told.More || len(told.Pushes) != take || told.Unleased != 10-take {
				t.Fatalf("part %d: %+v, %v", i, told, err)
			}
			if lease := db.leaseOf(t, event); lease.Claim != "ins_a" || lease.NextAt < micros(db.now(t)) {
				t.Errorf("after part %d the event has the lease %+v", i, lease)
			}
			mustBeError(t, "another instance expands it", errorOf(b.Expand(t.Context(), event, 10)), dispatch.ErrNotLeased)
		}
		db.exec(t, "UPDATE events SET next_at = 1") // a dies
		b.mustLeaseEvents(t, 10, 1)
		if told, err := b.Expand(t.Context(), event, 0); err != nil || told.More || told.Unleased != phones-20 {
			t.Errorf("the last part: %+v, %v", told, err)
		}
		testkit.Equal(t, "the event's lease after the last part", eventLease{}, db.leaseOf(t, event))
		rows := db.toldOf(t, event)
		turns := map[int64]int{}
		for _, n := range rows {
			turns[n.Turn]++
		}
		if len(rows) != phones || len(turns) != 3 {
			t.Errorf("%d devices get a push, in the turns %v", len(rows), turns)
		}
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
		if told, err := o.Expand(t.Context(), event, 3); err != nil || !told.More || len(told.Pushes) != 3 {
			t.Fatalf("%+v, %v", told, err)
		}
		db.mustAccept(t, d.ID, devices[0].Driver)
		if told, err := o.Expand(t.Context(), event, 3); err != nil || told.More || told.Dropped != 1 || len(told.Pushes)+told.Unleased != 0 {
			t.Errorf("%+v, %v", told, err)
		}
		taken := db.lend(t, "ins_a", dispatch.EventAccepted)
		o = db.as("ins_a", parts(2))
		dropped, pushed := 0, 0
		for i, more := 0, true; more; i++ { // 7 are due: 2, 2, 2, 1; then come the 10 who have an offer, two in a part
			told, err := o.Expand(t.Context(), taken, 10)
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
		told, err := o.Expand(t.Context(), event, 10)
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

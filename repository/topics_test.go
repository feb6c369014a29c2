package repository

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

const largeAudience = 4

func largeFrom(o *OutboxOptions) { o.TopicThreshold = largeAudience }

// announced adds a dispatch whose creation was expanded.
func (db *database) announced(t testing.TB, o *Outbox) dispatch.Dispatch {
	t.Helper()
	d := db.add(t, nil)
	o.mustExpand(t, db, dispatch.EventCreated, 0)
	return d
}

// gathered adds a dispatch that was offered to n devices, a large audience of it.
func (db *database) gathered(t testing.TB, o *Outbox, n int) (dispatch.Dispatch, []dispatch.Device) {
	t.Helper()
	devices := db.equipped(t, n)
	d := db.announced(t, o)
	db.exec(t, "UPDATE notifications SET state = 1")
	return d, devices
}

func (db *database) topic(t testing.TB, d dispatch.Dispatch) topicRow {
	t.Helper()
	var rows []topicRow
	if err := db.general.WithContext(t.Context()).Where("name = ?", outbox.TopicOf(d.ID)).Find(&rows).Error; err != nil {
		t.Fatal(err)
	}
	return append(rows, topicRow{})[0]
}

// mustRelease fails the test unless so many topics are released.
func (db *database) mustRelease(t testing.TB, want int) {
	t.Helper()
	if n, err := db.ScheduleTopicCleanup(t.Context()); n != want || err != nil {
		t.Errorf("released %d, %v; want %d", n, err, want)
	}
}

// mustLeaseTopic makes the topic due, has o lease it, and fails the test unless it is the one that is wanted.
func (db *database) mustLeaseTopic(t testing.TB, o *Outbox, d dispatch.Dispatch, ended bool) outbox.Topic {
	t.Helper()
	db.exec(t, "UPDATE topics SET next_at = 1 WHERE state = 0")
	want := outbox.Topic{Name: outbox.TopicOf(d.ID), Ended: ended}
	leased, err := o.LeaseTopics(t.Context(), 10)
	if err != nil || !slices.Equal(leased, []outbox.Topic{want}) {
		t.Fatalf("leased %v, %v; want %v", leased, err, want)
	}
	return want
}

// members returns up to limit members of the topic that are still to be changed.
func members(t testing.TB, o *Outbox, topic outbox.Topic, limit int) []dispatch.DeviceID {
	t.Helper()
	all, err := o.TopicMembers(t.Context(), topic, limit)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]dispatch.DeviceID, len(all))
	for i, m := range all {
		ids[i] = m.ID
		if m.PushToken != "token of "+string(m.ID) {
			t.Errorf("%s has the token %q", m.ID, m.PushToken)
		}
	}
	slices.Sort(ids)
	return ids
}

// subscribe has o subscribe everyone, and end.
func (db *database) subscribe(t testing.TB, o *Outbox, d dispatch.Dispatch) {
	t.Helper()
	topic := db.mustLeaseTopic(t, o, d, false)
	if err := o.RecordMembers(t.Context(), topic, members(t, o, topic, 1000), nil); err != nil {
		t.Fatal(err)
	}
	if err := o.CompleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if row := db.topic(t, d); row.State != stateDone || row.Claim != "" {
		t.Errorf("all are subscribed, and the topic is %+v", row)
	}
}

func idsOf(devices []dispatch.Device) []dispatch.DeviceID {
	ids := make([]dispatch.DeviceID, len(devices))
	for i, v := range devices {
		ids[i] = v.ID
	}
	slices.Sort(ids)
	return ids
}

func TestALargeAudienceIsGathered(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		db.gathered(t, o, largeAudience-1)
		if n := db.count(t, "topics"); n != 0 {
			t.Errorf("%d topics for so few", n)
		}
		db.exec(t, "UPDATE drivers SET on_duty = FALSE")
		d, devices := db.gathered(t, o, largeAudience)
		row := db.topic(t, d)
		if row.Ended || row.State != 0 || row.Claim != "" || fromMicros(row.NextAt).Before(d.CreatedAt.Add(time.Second)) {
			t.Errorf("the topic is %+v: the offers go first", row)
		}
		if n := db.count(t, "topic_members WHERE topic = ? AND NOT subscribed", row.Name); n != largeAudience {
			t.Errorf("%d are to be subscribed", n)
		}
		// Announced again: it is the same audience, and one more.
		devices = append(devices, db.equipped(t, 1)...)
		db.happens(t, d.ID, dispatch.EventOpened, nil)
		o.mustExpand(t, db, dispatch.EventOpened, 0)
		topic := db.mustLeaseTopic(t, o, d, false)
		if got := members(t, o, topic, 100); !slices.Equal(got, idsOf(devices)) {
			t.Errorf("to be subscribed are %v, want %v", got, idsOf(devices))
		}
		never := db.as("ins_a")
		db.announced(t, never)
		if n := db.count(t, "topics"); n != 1 {
			t.Errorf("%d topics", n)
		}
	})
}

func TestSubscribersArePushedByTopic(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		d, devices := db.gathered(t, o, 7)
		topic := db.mustLeaseTopic(t, o, d, false)
		ids := idsOf(devices)
		if err := o.RecordMembers(t.Context(), topic, ids[:4], ids[4:5]); err != nil { // the fifth is refused
			t.Fatal(err)
		}
		if got := members(t, o, topic, 100); !slices.Equal(got, ids[5:]) {
			t.Errorf("to be subscribed are %v, want %v", got, ids[5:])
		}
		db.exec(t, "UPDATE devices SET push_token = 'new' WHERE id = ?", ids[3]) // the topic no longer reaches this device
		winner := slices.IndexFunc(devices, func(v dispatch.Device) bool { return v.ID == ids[0] })
		db.mustAccept(t, d.ID, devices[winner].Driver)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 2)
		var singly []dispatch.Device
		for _, v := range devices {
			if slices.Contains(ids[3:], v.ID) {
				singly = append(singly, v)
			}
		}
		db.mustTell(t, told.Event.ID, dispatch.EventAccepted, false, devices[winner])
		db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, append(singly, dispatch.Device{})...)
		n := db.toldOf(t, told.Event.ID)[""]
		if n.Topic != topic.Name || n.DispatchID != d.ID || n.DriverID != "" || n.Claim != "ins_a" {
			t.Errorf("to the topic: %+v", n)
		}
		if len(told.Pushes) != 2 || told.Pushes[1].Topic != topic.Name || told.Pushes[1].Device != (dispatch.Device{}) {
			t.Errorf("taken: %+v", told.Pushes)
		}
		db.exec(t, "UPDATE notifications SET next_at = 1, claim = '' WHERE state = 0")
		pushes, _, err := o.LeaseNotifications(t.Context(), 100)
		if i := slices.IndexFunc(pushes, func(p outbox.Push) bool { return p.Topic != "" }); err != nil || i < 0 || pushes[i].Topic != topic.Name {
			t.Errorf("leased %+v, %v", pushes, err)
		}
	})
}

// TestEndOfALargeOffer goes to the topic if the audience of the offer is large, the winner included. If devices have left since,
// and the rest is few, each is told singly.
func TestEndOfALargeOffer(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		for name, left := range map[string]int{"all are there": 0, "one has left": 1} {
			t.Run(name, func(t *testing.T) {
				db.exec(t, "UPDATE drivers SET on_duty = FALSE")
				d, devices := db.gathered(t, o, largeAudience)
				db.subscribe(t, o, d)
				for _, v := range devices[largeAudience-left:] {
					db.exec(t, "DELETE FROM devices WHERE id = ?", v.ID)
				}
				db.mustAccept(t, d.ID, devices[0].Driver)
				told := o.mustExpand(t, db, dispatch.EventAccepted, 0)
				want := []dispatch.Device{{}} // the topic
				if left > 0 {
					want = devices[1 : largeAudience-left]
				}
				db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, want...)
			})
		}
	})
}

func TestUnsubscribeAfterTheOfferEnded(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		d, devices := db.gathered(t, o, 5)
		db.subscribe(t, o, d)
		db.mustAccept(t, d.ID, devices[0].Driver)
		o.mustExpand(t, db, dispatch.EventAccepted, 0)
		if got := db.topic(t, d); !got.Ended || got.State != stateDone || got.Claim != "" {
			t.Errorf("the topic waits as %+v", got)
		}
		db.mustRelease(t, 1)
		// Later events of the dispatch do not delay it.
		db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Start(dispatch.Driver{ID: devices[0].Driver}, now)
		})
		o.mustExpand(t, db, dispatch.EventStarted, 0)
		want := outbox.Topic{Name: outbox.TopicOf(d.ID), Ended: true}
		if leased, err := o.LeaseTopics(t.Context(), 10); err != nil || !slices.Equal(leased, []outbox.Topic{want}) {
			t.Fatalf("leased %v, %v; want %v at once", leased, err, want)
		}
		topic := db.mustLeaseTopic(t, o, d, true)
		ids := members(t, o, topic, 100)
		if !slices.Equal(ids, idsOf(devices)) {
			t.Errorf("to be unsubscribed are %v", ids)
		}
		if err := o.RecordMembers(t.Context(), topic, ids[:3], ids[3:]); err != nil { // refused members are removed as well
			t.Error(err)
		}
		if err := o.CompleteTopic(t.Context(), topic); err != nil {
			t.Error(err)
		}
		if n := db.count(t, "topics") + db.count(t, "topic_members"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A process dies meanwhile: another goes on from the recorded members, and the first changes nothing more.
func TestTopicIsResumedByAnotherInstance(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.as("ins_a", largeFrom), db.as("ins_b", largeFrom)
		d, devices := db.gathered(t, a, 6)
		ids := idsOf(devices)
		for _, ended := range []bool{false, true} {
			topic := db.mustLeaseTopic(t, a, d, ended)
			if leased, err := b.LeaseTopics(t.Context(), 10); err != nil || len(leased) > 0 {
				t.Errorf("b leased %v, %v", leased, err)
			}
			if err := a.RecordMembers(t.Context(), topic, members(t, a, topic, 100)[:2], nil); err != nil {
				t.Fatal(err)
			}
			if end := fromMicros(db.topic(t, d).NextAt); !near(end, time.Now().Add(term)) {
				t.Errorf("the lease was not renewed: it ends at %v", end)
			}
			db.mustLeaseTopic(t, b, d, ended) // when a's lease has ended
			if err := a.RecordMembers(t.Context(), topic, ids, ids); !errors.Is(err, dispatch.ErrNotLeased) {
				t.Errorf("a: got %v, want %v", err, dispatch.ErrNotLeased)
			}
			if err := a.CompleteTopic(t.Context(), topic); err != nil || db.topic(t, d).Claim != "ins_b" {
				t.Errorf("%v, the topic is %+v", err, db.topic(t, d))
			}
			rest := members(t, b, topic, 100)
			if !slices.Equal(rest, ids[2:]) {
				t.Errorf("ended %v: b goes on with %v, want %v", ended, rest, ids[2:])
			}
			if err := b.RecordMembers(t.Context(), topic, rest, nil); err != nil {
				t.Error(err)
			}
			if err := b.CompleteTopic(t.Context(), topic); err != nil {
				t.Error(err)
			}
			if !ended {
				db.mustUpdate(t, d.ID, cancel)
				a.mustExpand(t, db, dispatch.EventCanceled, 0)
				db.mustRelease(t, 1)
			}
		}
		if got := db.topic(t, d); got != (topicRow{}) {
			t.Errorf("the topic is %+v", got)
		}
	})
}

func TestEachTopicIsLeasedByOne(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		var want []outbox.Topic
		for i := range 40 {
			topic := outbox.Topic{Name: outbox.TopicOf(dispatch.NewID(time.Now())), Ended: i%2 == 0}
			want = append(want, topic)
			db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES (?, ?, 0, ?, '')", topic.Name, topic.Ended, i)
		}
		db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('done', FALSE, 1, 0, '')")
		db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('later', FALSE, 0, ?, '')", micros(db.now(t).Add(time.Hour)))
		first, err := db.as("ins_x").LeaseTopics(t.Context(), 4)
		if err != nil || len(first) != 4 || !slices.Contains(first, want[0]) || !slices.Contains(first, want[3]) {
			t.Errorf("leased %v, %v: these have not been due the longest", first, err)
		}
		drain(t, db.instances(t, 8), want[4:], func(o *Outbox) ([]outbox.Topic, error) { return o.LeaseTopics(t.Context(), 2) })
	})
}

// offerEnds and reopens are what happens to a dispatch whose audience is subscribed.
func (db *database) offerEnds(t testing.TB, o *Outbox, d dispatch.Dispatch, driver dispatch.DriverID) {
	t.Helper()
	db.mustAccept(t, d.ID, driver)
	o.mustExpand(t, db, dispatch.EventAccepted, 0)
}

func (db *database) reopens(t testing.TB, o *Outbox, d dispatch.Dispatch, driver dispatch.DriverID) {
	t.Helper()
	db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Withdraw(driver, "SICK", now)
	})
	o.mustExpand(t, db, dispatch.EventReopened, 0)
}

// Many release together: each topic that waits is released once, and no other is touched.
func TestReleaseTopics(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		later := micros(db.now(t).Add(time.Hour))
		add := func(name string, ended bool, state int, claim string) {
			db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES (?, ?, ?, ?, ?)", name, ended, state, later, claim)
		}
		const waiting = 20
		for i := range waiting {
			add(fmt.Sprint("waits ", i), true, stateDone, "")
		}
		add("subscribed", false, stateDone, "")
		add("is being subscribed", false, statePending, "ins_x")
		add("is being unsubscribed", true, statePending, "ins_x")
		stores := []*Store{db.Store, open(t, db.url)}
		var released atomic.Int32
		testkit.Together(6, func(i int) {
			n, err := stores[i%2].ScheduleTopicCleanup(t.Context())
			if err != nil {
				t.Error(err)
			}
			released.Add(int32(n))
		})
		if released.Load() != waiting {
			t.Errorf("released %d times, want %d", released.Load(), waiting)
		}
		if n := db.count(t, "topics WHERE ended AND state = 0 AND next_at <= ?", micros(db.now(t))); n != waiting {
			t.Errorf("%d are due, want %d", n, waiting)
		}
		if n := db.count(t, "topics WHERE name LIKE '%subscribed' AND next_at = ?", later); n != 3 {
			t.Errorf("%d others are as they were, want 3", n)
		}
	})
}

func TestReopenedBeforeTheAudienceWasUnsubscribed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		d, devices := db.gathered(t, o, 5)
		db.subscribe(t, o, d)
		db.offerEnds(t, o, d, devices[0].Driver)
		db.reopens(t, o, d, devices[0].Driver)
		db.mustRelease(t, 0)
		topic := db.mustLeaseTopic(t, o, d, false)
		if left := members(t, o, topic, 100); len(left) != 0 {
			t.Errorf("%d subscribed devices are to be subscribed again", len(left))
		}
	})
}

// Some members were unsubscribed; of others it is unknown, as the call was under way.
func TestReopenedWhileTheAudienceIsUnsubscribed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a, b := db.as("ins_a", largeFrom), db.as("ins_b", largeFrom)
		d, devices := db.gathered(t, a, 6)
		db.subscribe(t, a, d)
		db.offerEnds(t, a, d, devices[0].Driver)
		db.mustRelease(t, 1)
		ending := db.mustLeaseTopic(t, a, d, true)
		ids := members(t, a, ending, 100)
		if err := a.RecordMembers(t.Context(), ending, ids[:2], nil); err != nil {
			t.Fatal(err)
		}
		db.reopens(t, b, d, devices[0].Driver)
		if err := a.RecordMembers(t.Context(), ending, ids[2:4], nil); !errors.Is(err, dispatch.ErrNotLeased) {
			t.Errorf("got %v, want %v", err, dispatch.ErrNotLeased)
		}
		if err := a.CompleteTopic(t.Context(), ending); err != nil {
			t.Error(err)
		}
		topic := db.mustLeaseTopic(t, b, d, false)
		if got := members(t, b, topic, 100); !slices.Equal(got, ids) {
			t.Errorf("to be subscribed are %v, want all of %v", got, ids)
		}
	})
}

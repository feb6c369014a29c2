package repository

import (
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
	must(t, db.serve.WithContext(t.Context()).Where("name = ?", outbox.TopicOf(d.ID)).Find(&rows).Error)
	return append(rows, topicRow{})[0]
}

func (db *database) addTopic(t testing.TB, row topicRow) {
	t.Helper()
	must(t, db.decide.WithContext(t.Context()).Create(&row).Error)
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

// A topic that was written while its dispatch was accepted is ended at night.
func TestTopicThatNobodyEnded(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		open, taken := db.add(t, nil), db.mustAccept(t, db.add(t, later(1)).ID, v.ID)
		for _, d := range []dispatch.Dispatch{open, taken} {
			db.addTopic(t, topicRow{Name: outbox.TopicOf(d.ID), State: stateDone})
		}
		removed := dispatch.Dispatch{ID: dispatch.NewID(db.now(t))}
		db.addTopic(t, topicRow{Name: outbox.TopicOf(removed.ID), State: stateDone})
		db.mustRelease(t, 2)
		for _, d := range []dispatch.Dispatch{taken, removed} {
			if row := db.topic(t, d); !row.Ended || row.State != statePending {
				t.Errorf("the topic of a dispatch that is taken or removed is %+v", row)
			}
		}
		if row := db.topic(t, open); row.Ended || row.State != stateDone {
			t.Errorf("the topic of an open dispatch is %+v", row)
		}
	})
}

// members returns up to limit members of the topic that are still to be changed.
func members(t testing.TB, o *Outbox, topic outbox.Topic, limit int) []dispatch.DeviceID {
	t.Helper()
	all, err := o.TopicMembers(t.Context(), topic, limit)
	must(t, err)
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
	must(t, o.RecordMembers(t.Context(), topic, members(t, o, topic, 1000), nil))
	must(t, o.CompleteTopic(t.Context(), topic))
	if row := db.topic(t, d); row.State != stateDone || row.Claim != "" {
		t.Errorf("all are subscribed, and the topic is %+v", row)
	}
}

func idsOf(devices []dispatch.Device) []dispatch.DeviceID {
	return slices.Sorted(slices.Values(collect(devices, func(v dispatch.Device) dispatch.DeviceID { return v.ID })))
}

func TestALargeAudienceIsGathered(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		db.gathered(t, o, largeAudience-1)
		db.mustCount(t, 0, "topics")
		db.exec(t, "UPDATE drivers SET on_duty = FALSE")
		d, devices := db.gathered(t, o, largeAudience)
		row := db.topic(t, d)
		if row.Ended || row.State != 0 || row.Claim != "" || fromMicros(row.NextAt).Before(d.CreatedAt.Add(time.Second)) {
			t.Errorf("the topic is %+v: the offers go first", row)
		}
		db.mustCount(t, largeAudience, "topic_members WHERE topic = ? AND NOT subscribed", row.Name)
		// Announced again: it is the same audience, and one more.
		devices = append(devices, db.equipped(t, 1)...)
		db.happens(t, d.ID, dispatch.EventOpened, nil)
		o.mustExpand(t, db, dispatch.EventOpened, 0)
		topic := db.mustLeaseTopic(t, o, d, false)
		testkit.Equal(t, "the devices to be subscribed", idsOf(devices), members(t, o, topic, 100))
		never := db.as("ins_a")
		db.announced(t, never)
		db.mustCount(t, 1, "topics")
	})
}

func TestSubscribersArePushedByTopic(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		d, devices := db.gathered(t, o, 7)
		topic := db.mustLeaseTopic(t, o, d, false)
		ids := idsOf(devices)
		must(t, o.RecordMembers(t.Context(), topic, ids[:4], ids[4:5])) // the fifth is refused
		testkit.Equal(t, "the devices to be subscribed", ids[5:], members(t, o, topic, 100))
		db.exec(t, "UPDATE devices SET push_token = 'new' WHERE id = ?", ids[3])                                                                    // the topic no longer reaches this device
		db.exec(t, "UPDATE notifications SET state = 0, claim = 'ins_b', due_at = ? WHERE device_id = ?", micros(db.now(t).Add(time.Hour)), ids[2]) // its offer is under way
		winner := slices.IndexFunc(devices, func(v dispatch.Device) bool { return v.ID == ids[0] })
		db.mustAccept(t, d.ID, devices[winner].Driver)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 2)
		var singly []dispatch.Device
		for _, v := range devices {
			if slices.Contains(ids[2:], v.ID) {
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
		db.exec(t, "UPDATE notifications SET due_at = 1, claim = '' WHERE state = 0")
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
		d, devices := db.ended(t, o, 5)
		if got := db.topic(t, d); !got.Ended || got.State != stateDone || got.Claim != "" {
			t.Errorf("the topic waits as %+v", got)
		}
		db.mustRelease(t, 1)
		// Later events of the dispatch do not delay it.
		db.mustUpdate(t, d.ID, start)
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
		must(t, o.RecordMembers(t.Context(), topic, ids[:3], ids[3:])) // refused members are removed as well
		must(t, o.CompleteTopic(t.Context(), topic))
		db.mustCount(t, 0, "topics")
		db.mustCount(t, 0, "topic_members")
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
			must(t, a.RecordMembers(t.Context(), topic, members(t, a, topic, 100)[:2], nil))
			if end := fromMicros(db.topic(t, d).NextAt); !near(end, time.Now().Add(term)) {
				t.Errorf("the lease was not renewed: it ends at %v", end)
			}
			db.mustLeaseTopic(t, b, d, ended) // when a's lease has ended
			mustBeError(t, "a's late record", a.RecordMembers(t.Context(), topic, ids, ids), dispatch.ErrNotLeased)
			if err := a.CompleteTopic(t.Context(), topic); err != nil || db.topic(t, d).Claim != "ins_b" {
				t.Errorf("%v, the topic is %+v", err, db.topic(t, d))
			}
			rest := members(t, b, topic, 100)
			if !slices.Equal(rest, ids[2:]) {
				t.Errorf("ended %v: b goes on with %v, want %v", ended, rest, ids[2:])
			}
			must(t, b.RecordMembers(t.Context(), topic, rest, nil))
			must(t, b.CompleteTopic(t.Context(), topic))
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
			db.addTopic(t, topicRow{Name: topic.Name, Ended: topic.Ended, NextAt: int64(i)})
		}
		db.addTopic(t, topicRow{Name: "done", State: stateDone})
		db.addTopic(t, topicRow{Name: "later", NextAt: micros(db.now(t).Add(time.Hour))})
		first, err := db.as("ins_x").LeaseTopics(t.Context(), 4)
		if err != nil || len(first) != 4 || !slices.Contains(first, want[0]) || !slices.Contains(first, want[3]) {
			t.Errorf("leased %v, %v: these have not been due the longest", first, err)
		}
		drain(t, db.instances(t, 8), want[4:], func(o *Outbox) ([]outbox.Topic, error) { return o.LeaseTopics(t.Context(), 2) })
	})
}

// ended is a dispatch whose offer has ended for n devices that were subscribed to it: the first one's driver has taken it.
func (db *database) ended(t testing.TB, o *Outbox, n int) (dispatch.Dispatch, []dispatch.Device) {
	t.Helper()
	d, devices := db.gathered(t, o, n)
	db.subscribe(t, o, d)
	db.mustAccept(t, d.ID, devices[0].Driver)
	o.mustExpand(t, db, dispatch.EventAccepted, 0)
	return d, devices
}

func (db *database) reopens(t testing.TB, o *Outbox, d dispatch.Dispatch) {
	t.Helper()
	db.mustUpdate(t, d.ID, withdraw)
	o.mustExpand(t, db, dispatch.EventReopened, 0)
}

// Many release together: each topic that waits is released once, and no other is touched.
func TestReleaseTopics(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		later := micros(db.now(t).Add(time.Hour))
		const waiting = 20
		for i := range waiting {
			db.addTopic(t, topicRow{Name: fmt.Sprint("waits ", i), Ended: true, State: stateDone, NextAt: later})
		}
		// Two of open dispatches: one is subscribed, the other is being subscribed.
		db.addTopic(t, topicRow{Name: outbox.TopicOf(db.add(t, nil).ID), State: stateDone, NextAt: later})
		db.addTopic(t, topicRow{Name: outbox.TopicOf(db.add(t, nil).ID), Claim: "ins_x", NextAt: later})
		db.addTopic(t, topicRow{Name: "is being unsubscribed", Ended: true, Claim: "ins_x", NextAt: later})
		stores := []*Store{db.Store, open(t, db.url)}
		var released atomic.Int32
		mustAll(t, 6, func(i int) error {
			n, err := stores[i%2].ScheduleTopicCleanup(t.Context())
			released.Add(int32(n))
			return err
		})
		if released.Load() != waiting {
			t.Errorf("released %d times, want %d", released.Load(), waiting)
		}
		db.mustCount(t, waiting, "topics WHERE ended AND state = 0 AND next_at <= ?", micros(db.now(t)))
		db.mustCount(t, 3, "topics WHERE next_at = ?", later)
	})
}

func TestReopenedBeforeTheAudienceWasUnsubscribed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a", largeFrom)
		d, _ := db.ended(t, o, 5)
		db.reopens(t, o, d)
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
		d, devices := db.ended(t, a, 6)
		db.mustRelease(t, 1)
		ending := db.mustLeaseTopic(t, a, d, true)
		ids := members(t, a, ending, 100)
		again := slices.DeleteFunc(slices.Clone(ids), func(id dispatch.DeviceID) bool { return id == devices[0].ID }) // who gave it back is not alerted
		must(t, a.RecordMembers(t.Context(), ending, again[:2], nil))
		db.reopens(t, b, d)
		mustBeError(t, "a's late record", a.RecordMembers(t.Context(), ending, again[2:4], nil), dispatch.ErrNotLeased)
		must(t, a.CompleteTopic(t.Context(), ending))
		topic := db.mustLeaseTopic(t, b, d, false)
		testkit.Equal(t, "the devices to be subscribed", ids, members(t, b, topic, 100))
	})
}

package topics_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

const largeAudience = 4

func largeFrom(o *pushes.Options) { o.TopicThreshold = largeAudience }

// announced adds a dispatch whose creation was expanded.
func announced(db *Bench, t testing.TB, o *Outbox) dispatch.Dispatch {
	t.Helper()
	d := db.Add(t, nil)
	o.MustExpand(t, db, dispatch.EventCreated, 0)
	return d
}

// gathered adds a dispatch that was offered to n devices, a large audience of it.
func gathered(db *Bench, t testing.TB, o *Outbox, n int) (dispatch.Dispatch, []dispatch.Device) {
	t.Helper()
	devices := db.Equipped(t, n)
	d := announced(db, t, o)
	db.Exec(t, "UPDATE notifications SET state = 1")
	return d, devices
}

func storedTopic(db *Bench, t testing.TB, d dispatch.Dispatch) TopicRow {
	t.Helper()
	var rows []TopicRow
	Must(t, db.Serve.With(t.Context()).Where("name = ?", outbox.TopicOf(d.ID)).Find(&rows).Error)
	return append(rows, TopicRow{})[0]
}

// mustRelease fails the test unless so many topics are released.
func mustRelease(db *Bench, t testing.TB, want int) {
	t.Helper()
	if n, err := db.ScheduleTopicCleanup(t.Context()); n != want || err != nil {
		t.Errorf("released %d, %v; want %d", n, err, want)
	}
}

// mustLeaseTopic makes the topic due, has o lease it, and fails the test unless it is the one that is wanted.
func mustLeaseTopic(db *Bench, t testing.TB, o *Outbox, d dispatch.Dispatch, ended bool) outbox.Topic {
	t.Helper()
	db.Exec(t, "UPDATE topics SET next_at = 1 WHERE state = 0")
	want := outbox.Topic{Name: outbox.TopicOf(d.ID), Ended: ended}
	leased, err := o.LeaseTopics(t.Context(), 10)
	if err != nil || !slices.Equal(leased, []outbox.Topic{want}) {
		t.Fatalf("leased %v, %v; want %v", leased, err, want)
	}
	return want
}

// At night the topics that have ended are due, and no other is touched. A topic that was written while its dispatch was accepted is ended
// then.
func TestTopicThatNobodyEnded(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		open, taken := db.Add(t, nil), db.MustAccept(t, db.Add(t, Later(1)).ID, v.ID)
		for _, d := range []dispatch.Dispatch{open, taken} {
			db.AddTopic(t, TopicRow{Name: outbox.TopicOf(d.ID), State: pushes.StateDone})
		}
		removed := dispatch.Dispatch{ID: dispatch.NewID(db.Now(t))}
		db.AddTopic(t, TopicRow{Name: outbox.TopicOf(removed.ID), State: pushes.StateDone})
		later := database.Micros(db.Now(t).Add(time.Hour))
		db.AddTopic(t, TopicRow{Name: "waits", Ended: true, State: pushes.StateDone, NextAt: later})
		db.AddTopic(t, TopicRow{Name: "is being unsubscribed", Ended: true, Claim: "ins_x", NextAt: later})
		mustRelease(db, t, 3)
		db.MustCount(t, 1, "topics WHERE name = 'waits' AND ended AND state = 0 AND next_at <= ?", database.Micros(db.Now(t)))
		db.MustCount(t, 1, "topics WHERE name = 'is being unsubscribed' AND claim = 'ins_x' AND next_at = ?", later)
		for _, d := range []dispatch.Dispatch{taken, removed} {
			if row := storedTopic(db, t, d); !row.Ended || row.State != pushes.StatePending {
				t.Errorf("the topic of a dispatch that is taken or removed is %+v", row)
			}
		}
		if row := storedTopic(db, t, open); row.Ended || row.State != pushes.StateDone {
			t.Errorf("the topic of an open dispatch is %+v", row)
		}
	})
}

// The topics of devices are counted some devices at a time, whether or not they are subscribed yet, by the keys of both tables.
func TestCountTopics(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		must := func(after dispatch.DeviceID, limit, most int, last dispatch.DeviceID) {
			t.Helper()
			gotMost, gotLast, err := o.CountTopics(t.Context(), after, limit)
			if err != nil || gotMost != most || gotLast != last {
				t.Errorf("of %d after %q: %d, %q, %v; want %d, %q", limit, after, gotMost, gotLast, err, most, last)
			}
		}
		ids := make([]dispatch.DeviceID, 0, 5)
		for _, d := range db.Equipped(t, 5) {
			ids = append(ids, d.ID)
		}
		slices.Sort(ids)
		must("", 2, 0, "") // without topics it ends at once
		for topic, members := range map[string][]dispatch.DeviceID{"one": ids[:4], "two": {ids[3], ids[1]}, "three": {ids[3]}} {
			db.AddTopic(t, TopicRow{Name: topic, State: pushes.StateDone})
			for k, id := range members {
				db.Exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES (?, ?, 'x', ?)", topic, id, k%2)
			}
		}
		must("", 2, 2, ids[1])
		must(ids[1], 2, 3, ids[3])
		must(ids[3], 2, 0, "")
		must("", 5, 3, ids[4])
		must("", 6, 3, "")
	})
}

// Counting reads each topic of a batch of devices, whatever there is beside them.
func TestPlanOfCountTopics(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		const topics, batch = 20, 50
		devices := db.Equipped(t, 1000)
		for k := range topics {
			name := fmt.Sprint("t", k)
			db.AddTopic(t, TopicRow{Name: name, State: pushes.StateDone})
			db.Exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) SELECT ?, id, push_token, 1 FROM devices", name)
		}
		db.Exec(t, "ANALYZE TABLE topics, topic_members, devices")
		db.MustReadFew(t, map[string]Reading{"a batch": {Do: func() error {
			most, last, err := db.As("ins_a").CountTopics(t.Context(), devices[0].ID, batch)
			if most != topics || last == "" {
				t.Errorf("%d topics, up to %q", most, last)
			}
			return err
		}, Most: 4 * batch * topics}})
	})
}

// members returns up to limit members of the topic that are still to be changed.
func members(t testing.TB, o *Outbox, topic outbox.Topic, limit int) []dispatch.DeviceID {
	t.Helper()
	all, err := o.TopicMembers(t.Context(), topic, limit)
	Must(t, err)
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
func subscribe(db *Bench, t testing.TB, o *Outbox, d dispatch.Dispatch) {
	t.Helper()
	topic := mustLeaseTopic(db, t, o, d, false)
	Must(t, o.RecordMembers(t.Context(), topic, members(t, o, topic, 1000), nil))
	Must(t, o.CompleteTopic(t.Context(), topic))
	if row := storedTopic(db, t, d); row.State != pushes.StateDone || row.Claim != "" {
		t.Errorf("all are subscribed, and the topic is %+v", row)
	}
}

func idsOf(devices []dispatch.Device) []dispatch.DeviceID {
	return slices.Sorted(slices.Values(Collect(devices, func(v dispatch.Device) dispatch.DeviceID { return v.ID })))
}

func TestALargeAudienceIsGathered(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		gathered(db, t, o, largeAudience-1)
		db.MustCount(t, 0, "topics")
		db.Exec(t, "UPDATE drivers SET on_duty = FALSE")
		d, devices := gathered(db, t, o, largeAudience)
		row := storedTopic(db, t, d)
		if row.Ended || row.State != 0 || row.Claim != "" || database.Time(row.NextAt).Before(d.CreatedAt.Add(time.Second)) {
			t.Errorf("the topic is %+v: the offers go first", row)
		}
		db.MustCount(t, largeAudience, "topic_members WHERE topic = ? AND NOT subscribed", row.Name)
		// Announced again: it is the same audience, and one more.
		devices = append(devices, db.Equipped(t, 1)...)
		db.Happens(t, d.ID, dispatch.EventOpened, nil)
		o.MustExpand(t, db, dispatch.EventOpened, 0)
		topic := mustLeaseTopic(db, t, o, d, false)
		testkit.Equal(t, "the devices to be subscribed", idsOf(devices), members(t, o, topic, 100))
		never := db.As("ins_a")
		announced(db, t, never)
		db.MustCount(t, 1, "topics")
	})
}

func TestSubscribersArePushedByTopic(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		d, devices := gathered(db, t, o, 7)
		topic := mustLeaseTopic(db, t, o, d, false)
		ids := idsOf(devices)
		Must(t, o.RecordMembers(t.Context(), topic, ids[:4], ids[4:5])) // the fifth is refused
		testkit.Equal(t, "the devices to be subscribed", ids[5:], members(t, o, topic, 100))
		db.Exec(t, "UPDATE devices SET push_token = 'new' WHERE id = ?", ids[3])                                                                             // the topic no longer reaches this device
		db.Exec(t, "UPDATE notifications SET state = 0, claim = 'ins_b', due_at = ? WHERE device_id = ?", database.Micros(db.Now(t).Add(time.Hour)), ids[2]) // its offer is under way
		winner := slices.IndexFunc(devices, func(v dispatch.Device) bool { return v.ID == ids[0] })
		db.MustAccept(t, d.ID, devices[winner].Driver)
		told := o.MustExpand(t, db, dispatch.EventAccepted, 2)
		var singly []dispatch.Device
		for _, v := range devices {
			if slices.Contains(ids[2:], v.ID) {
				singly = append(singly, v)
			}
		}
		db.MustTell(t, told.Event.ID, dispatch.EventAccepted, false, devices[winner])
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, append(singly, dispatch.Device{})...)
		n := db.ToldOf(t, told.Event.ID)[""]
		if n.Topic != topic.Name || n.DispatchID != d.ID || n.DriverID != "" || n.Claim != "ins_a" {
			t.Errorf("to the topic: %+v", n)
		}
		if len(told.Pushes) != 2 || told.Pushes[1].Topic != topic.Name || told.Pushes[1].Device != (dispatch.Device{}) {
			t.Errorf("taken: %+v", told.Pushes)
		}
		db.Exec(t, "UPDATE notifications SET due_at = 1, claim = '' WHERE state = 0")
		pushes, _, err := o.LeaseNotifications(t.Context(), 100)
		if i := slices.IndexFunc(pushes, func(p outbox.Push) bool { return p.Topic != "" }); err != nil || i < 0 || pushes[i].Topic != topic.Name {
			t.Errorf("leased %+v, %v", pushes, err)
		}
	})
}

// TestEndOfALargeOfferInParts: the end of an offer that is written in parts is one message to the topic, and none to a device that is subscribed.
func TestEndOfALargeOfferInParts(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		d, devices := gathered(db, t, o, 3*largeAudience)
		subscribe(db, t, o, d)
		db.MustAccept(t, d.ID, devices[0].Driver)
		small := db.As("ins_a", largeFrom, func(o *pushes.Options) { o.BatchSize = largeAudience })
		event, parts := db.Lend(t, "ins_a", dispatch.EventAccepted), 0
		for more := true; more; parts++ {
			told, err := small.ExpandFully(t.Context(), event, 0)
			Must(t, err)
			more = told.More
		}
		if parts < 3 {
			t.Errorf("written in %d parts", parts)
		}
		db.MustTell(t, event, dispatch.EventTaken, true, dispatch.Device{}) // the topic
	})
}

// TestEndOfALargeOffer goes to the topic if the audience of the offer was large, also if devices have left since.
func TestEndOfALargeOffer(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		for name, left := range map[string]int{"all are there": 0, "one has left": 1} {
			t.Run(name, func(t *testing.T) {
				db.Exec(t, "UPDATE drivers SET on_duty = FALSE")
				d, devices := gathered(db, t, o, largeAudience)
				subscribe(db, t, o, d)
				for _, v := range devices[largeAudience-left:] {
					db.Exec(t, "DELETE FROM devices WHERE id = ?", v.ID)
				}
				db.MustAccept(t, d.ID, devices[0].Driver)
				told := o.MustExpand(t, db, dispatch.EventAccepted, 0)
				db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, dispatch.Device{}) // the topic
			})
		}
	})
}

func TestUnsubscribeAfterTheOfferEnded(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		d, devices := ended(db, t, o, 5)
		if got := storedTopic(db, t, d); !got.Ended || got.State != pushes.StateDone || got.Claim != "" {
			t.Errorf("the topic waits as %+v", got)
		}
		mustRelease(db, t, 1)
		// Later events of the dispatch do not delay it.
		db.MustUpdate(t, d.ID, Start)
		o.MustExpand(t, db, dispatch.EventStarted, 0)
		want := outbox.Topic{Name: outbox.TopicOf(d.ID), Ended: true}
		if leased, err := o.LeaseTopics(t.Context(), 10); err != nil || !slices.Equal(leased, []outbox.Topic{want}) {
			t.Fatalf("leased %v, %v; want %v at once", leased, err, want)
		}
		topic := mustLeaseTopic(db, t, o, d, true)
		ids := members(t, o, topic, 100)
		if !slices.Equal(ids, idsOf(devices)) {
			t.Errorf("to be unsubscribed are %v", ids)
		}
		Must(t, o.RecordMembers(t.Context(), topic, ids[:3], ids[3:])) // refused members are removed as well
		Must(t, o.CompleteTopic(t.Context(), topic))
		db.MustCount(t, 0, "topics")
		db.MustCount(t, 0, "topic_members")
	})
}

// A process dies meanwhile: another goes on from the recorded members, and the first changes nothing more.
func TestTopicIsResumedByAnotherInstance(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.As("ins_a", largeFrom), db.As("ins_b", largeFrom)
		d, devices := gathered(db, t, a, 6)
		ids := idsOf(devices)
		for _, ended := range []bool{false, true} {
			topic := mustLeaseTopic(db, t, a, d, ended)
			if leased, err := b.LeaseTopics(t.Context(), 10); err != nil || len(leased) > 0 {
				t.Errorf("b leased %v, %v", leased, err)
			}
			Must(t, a.RecordMembers(t.Context(), topic, members(t, a, topic, 100)[:2], nil))
			if end := database.Time(storedTopic(db, t, d).NextAt); !Near(end, time.Now().Add(Term)) {
				t.Errorf("the lease was not renewed: it ends at %v", end)
			}
			mustLeaseTopic(db, t, b, d, ended) // when a's lease has ended
			MustBeError(t, "a's late record", a.RecordMembers(t.Context(), topic, ids, ids), dispatch.ErrNotLeased)
			if err := a.CompleteTopic(t.Context(), topic); err != nil || storedTopic(db, t, d).Claim != "ins_b" {
				t.Errorf("%v, the topic is %+v", err, storedTopic(db, t, d))
			}
			rest := members(t, b, topic, 100)
			if !slices.Equal(rest, ids[2:]) {
				t.Errorf("ended %v: b goes on with %v, want %v", ended, rest, ids[2:])
			}
			Must(t, b.RecordMembers(t.Context(), topic, rest, nil))
			Must(t, b.CompleteTopic(t.Context(), topic))
			if !ended {
				db.MustUpdate(t, d.ID, Cancel)
				a.MustExpand(t, db, dispatch.EventCanceled, 0)
				mustRelease(db, t, 1)
			}
		}
		if got := storedTopic(db, t, d); got != (TopicRow{}) {
			t.Errorf("the topic is %+v", got)
		}
	})
}

func TestEachTopicIsLeasedByOne(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		var want []outbox.Topic
		for i := range 40 {
			topic := outbox.Topic{Name: outbox.TopicOf(dispatch.NewID(time.Now())), Ended: i%2 == 0}
			want = append(want, topic)
			db.AddTopic(t, TopicRow{Name: topic.Name, Ended: topic.Ended, NextAt: int64(i)})
		}
		db.AddTopic(t, TopicRow{Name: "done", State: pushes.StateDone})
		db.AddTopic(t, TopicRow{Name: "later", NextAt: database.Micros(db.Now(t).Add(time.Hour))})
		first, err := db.As("ins_x").LeaseTopics(t.Context(), 4)
		if err != nil || len(first) != 4 || !slices.Contains(first, want[0]) || !slices.Contains(first, want[3]) {
			t.Errorf("leased %v, %v: these have not been due the longest", first, err)
		}
		Drain(t, db, db.Instances(t, 8), want[4:], func(o *Outbox) ([]outbox.Topic, error) { return o.LeaseTopics(t.Context(), 2) })
	})
}

// ended is a dispatch whose offer has ended for n devices that were subscribed to it: the first one's driver has taken it.
func ended(db *Bench, t testing.TB, o *Outbox, n int) (dispatch.Dispatch, []dispatch.Device) {
	t.Helper()
	d, devices := gathered(db, t, o, n)
	subscribe(db, t, o, d)
	db.MustAccept(t, d.ID, devices[0].Driver)
	o.MustExpand(t, db, dispatch.EventAccepted, 0)
	return d, devices
}

func reopens(db *Bench, t testing.TB, o *Outbox, d dispatch.Dispatch) {
	t.Helper()
	db.MustUpdate(t, d.ID, Withdraw)
	o.MustExpand(t, db, dispatch.EventReopened, 0)
}

func TestReopenedBeforeTheAudienceWasUnsubscribed(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a", largeFrom)
		d, _ := ended(db, t, o, 5)
		reopens(db, t, o, d)
		mustRelease(db, t, 0)
		topic := mustLeaseTopic(db, t, o, d, false)
		if left := members(t, o, topic, 100); len(left) != 0 {
			t.Errorf("%d subscribed devices are to be subscribed again", len(left))
		}
	})
}

// Some members were unsubscribed; of others it is unknown, as the call was under way.
func TestReopenedWhileTheAudienceIsUnsubscribed(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.As("ins_a", largeFrom), db.As("ins_b", largeFrom)
		d, devices := ended(db, t, a, 6)
		mustRelease(db, t, 1)
		ending := mustLeaseTopic(db, t, a, d, true)
		ids := members(t, a, ending, 100)
		again := slices.DeleteFunc(slices.Clone(ids), func(id dispatch.DeviceID) bool { return id == devices[0].ID }) // who gave it back is not alerted
		Must(t, a.RecordMembers(t.Context(), ending, again[:2], nil))
		reopens(db, t, b, d)
		MustBeError(t, "a's late record", a.RecordMembers(t.Context(), ending, again[2:4], nil), dispatch.ErrNotLeased)
		Must(t, a.CompleteTopic(t.Context(), ending))
		topic := mustLeaseTopic(db, t, b, d, false)
		testkit.Equal(t, "the devices to be subscribed", ids, members(t, b, topic, 100))
	})
}

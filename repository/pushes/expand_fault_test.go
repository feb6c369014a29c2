package pushes_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// The events of a dispatch are expanded in any order: none of an older round drops or contradicts the newer offer.
func TestAnOlderRoundLeavesTheNewerAlone(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Equipped(t, 3)
		o := db.As("ins_a")
		d := db.Add(t, nil)
		db.MustAccept(t, d.ID, v[0].Driver)
		db.MustUpdate(t, d.ID, Withdraw)
		if told := o.MustExpand(t, db, dispatch.EventReopened, 1); len(told.Pushes) != 1 || told.Unleased != 1 {
			t.Errorf("reopened: %+v", told)
		}
		for _, late := range []dispatch.EventType{dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventCreated} {
			if told := o.MustExpand(t, db, late, 10); len(told.Pushes)+told.Unleased != 0 {
				t.Errorf("%s: %+v", late, told)
			}
		}
		db.MustCount(t, 2, "notifications WHERE state = 0 AND round = 2")
	})
}

// The winner is notified of the cancelation, and never that another driver has taken the dispatch.
func TestTakenAndCanceledBeforeAnyPush(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a := audienceOf(db, t)
		db.MustAccept(t, a.ID, a.winner)
		db.MustUpdate(t, a.ID, Cancel)
		told := db.As("ins_a").MustExpand(t, db, dispatch.EventAccepted, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventAccepted, false)
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second)
	})
}

func TestALargeAudience(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const drivers, each = 500, 5
		now := db.Now(t).UnixMicro()
		var args []any
		for _, v := range db.Fleet(t, drivers) {
			for i := range each {
				id := dispatch.NewDeviceID(time.Now())
				args = append(args, id, v.ID, i, "token of "+string(id), now, now)
			}
		}
		for ; len(args) > 0; args = args[6*each*100:] {
			db.Exec(t, `INSERT INTO devices (id, driver_id, installation_id, push_token, created_at, updated_at, platform, app_version, locale)
				VALUES `+strings.ReplaceAll(database.Placeholders(each*100, 6), "?)", "?, 'android', '', '')"), args[:6*each*100]...)
		}
		db.Add(t, nil)
		o := db.As("ins_a", func(o *pushes.Options) { o.TopicThreshold = 100 })
		told := o.MustExpand(t, db, dispatch.EventCreated, 1200)
		if first := len(told.Pushes); first != pushes.FirstPart*each || !told.More {
			t.Errorf("%d pushes are in the first part", first)
		}
		if rest := o.MustExpand(t, db, dispatch.EventCreated, 1200-len(told.Pushes)); rest.More || rest.Unleased != drivers*each-1200 {
			t.Errorf("%d pushes, %d left", len(rest.Pushes), rest.Unleased)
		}
		if n := len(db.ToldOf(t, told.Event.ID)); n != drivers*each {
			t.Errorf("%d devices get a push", n)
		}
		db.MustCount(t, 1200, "notifications WHERE claim = 'ins_a' AND state = 0")
		db.MustCount(t, drivers*each, "topic_members")
		db.Exec(t, "UPDATE events SET next_at = 0") // as if it was not expanded yet: no device gets a second push
		if again := o.MustExpand(t, db, dispatch.EventCreated, 10); len(again.Pushes)+again.Unleased != 0 || again.More {
			t.Errorf("again: %+v", again)
		}
	})
}

func TestOffersInRandomOrder(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 40)
		orders := map[string]bool{}
		for range 2 {
			db.Add(t, nil)
			var order strings.Builder
			for _, p := range db.As("ins_a").MustExpand(t, db, dispatch.EventCreated, 40).Pushes {
				order.WriteString(string(p.Device.ID))
			}
			orders[order.String()] = true
		}
		if len(orders) != 2 {
			t.Error("the same driver gets every offer first")
		}
	})
}

// mustBeUndone fails the test unless nothing was written for the event, which the owner leases.
func mustBeUndone(db *Bench, t *testing.T, event dispatch.EventID, owner string) {
	t.Helper()
	if got := db.LeaseOf(t, event); got.NextAt == 0 || got.Claim != owner {
		t.Errorf("the event has the lease %+v, want %s's", got, owner)
	}
	db.MustCount(t, 0, "notifications WHERE event_id = ?", event)
}

// mustPush fails the test unless o expands the event to so many pushes.
func mustPush(o *Outbox, t testing.TB, event dispatch.EventID, want int) {
	t.Helper()
	if told, err := o.ExpandFully(t.Context(), event, want); err != nil || len(told.Pushes) != want {
		t.Errorf("%+v, %v; want %d pushes", told, err, want)
	}
}

func TestOnlyItsOwnerExpandsAnEvent(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 3)
		db.Add(t, nil)
		a, b := db.As("ins_a"), db.As("ins_b")
		event := db.Lend(t, "", dispatch.EventCreated)
		refuse := func(o *Outbox, whose string) {
			t.Helper()
			told, err := o.ExpandFully(t.Context(), event, 10)
			if !errors.Is(err, dispatch.ErrNotLeased) || len(told.Pushes) > 0 {
				t.Errorf("%s expands it: %+v, %v", o.Owner, told, err)
			}
			if whose != "done" {
				mustBeUndone(db, t, event, whose)
			}
		}
		refuse(a, "") // no instance has leased it
		db.Lend(t, "ins_a", dispatch.EventCreated)
		refuse(b, "ins_a")
		db.Exec(t, "UPDATE events SET next_at = 1") // a's lease ends
		b.MustLeaseEvents(t, 10, 1)
		refuse(a, "ins_b")
		mustPush(b, t, event, 3)
		testkit.Equal(t, "the event's lease after its expansion", EventLease{}, db.LeaseOf(t, event))
		for _, o := range []*Outbox{a, b} {
			refuse(o, "done")
		}
		db.MustCount(t, 3, "notifications")
	})
}

func TestAnEventOrItsDispatchIsGone(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Add(t, nil)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		db.Exec(t, "DELETE FROM dispatches")
		MustBeError(t, "the dispatch is gone", ErrorOf(db.As("ins_a").ExpandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
		mustBeUndone(db, t, event, "ins_a")
		db.Exec(t, "DELETE FROM events")
		MustBeError(t, "the event is gone", ErrorOf(db.As("ins_a").ExpandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
	})
}

func TestExpandIsAtomic(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 3)
		db.Add(t, nil)
		o := db.As("ins_a")
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		for _, table := range []string{"notifications", "devices", "events"} {
			var err error
			db.Without(t, table, func() { _, err = o.ExpandFully(t.Context(), event, 10) })
			MustBeError(t, "without the table "+table, err, dispatch.ErrUnavailable)
			mustBeUndone(db, t, event, "ins_a")
		}
		if told, err := o.ExpandFully(t.Context(), event, 2); err != nil || len(told.Pushes) != 2 || told.Unleased != 1 {
			t.Errorf("%+v, %v", told, err)
		}
		db.MustCount(t, 3, "notifications")
	})
}

// withTopic makes any audience large enough for a topic, so that its expansion takes a transaction.
func withTopic(o *pushes.Options) { o.TopicThreshold = 1 }

func TestTheReplyOfAnExpansionsCommitIsLost(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 3)
		db.Add(t, nil)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.Proxied(t)
		o := db.By(s).As("ins_a", withTopic)
		for _, statement := range []string{"UPDATE events", "INTO notifications"} {
			MustLose(t, proxy, statement, dispatch.ErrUnavailable, func() error { return ErrorOf(o.ExpandFully(t.Context(), event, 10)) })
			testkit.Retry(t, func() error { // the server notices that its client is gone
				_, err := db.Raw.Exec("UPDATE events SET claim = 'ins_a'")
				return err
			})
			mustBeUndone(db, t, event, "ins_a")
		}
		s, proxy = db.Proxied(t) // with connections that are open
		o = db.By(s).As("ins_a", withTopic)
		MustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, func() error { return ErrorOf(o.ExpandFully(t.Context(), event, 2)) })
		mustBeWritten(db, t, event, 3)
	})
}

// mustBeWritten fails the test unless so many notifications of the event were written, which another expansion of its owner's neither
// repeats nor takes, and which are sent after the end of their leases.
func mustBeWritten(db *Bench, t *testing.T, event dispatch.EventID, want int) {
	t.Helper()
	testkit.Equal(t, "the event's lease", "ins_a", db.LeaseOf(t, event).Claim)
	told, err := db.As("ins_a").ExpandFully(t.Context(), event, 2)
	if err != nil || told.More || len(told.Pushes)+told.Unleased > 0 {
		t.Errorf("again: %+v, %v", told, err)
	}
	testkit.Equal(t, "the event's lease in the end", EventLease{}, db.LeaseOf(t, event))
	db.Exec(t, "UPDATE notifications SET due_at = 1")
	db.As("ins_b").MustLease(t, 2*want, want)
}

// Notifications that take one statement are written without a transaction. If the answer is lost, or the process dies before the event is
// completed, another expansion writes nothing again and completes the event.
func TestTheReplyOfAnOfferToFewIsLost(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 3)
		db.Add(t, nil)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.Proxied(t)
		MustLose(t, proxy, "INTO notifications", dispatch.ErrUnavailable, func() error {
			return ErrorOf(db.By(s).As("ins_a").ExpandFully(t.Context(), event, 2))
		})
		mustBeWritten(db, t, event, 3)
	})
}

// A process may hand itself the same event twice: as it committed it, and when the lease it was born with has ended.
func TestConcurrentExpandOfOneEvent(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 5)
		outboxes := db.Instances(t, 6)
		db.Add(t, nil)
		event := db.Lend(t, "ins_0", dispatch.EventCreated)
		var written atomic.Int64
		testkit.Together(len(outboxes), func(i int) {
			outboxes[i].Owner = "ins_0"
			told, err := outboxes[i].ExpandFully(t.Context(), event, 2)
			if err != nil && !errors.Is(err, dispatch.ErrNotLeased) {
				t.Error(err)
			}
			written.Add(int64(len(told.Pushes) + told.Unleased))
		})
		testkit.Equal(t, "notifications that were written", 5, written.Load())
		db.MustCount(t, 5, "notifications")
	})
}

func TestAnExpansionDoesNotWaitForAClaim(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 3)
		d := db.Add(t, nil)
		o := db.As("ins_a")
		db.Hold(t, d.ID)
		mustPush(o, t, db.Lend(t, "ins_a", dispatch.EventCreated), 3)
	})
}

// A driver accepts the dispatch while the offers are being written: the expansion of the acceptance finds no
// offers.
func TestTakenWhileTheOfferIsWritten(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 4)
		d := db.Add(t, nil)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.Proxied(t)
		hold := proxy.Hold("INTO notifications")
		ended := make(chan Told, 1)
		go func() {
			told, err := db.By(s).As("ins_a").ExpandFully(t.Context(), event, 2)
			if err != nil {
				t.Error(err)
			}
			ended <- told
		}()
		testkit.Await(t, "the INSERT", hold.Reached())
		db.MustAccept(t, d.ID, devices[0].Driver)
		db.As("ins_b").MustExpand(t, db, dispatch.EventAccepted, 10)
		hold.Release()
		told := <-ended
		if len(told.Pushes) != 0 || told.Dropped != 2 {
			t.Errorf("%d offers of a dispatch that is taken are sent, %d were dropped", len(told.Pushes), told.Dropped)
		}
		if _, dropped, err := db.As("ins_b").LeaseNotifications(t.Context(), 10); err != nil || dropped["superseded"] != 2 {
			t.Errorf("dropped %v, %v", dropped, err)
		}
		db.MustCount(t, 4, "notifications WHERE type = 'dispatch.opened' AND state = ?", pushes.StateDropped)
	})
}

// Pushes of a dispatch that could not be read again after their COMMIT count as read long ago: the relay does not send them as they are.
func TestUncheckedPushesAreOld(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.Equipped(t, 2)
		db.Add(t, nil)
		event := db.Lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.Proxied(t)
		cut := proxy.CutReply("FROM dispatches d WHERE d.id IN")
		told, err := db.By(s).As("ins_a").ExpandFully(t.Context(), event, 2)
		testkit.Await(t, "the cut", cut.Done())
		if err != nil || len(told.Pushes) != 2 {
			t.Fatalf("%d pushes, %v", len(told.Pushes), err)
		}
		for _, p := range told.Pushes {
			if !p.ReadAt.IsZero() {
				t.Errorf("a push counts as read at %s", p.ReadAt)
			}
		}
	})
}

// A push that comes long after its event is obsolete for every recipient.
func TestTheTakenAreOfUse(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Equipped(t, 2)
		d := db.Add(t, nil)
		o := db.As("ins_a")
		o.MustExpand(t, db, dispatch.EventCreated, 0)
		db.Exec(t, "UPDATE notifications SET state = 1")
		db.MustAccept(t, d.ID, v[0].Driver)
		db.Exec(t, "UPDATE events SET at = 1 WHERE type = 'dispatch.accepted'")
		db.Exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2")
		told := o.MustExpand(t, db, dispatch.EventAccepted, 10)
		if len(told.Pushes) != 1 || told.Pushes[0].Type != dispatch.EventAccepted || told.Dropped != 1 {
			t.Errorf("%+v", told)
		}
		db.MustCount(t, 1, "notifications WHERE type = 'dispatch.taken' AND state = ? AND result = 'too_late'", pushes.StateDropped)
	})
}

// If the COMMIT of a lease is unknown, nothing is sent: the rows are due again when the lease has ended.
func TestTheReplyOfALeaseIsLost(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.ManyEvents(t, 3)
		s, proxy := db.Proxied(t)
		cut := proxy.CutReply("COMMIT")
		leased, err := db.By(s).As("ins_a").LeaseEvents(t.Context(), 10)
		testkit.Await(t, "the cut", cut.Done())
		if len(leased) > 0 || !errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("leased %v, %v; want %v", leased, err, dispatch.ErrUnknown)
		}
		db.Exec(t, "UPDATE events SET next_at = 1")
		db.As("ins_b").MustLeaseEvents(t, 10, 3)
	})
}

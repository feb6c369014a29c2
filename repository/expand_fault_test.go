package repository

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// The events of a dispatch are expanded in any order: none of an older round drops or contradicts the newer offer.
func TestAnOlderRoundLeavesTheNewerAlone(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 3)
		o := db.as("ins_a")
		d := db.add(t, nil)
		db.mustAccept(t, d.ID, v[0].Driver)
		db.mustUpdate(t, d.ID, withdraw)
		if told := o.mustExpand(t, db, dispatch.EventReopened, 1); len(told.Pushes) != 1 || told.Unleased != 1 {
			t.Errorf("reopened: %+v", told)
		}
		for _, late := range []dispatch.EventType{dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventCreated} {
			if told := o.mustExpand(t, db, late, 10); len(told.Pushes)+told.Unleased != 0 {
				t.Errorf("%s: %+v", late, told)
			}
		}
		db.mustCount(t, 2, "notifications WHERE state = 0 AND round = 2")
	})
}

// The winner is notified of the cancelation, and never that another driver has taken the dispatch.
func TestTakenAndCanceledBeforeAnyPush(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a := db.audience(t)
		db.mustAccept(t, a.ID, a.winner)
		db.mustUpdate(t, a.ID, cancel)
		told := db.as("ins_a").mustExpand(t, db, dispatch.EventAccepted, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventAccepted, false)
		db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second)
	})
}

func TestALargeAudience(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const drivers, each = 500, 5
		now := db.now(t).UnixMicro()
		var args []any
		for _, v := range db.drivers(t, drivers) {
			for i := range each {
				id := dispatch.NewDeviceID(time.Now())
				args = append(args, id, v.ID, i, "token of "+string(id), now, now)
			}
		}
		for ; len(args) > 0; args = args[6*each*100:] {
			db.exec(t, `INSERT INTO devices (id, driver_id, installation_id, push_token, created_at, updated_at, platform, app_version, locale)
				VALUES `+strings.ReplaceAll(placeholders(each*100, 6), "?)", "?, 'android', '', '')"), args[:6*each*100]...)
		}
		db.add(t, nil)
		o := db.as("ins_a", func(o *OutboxOptions) { o.TopicThreshold = 100 })
		told := o.mustExpand(t, db, dispatch.EventCreated, 1200)
		if first := len(told.Pushes); first != firstPart*each || !told.More {
			t.Errorf("%d pushes are in the first part", first)
		}
		if rest := o.mustExpand(t, db, dispatch.EventCreated, 1200-len(told.Pushes)); rest.More || rest.Unleased != drivers*each-1200 {
			t.Errorf("%d pushes, %d left", len(rest.Pushes), rest.Unleased)
		}
		if n := len(db.toldOf(t, told.Event.ID)); n != drivers*each {
			t.Errorf("%d devices get a push", n)
		}
		db.mustCount(t, 1200, "notifications WHERE claim = 'ins_a' AND state = 0")
		db.mustCount(t, drivers*each, "topic_members")
		db.exec(t, "UPDATE events SET next_at = 0") // as if it was not expanded yet: no device gets a second push
		if again := o.mustExpand(t, db, dispatch.EventCreated, 10); len(again.Pushes)+again.Unleased != 0 || again.More {
			t.Errorf("again: %+v", again)
		}
	})
}

func TestOffersInRandomOrder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.equipped(t, 40)
		orders := map[string]bool{}
		for range 2 {
			db.add(t, nil)
			var order strings.Builder
			for _, p := range db.as("ins_a").mustExpand(t, db, dispatch.EventCreated, 40).Pushes {
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
func (db *database) mustBeUndone(t *testing.T, event dispatch.EventID, owner string) {
	t.Helper()
	if got := db.leaseOf(t, event); got.NextAt == 0 || got.Claim != owner {
		t.Errorf("the event has the lease %+v, want %s's", got, owner)
	}
	db.mustCount(t, 0, "notifications WHERE event_id = ?", event)
}

// mustPush fails the test unless o expands the event to so many pushes.
func (o *Outbox) mustPush(t testing.TB, event dispatch.EventID, want int) {
	t.Helper()
	if told, err := o.expandFully(t.Context(), event, want); err != nil || len(told.Pushes) != want {
		t.Errorf("%+v, %v; want %d pushes", told, err, want)
	}
}

func TestOnlyItsOwnerExpandsAnEvent(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.equipped(t, 3)
		db.add(t, nil)
		a, b := db.as("ins_a"), db.as("ins_b")
		event := db.lend(t, "", dispatch.EventCreated)
		refuse := func(o *Outbox, whose string) {
			t.Helper()
			told, err := o.expandFully(t.Context(), event, 10)
			if !errors.Is(err, dispatch.ErrNotLeased) || len(told.Pushes) > 0 {
				t.Errorf("%s expands it: %+v, %v", o.Owner, told, err)
			}
			if whose != "done" {
				db.mustBeUndone(t, event, whose)
			}
		}
		refuse(a, "") // no instance has leased it
		db.lend(t, "ins_a", dispatch.EventCreated)
		refuse(b, "ins_a")
		db.exec(t, "UPDATE events SET next_at = 1") // a's lease ends
		b.mustLeaseEvents(t, 10, 1)
		refuse(a, "ins_b")
		b.mustPush(t, event, 3)
		testkit.Equal(t, "the event's lease after its expansion", eventLease{}, db.leaseOf(t, event))
		for _, o := range []*Outbox{a, b} {
			refuse(o, "done")
		}
		db.mustCount(t, 3, "notifications")
	})
}

func TestAnEventOrItsDispatchIsGone(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		db.exec(t, "DELETE FROM dispatches")
		mustBeError(t, "the dispatch is gone", errorOf(db.as("ins_a").expandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
		db.mustBeUndone(t, event, "ins_a")
		db.exec(t, "DELETE FROM events")
		mustBeError(t, "the event is gone", errorOf(db.as("ins_a").expandFully(t.Context(), event, 10)), dispatch.ErrNotLeased)
	})
}

func TestExpandIsAtomic(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.equipped(t, 3)
		db.add(t, nil)
		o := db.as("ins_a")
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		for _, table := range []string{"notifications", "devices", "events"} {
			var err error
			db.without(t, table, func() { _, err = o.expandFully(t.Context(), event, 10) })
			mustBeError(t, "without the table "+table, err, dispatch.ErrUnavailable)
			db.mustBeUndone(t, event, "ins_a")
		}
		if told, err := o.expandFully(t.Context(), event, 2); err != nil || len(told.Pushes) != 2 || told.Unleased != 1 {
			t.Errorf("%+v, %v", told, err)
		}
		db.mustCount(t, 3, "notifications")
	})
}

func TestTheReplyOfAnExpansionsCommitIsLost(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		const many = maxFew + 1
		db.equipped(t, many)
		db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.proxied(t)
		o := s.as("ins_a")
		for _, statement := range []string{"UPDATE events", "INTO notifications"} {
			mustLose(t, proxy, statement, dispatch.ErrUnavailable, func() error { return errorOf(o.expandFully(t.Context(), event, 10)) })
			testkit.Retry(t, func() error { // the server notices that its client is gone
				_, err := db.raw.Exec("UPDATE events SET claim = 'ins_a'")
				return err
			})
			db.mustBeUndone(t, event, "ins_a")
		}
		s, proxy = db.proxied(t) // with connections that are open
		o = s.as("ins_a")
		expand := func() error { return errorOf(o.expandFully(t.Context(), event, 2)) }
		mustLose(t, proxy, "COMMIT", dispatch.ErrUnknown, expand)
		mustBeError(t, "again", expand(), dispatch.ErrNotLeased)
		// The pushes that it leased are sent after their lease has ended.
		db.exec(t, "UPDATE notifications SET due_at = 1")
		db.as("ins_b").mustLease(t, 2*many, many)
	})
}

func TestAnExpansionsCommitNeverArrives(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		const many = maxFew + 1
		db.equipped(t, many)
		db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.proxied(t)
		_, ended := untilCommit(t, proxy, func() error { return errorOf(s.as("ins_a").expandFully(t.Context(), event, 10)) })
		proxy.CutAll()
		mustBeError(t, "the COMMIT is lost", <-ended, dispatch.ErrUnknown)
		testkit.Retry(t, func() error { // the lease ends, and another instance expands it
			_, err := db.raw.Exec("UPDATE events SET next_at = 1 WHERE next_at IS NOT NULL")
			return err
		})
		b := db.as("ins_b")
		b.mustLeaseEvents(t, 10, 1)
		b.mustPush(t, event, many)
	})
}

// An offer to few drivers is written without its event's completion. If the answer is lost, or the process dies before the completion,
// another expansion writes nothing again and completes the event.
func TestTheReplyOfAnOfferToFewIsLost(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.equipped(t, 3)
		db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.proxied(t)
		mustLose(t, proxy, "INTO notifications", dispatch.ErrUnavailable, func() error { return errorOf(s.as("ins_a").Expand(t.Context(), event, 2)) })
		testkit.Equal(t, "the event's lease", "ins_a", db.leaseOf(t, event).Claim)
		told, err := db.as("ins_a").Expand(t.Context(), event, 2)
		if err != nil || told.Open || len(told.Pushes)+told.Unleased > 0 {
			t.Errorf("again: %+v, %v", told, err)
		}
		testkit.Equal(t, "the event's lease in the end", eventLease{}, db.leaseOf(t, event))
		db.exec(t, "UPDATE notifications SET due_at = 1") // the leases end
		db.as("ins_b").mustLease(t, 10, 3)
	})
}

// A process may hand itself the same event twice: as it committed it, and when the lease it was born with has ended.
func TestConcurrentExpandOfOneEvent(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.equipped(t, 5)
		outboxes := db.instances(t, 6)
		db.add(t, nil)
		event := db.lend(t, "ins_0", dispatch.EventCreated)
		var written atomic.Int64
		testkit.Together(len(outboxes), func(i int) {
			outboxes[i].Owner = "ins_0"
			told, err := outboxes[i].expandFully(t.Context(), event, 2)
			if err != nil && !errors.Is(err, dispatch.ErrNotLeased) {
				t.Error(err)
			}
			written.Add(int64(len(told.Pushes) + told.Unleased))
		})
		testkit.Equal(t, "notifications that were written", 5, written.Load())
		db.mustCount(t, 5, "notifications")
	})
}

func TestAnExpansionDoesNotWaitForAClaim(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.equipped(t, 3)
		d := db.add(t, nil)
		o := db.as("ins_a")
		db.hold(t, d.ID)
		o.mustPush(t, db.lend(t, "ins_a", dispatch.EventCreated), 3)
	})
}

// A driver accepts the dispatch while the offers are being written: the expansion of the acceptance finds no
// offers.
func TestTakenWhileTheOfferIsWritten(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		devices := db.equipped(t, 4)
		d := db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.proxied(t)
		hold := proxy.Hold("INTO notifications")
		ended := make(chan outbox.Expansion, 1)
		go func() {
			told, err := s.as("ins_a").expandFully(t.Context(), event, 2)
			if err != nil {
				t.Error(err)
			}
			ended <- told
		}()
		testkit.Await(t, "the INSERT", hold.Reached())
		db.mustAccept(t, d.ID, devices[0].Driver)
		db.as("ins_b").mustExpand(t, db, dispatch.EventAccepted, 10)
		hold.Release()
		told := <-ended
		if len(told.Pushes) != 0 || told.Dropped != 2 {
			t.Errorf("%d offers of a dispatch that is taken are sent, %d were dropped", len(told.Pushes), told.Dropped)
		}
		if _, dropped, err := db.as("ins_b").LeaseNotifications(t.Context(), 10); err != nil || dropped["superseded"] != 2 {
			t.Errorf("dropped %v, %v", dropped, err)
		}
		db.mustCount(t, 4, "notifications WHERE type = 'dispatch.opened' AND state = ?", stateDropped)
	})
}

// Pushes of a dispatch that could not be read again after their COMMIT count as read long ago: the relay does not send them as they are.
func TestUncheckedPushesAreOld(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.equipped(t, 2)
		db.add(t, nil)
		event := db.lend(t, "ins_a", dispatch.EventCreated)
		s, proxy := db.proxied(t)
		cut := proxy.CutReply("FROM dispatches d WHERE d.id")
		told, err := s.as("ins_a").expandFully(t.Context(), event, 2)
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
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 2)
		d := db.add(t, nil)
		o := db.as("ins_a")
		o.mustExpand(t, db, dispatch.EventCreated, 0)
		db.exec(t, "UPDATE notifications SET state = 1")
		db.mustAccept(t, d.ID, v[0].Driver)
		db.exec(t, "UPDATE events SET at = 1 WHERE type = 'dispatch.accepted'")
		db.exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2")
		told := o.mustExpand(t, db, dispatch.EventAccepted, 10)
		if len(told.Pushes) != 1 || told.Pushes[0].Type != dispatch.EventAccepted || told.Dropped != 1 {
			t.Errorf("%+v", told)
		}
		db.mustCount(t, 1, "notifications WHERE type = 'dispatch.taken' AND state = ? AND result = 'too_late'", stateDropped)
	})
}

// If the COMMIT of a lease is unknown, nothing is sent: the rows are due again when the lease has ended.
func TestTheReplyOfALeaseIsLost(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.manyEvents(t, 3)
		s, proxy := db.proxied(t)
		cut := proxy.CutReply("COMMIT")
		leased, err := s.as("ins_a").LeaseEvents(t.Context(), 10)
		testkit.Await(t, "the cut", cut.Done())
		if len(leased) > 0 || !errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("leased %v, %v; want %v", leased, err, dispatch.ErrUnknown)
		}
		db.exec(t, "UPDATE events SET next_at = 1")
		db.as("ins_b").mustLeaseEvents(t, 10, 3)
	})
}

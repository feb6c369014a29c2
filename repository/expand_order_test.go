package repository

import (
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
)

// The events of a dispatch are expanded in any order: none of an older round drops or contradicts the newer offer.
func TestAnOlderRoundLeavesTheNewerAlone(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 3)
		o := db.as("ins_a")
		d := db.add(t, nil)
		db.mustAccept(t, d.ID, v[0].Driver)
		db.mustUpdate(t, d.ID, withdraw)
		if told := o.mustExpand(t, db, dispatch.EventReopened, 1); len(told.Pushes) != 1 || told.Unleased != 2 {
			t.Errorf("reopened: %+v", told)
		}
		for _, late := range []dispatch.EventType{dispatch.EventAccepted, dispatch.EventWithdrawn, dispatch.EventCreated} {
			if told := o.mustExpand(t, db, late, 10); len(told.Pushes)+told.Unleased != 0 {
				t.Errorf("%s: %+v", late, told)
			}
		}
		db.mustCount(t, 3, "notifications WHERE state = 0 AND round = 2")
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
		if len(told.Pushes) != 1200 || told.Unleased != drivers*each-1200 {
			t.Errorf("%d pushes, %d left", len(told.Pushes), told.Unleased)
		}
		if n := len(db.toldOf(t, told.Event.ID)); n != drivers*each {
			t.Errorf("%d devices get a push", n)
		}
		db.mustCount(t, 1200, "notifications WHERE claim = 'ins_a' AND state = 0")
		db.mustCount(t, drivers*each, "topic_members")
		db.exec(t, "UPDATE outbox SET state = 0") // as if it was not expanded yet: no device gets a second push
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

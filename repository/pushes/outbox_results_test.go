package pushes_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func TestRecordResults(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		ids := db.Leased(t, o, 5)
		settled := []outbox.SendResult{
			{ID: ids[0], Status: outbox.Sent, Attempts: 1, Result: "sent"},
			{ID: ids[1], Status: outbox.Dropped, Attempts: 2, Result: "dead_token", Reason: "UNREGISTERED"},
			{ID: ids[2], Status: outbox.Dead, Attempts: 20, Result: "unsure", Reason: "timeout"},
			{ID: ids[3], Status: outbox.Pending, RetryAfter: time.Hour, Attempts: 3, Result: "quota", Reason: "429"},
		}
		Must(t, o.RecordResults(t.Context(), settled, nil))
		states := []int{pushes.StateDone, pushes.StateDropped, pushes.StateDead, pushes.StatePending}
		// A sent push is kept until two days after the end of its offer, which is in nine minutes.
		next := []time.Duration{9*time.Minute + 48*time.Hour, 48 * time.Hour, 30 * 24 * time.Hour, time.Hour}
		for i, s := range settled {
			got := db.Stored(t, s.ID)
			db.MustBeAbout(t, fmt.Sprintf("due_at of one that is %s", s.Status), got.DueAt, next[i])
			if sent := s.Status == outbox.Sent; sent != (got.SentAt != nil) {
				t.Errorf("%s: sent at %v", s.Status, got.SentAt)
			} else if sent {
				db.MustBeAbout(t, "sent_at", *got.SentAt, 0)
			}
			want := got
			want.State, want.Claim, want.Attempts, want.Result, want.Reason = states[i], "", s.Attempts, s.Result, s.Reason
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s is stored as %+v", s.Status, got)
			}
		}
		if got := db.Stored(t, ids[4]); got.Claim != "ins_a" || got.State != pushes.StatePending {
			t.Errorf("the push without a result is %+v", got)
		}
		db.Exec(t, "UPDATE notifications SET claim = 'ins_a' WHERE id = ?", ids[3]) // leased again, and released without an attempt
		Must(t, o.RecordResults(t.Context(), []outbox.SendResult{{ID: ids[3], Status: outbox.Pending, RetryAfter: time.Second, Attempts: 3}}, nil))
		if got := db.Stored(t, ids[3]); got.Claim != "" || got.Result != "quota" || got.Reason != "429" {
			t.Errorf("the release left %+v", got)
		}
		db.Exec(t, "UPDATE notifications SET expires_at = 1")
		o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, ids[4])
		db.MustBeAbout(t, "due_at of one that is sent after its offer's end", db.Stored(t, ids[4]).DueAt, 48*time.Hour)
	})
}

func TestOnlyTheOwnerRecordsResults(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a, b := db.As("ins_a"), db.As("ins_b")
		ids := db.Leased(t, a, 2)
		every := func(o *Outbox, ids ...dispatch.NotificationID) {
			t.Helper()
			for _, s := range []outbox.Status{outbox.Pending, outbox.Sent, outbox.Dropped, outbox.Dead} {
				for _, id := range ids {
					before := db.Stored(t, id)
					o.MustRecord(t, outbox.SendResult{Status: s, Attempts: 9, Result: "x", Reason: "y"}, id)
					if got := db.Stored(t, id); !reflect.DeepEqual(got, before) {
						t.Errorf("%s: %s made %+v of %+v", s, o.Owner, got, before)
					}
				}
			}
		}
		every(b, ids...)
		// a's leases end, and b takes one of them.
		db.Exec(t, "UPDATE notifications SET due_at = 1")
		if b.MustLease(t, 1, 1)[0].ID == ids[1] {
			ids[0], ids[1] = ids[1], ids[0]
		}
		every(a, ids[0])
		// The other is still a's although its lease has ended: it was sent, and is not sent again.
		for range 2 {
			a.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, ids[1])
			if got := db.Stored(t, ids[1]); got.State != pushes.StateDone {
				t.Errorf("it is %+v", got)
			}
		}
		every(a, ids[1]) // a recorded result is final
		every(b, ids[1])
		a.MustRecord(t, outbox.SendResult{})
	})
}

func TestOneStatementRecordsManyResults(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		ids := db.Leased(t, o, 300)
		var sent, mixed []outbox.SendResult
		for i, id := range ids {
			s := outbox.SendResult{ID: id, Status: outbox.Sent, Result: "sent"}
			if i < 200 {
				sent = append(sent, s)
				continue
			}
			if i%2 == 0 {
				s.Status, s.RetryAfter = outbox.Pending, time.Hour
			}
			mixed = append(mixed, s)
		}
		for i, settled := range [][]outbox.SendResult{sent, mixed} {
			all := db.Statements(t, func() { Must(t, o.RecordResults(t.Context(), settled, nil)) })
			if want := i + 1; len(all) != want {
				t.Errorf("%d statements, want %d", len(all), want)
			}
		}
		db.MustCount(t, 250, "notifications WHERE state = 1")
	})
}

// A sent push is recorded with any reason of the push service: otherwise it would be sent again and again.
func TestRecordResultsWithAnyReason(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		for _, reason := range []string{
			strings.Repeat("x", 300), strings.Repeat("\u20a9", 300), strings.Repeat("\U0001f69a", 255), "not UTF-8: \xff\xfe", "a\x00b", "it's",
		} {
			id := db.Leased(t, o, 1)[0]
			o.MustRecord(t, outbox.SendResult{Status: outbox.Dead, Reason: reason}, id)
			if got := db.Stored(t, id); got.State != pushes.StateDead || got.Reason == "" {
				t.Errorf("%.20q: %+v", reason, got)
			}
		}
	})
}

func TestOneBadResultRecordsNone(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		ids := db.Leased(t, o, 2)
		err := o.RecordResults(t.Context(), []outbox.SendResult{
			{ID: ids[0], Status: outbox.Sent}, {ID: ids[1], Status: "LOST"},
		}, nil)
		if n := db.Count(t, "notifications WHERE state = 0 AND claim = 'ins_a'"); err == nil || n != 2 {
			t.Errorf("got %v, %d are leased", err, n)
		}
	})
}

func TestLeasedPushesAreReadyToSend(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		v := db.Fleet(t, 1)[0]
		phone := db.Device(t, v.ID, func(p *dispatch.Device) { p.Locale, p.Platform = "ko-KR", dispatch.IOS })
		tablet := db.Device(t, v.ID, func(p *dispatch.Device) { p.Locale = "" })
		now := db.Now(t)
		rows := db.WriteNotifications(t, d, 3, func(i int, n *pushes.NotificationRow) {
			n.Attempts, n.Silent, n.At = i, i == 1, database.Micros(now)+int64(i)
			switch i {
			case 0, 1:
				n.DriverID, n.DeviceID = v.ID, []dispatch.DeviceID{phone.ID, tablet.ID}[i]
			case 2:
				n.Topic, n.Type, n.Result = "dispatch-x", dispatch.EventTaken, "QUOTA"
			}
		})
		before := time.Now()
		byID := map[dispatch.NotificationID]outbox.Push{}
		for _, p := range db.As("ins_a").MustLease(t, 10, 3) {
			if p.LeasedUntil.Before(before.Add(Term)) || p.LeasedUntil.After(time.Now().Add(Term)) {
				t.Errorf("leased until %v", p.LeasedUntil)
			}
			if p.ReadAt.Before(before) || p.ReadAt.After(time.Now()) {
				t.Errorf("the dispatch was read at %v", p.ReadAt)
			}
			p.LeasedUntil, p.ReadAt = time.Time{}, time.Time{}
			byID[p.ID] = p
		}
		on := func(p dispatch.Device, locale string) dispatch.Device {
			return dispatch.Device{ID: p.ID, Driver: v.ID, Platform: p.Platform, PushToken: p.PushToken, Locale: locale}
		}
		for i, want := range []outbox.Push{
			{Type: dispatch.EventOpened, Driver: v.ID, Device: on(phone, "ko-KR")},
			{Type: dispatch.EventOpened, Driver: v.ID, Device: on(tablet, v.Locale), Silent: true},
			{Type: dispatch.EventTaken, Topic: "dispatch-x", Tried: true},
		} {
			want.ID, want.Event, want.Round, want.Dispatch, want.Attempts = rows[i].ID, rows[i].EventID, 1, d, i
			want.EventAt, want.UsefulUntil = database.Time(rows[i].At), d.ExpiresAt
			if got := byID[rows[i].ID]; !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
	})
}

// Pushes that were leased and could not be read are leased again by the next call, long before their leases would end.
func TestLeasedPushesThatCouldNotBeRead(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.WriteNotifications(t, db.Add(t, nil), 3, ToDevices(db.Equipped(t, 3)))
		o := db.As("ins_a")
		db.Exec(t, "ALTER TABLE devices RENAME TO devices_gone")
		for range 2 {
			MustBeError(t, "without the devices", ErrorOfPage(o.LeaseNotifications(t.Context(), 10)), dispatch.ErrUnavailable)
		}
		db.Exec(t, "ALTER TABLE devices_gone RENAME TO devices")
		o.MustLease(t, 10, 3)
		o.MustLease(t, 10, 0)
	})
}

func TestLeaseDropsObsoleteNotifications(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, canceled := db.Add(t, nil), db.Add(t, nil)
		db.MustUpdate(t, canceled.ID, Cancel)
		devices := db.Equipped(t, 4)
		db.Exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id = ?", devices[1].ID)
		db.Exec(t, "DELETE FROM devices WHERE id = ?", devices[2].ID)
		rows := db.WriteNotifications(t, d, 7, func(i int, n *pushes.NotificationRow) {
			ToDevices(devices)(min(i, 3), n)
			switch i {
			case 3:
				n.DriverID = devices[0].Driver // the device is another driver's
			case 4:
				n.DispatchID = canceled.ID
			case 5:
				n.Round = 2
			case 6:
				n.Type, n.Silent, n.ExpiresAt = dispatch.EventTaken, true, database.Micros(db.Now(t))
			}
			n.Attempts = i
		})
		leased, dropped, err := db.As("ins_a").LeaseNotifications(t.Context(), 10)
		if err != nil || len(leased) != 1 || leased[0].ID != rows[0].ID {
			t.Errorf("leased %+v, %v", leased, err)
		}
		if want := map[string]int{"no_device": 3, "superseded": 2, "too_late": 1}; !maps.Equal(dropped, want) {
			t.Errorf("dropped %v, want %v", dropped, want)
		}
		for i, why := range []string{"", "no_device", "no_device", "no_device", "superseded", "superseded", "too_late"} {
			got := db.Stored(t, rows[i].ID)
			if i > 0 && (got.State != pushes.StateDropped || got.Result != why || got.Attempts != i || got.Claim != "" || got.SentAt != nil) {
				t.Errorf("%d is %+v, want it dropped: %s", i, got, why)
			}
		}
		db.As("ins_b").MustLease(t, 10, 0)
	})
}

func TestReleaseEvents(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.ManyEvents(t, 7)
		a, b := db.As("ins_a"), db.As("ins_b")
		a.MustLeaseEvents(t, 3, 3)
		b.MustLeaseEvents(t, 2, 2)
		db.Exec(t, "UPDATE events SET next_at = NULL, claim = '' WHERE id = (SELECT id FROM (SELECT MIN(id) id FROM events WHERE claim = 'ins_a') x)")
		Must(t, a.ReleaseEvents(t.Context()))
		db.MustCount(t, 0, "events WHERE claim = 'ins_a'")
		b.MustLeaseEvents(t, 10, 4) // two that a has released, and two that were not leased
		db.MustCount(t, 6, "events WHERE claim = 'ins_b'")
	})
}

func TestBacklog(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		mustBe := func(want int, age time.Duration) {
			t.Helper()
			due, oldest, err := db.Backlog(t.Context())
			if err != nil || due != want || oldest < age || !Near(time.Now().Add(-oldest), time.Now().Add(-age)) {
				t.Errorf("%d due, the oldest for %v, %v; want %d and %v", due, oldest, err, want, age)
			}
		}
		mustBe(0, 0)
		d := db.Add(t, nil)
		devices, hour := ToDevices(db.Equipped(t, 10)), db.Now(t).Add(-time.Hour)
		rows := db.WriteNotifications(t, d, 10, func(i int, n *pushes.NotificationRow) {
			devices(i, n)
			n.ID = dispatch.NewNotificationID(hour)
		})
		db.Exec(t, "UPDATE notifications SET due_at = ? WHERE id = ?", database.Micros(db.Now(t).Add(-time.Hour)), rows[3].ID)
		mustBe(10, time.Hour)
		for i, state := range []int{pushes.StateDone, pushes.StateDead, pushes.StateDropped} {
			db.Exec(t, "UPDATE notifications SET state = ? WHERE id = ?", state, rows[i].ID)
		}
		db.Exec(t, "UPDATE notifications SET due_at = ? WHERE id = ?", database.Micros(db.Now(t).Add(time.Hour)), rows[4].ID)
		mustBe(6, time.Hour)
		o.MustLease(t, 1, 1) // the one of an hour ago
		mustBe(5, time.Minute)
	})
}

func TestWithoutADatabase(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		for _, table := range []string{"notifications", "events", "topics"} {
			db.Exec(t, "ALTER TABLE "+table+" RENAME TO "+table+"_gone")
		}
		ctx := t.Context()
		for _, err := range []error{
			ErrorOf(o.LeaseEvents(ctx, 1)), ErrorOfPage(o.LeaseNotifications(ctx, 1)), ErrorOfPage(db.Backlog(ctx)),
			ErrorOf(o.LeaseTopics(ctx, 1)), ErrorOf(o.Expand(ctx, []dispatch.EventID{"evt_x"}, 1)), o.ReleaseEvents(ctx),
			o.RecordResults(ctx, []outbox.SendResult{{ID: "ntf_x", Status: outbox.Sent}}, nil), o.RecordResults(ctx, nil, []dispatch.EventID{"evt_x"}),
			o.RecordMembers(ctx, outbox.Topic{}, nil, nil), o.CompleteTopic(ctx, outbox.Topic{}),
		} {
			MustBeError(t, "without its tables", err, dispatch.ErrUnavailable)
		}
	})
}

// The database's clock decides which pushes are obsolete, not the clock of the process.
func TestLeaseByTheDatabasesClock(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			db := Migrated(t, servertest.StartMariaDBSkewed(t, offset).URL(t))
			db.Equipped(t, 2)
			db.Add(t, nil)
			o := db.As("ins_a")
			o.MustLeaseEvents(t, 10, 1)
			told := o.MustExpand(t, db, dispatch.EventCreated, 1)
			pushes, dropped, err := o.LeaseNotifications(t.Context(), 10)
			if err != nil || len(told.Pushes) != 1 || len(pushes) != 1 || len(dropped) != 0 {
				t.Errorf("took %d, leased %d, dropped %v, %v", len(told.Pushes), len(pushes), dropped, err)
			}
			db.Pass(t, told.Dispatch.ID)
			db.Exec(t, "UPDATE notifications SET expires_at = ?, due_at = 1", database.Micros(db.Now(t)))
			o.MustLease(t, 10, 0) // they are of no use
		})
	}
}

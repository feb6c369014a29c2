package devices_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/devices"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// byToken returns the stored devices by token.
func byToken(db *Bench, t testing.TB) map[string]dispatch.Device {
	t.Helper()
	var rows []devices.DeviceRow
	Must(t, db.Serve.With(t.Context()).Find(&rows).Error)
	found := map[string]dispatch.Device{}
	for i := range rows {
		found[rows[i].PushToken] = rows[i].Device()
	}
	if len(found) != len(rows) {
		t.Errorf("%d devices with %d tokens", len(rows), len(found))
	}
	return found
}

// TestPutDevice: an installation keeps its device id, and a token belongs to the newest device only.
func TestPutDevice(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		a, b := drivers[0].ID, drivers[1].ID
		mustKeep := func(what string, only dispatch.Device) {
			t.Helper()
			if got := byToken(db, t); len(got) != 1 || !reflect.DeepEqual(got[only.PushToken], only) {
				t.Errorf("%s: got %+v, want %+v", what, got, only)
			}
		}
		put := func(what string, v dispatch.Device) dispatch.Device {
			t.Helper()
			got := db.MustPut(t, v)
			if v.ID, v.UpdatedAt = got.ID, got.UpdatedAt; !reflect.DeepEqual(got, v) || got.ID == "" || !Near(got.UpdatedAt, time.Now()) {
				t.Errorf("%s: got %+v, want %+v", what, got, v)
			}
			mustKeep(what, got)
			return got
		}
		full := SomeDevice(a, "phone !~", "token !~")
		full.AppVersion, full.Locale = "1.2 (한국어)", ""
		made := put("made", full)
		changed := put("changed", dispatch.Device{
			Driver: a, Installation: full.Installation, Platform: dispatch.IOS, PushToken: "t1", AppVersion: "2", Locale: "en",
		})
		if changed.ID != made.ID || changed.UpdatedAt.Before(made.UpdatedAt) {
			t.Errorf("the same installation: %+v, was %+v", changed, made)
		}
		put("another installation takes the token", SomeDevice(a, "tablet", "t1"))
		db.MustPut(t, SomeDevice(b, "tablet", "t2"))
		taken := put("another driver takes the token", SomeDevice(b, "tablet", "t1"))

		_, err := db.PutDevice(t.Context(), SomeDevice(dispatch.NewDriverID(time.Now()), "tablet", "t1"))
		MustBeError(t, "a device of an unknown driver", err, dispatch.ErrDriverNotFound)
		mustKeep("an unknown driver's registration takes no token", taken)
	})
}

// TestTenDevices: the eleventh takes the place of the one that was registered the longest ago, whatever was made first.
func TestTenDevices(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		db.MustPut(t, SomeDevice(drivers[1].ID, "another's", "another's"))
		for i := range devices.MaxDevices {
			db.MustPut(t, SomeDevice(drivers[0].ID, fmt.Sprint(i), fmt.Sprint("t", i)))
		}
		db.MustPut(t, SomeDevice(drivers[0].ID, "0", "t0"))
		db.MustPut(t, SomeDevice(drivers[0].ID, "eleventh", "eleventh"))
		db.MustPut(t, SomeDevice(drivers[0].ID, "eleventh", "eleventh"))
		left := byToken(db, t)
		if _, ok := left["t1"]; ok || len(left) != devices.MaxDevices+1 {
			t.Errorf("%d devices: %v", len(left), left)
		}
	})
}

// TestTokensAtOnce: concurrent registrations with the same token, the same installation or each other's tokens all succeed,
// and in the end each token and each installation has one device.
func TestTokensAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		const n = 24
		drivers := db.Fleet(t, n)
		stores := []*repository.Store{db.Store, OpenPatient(t, db.URL)}
		put := func(i int, v dispatch.Device) {
			if _, err := stores[i%len(stores)].Devices.PutDevice(t.Context(), v); err != nil {
				t.Errorf("%+v: %v", v, err)
			}
		}
		for range testkit.Scale(1, 3) {
			testkit.Together(n, func(i int) { put(i, SomeDevice(drivers[i].ID, "i", "same")) })
			if left := byToken(db, t); len(left) != 1 || left["same"].Driver == "" {
				t.Errorf("the same token: %v", left)
			}
		}
		for i, v := range drivers {
			put(i, SomeDevice(v.ID, "i", fmt.Sprint(i)))
		}
		for round := range testkit.Scale(2, 5) {
			testkit.Together(n, func(i int) { put(i, SomeDevice(drivers[i].ID, "i", fmt.Sprint((i+round+1)%n))) })
			if left := byToken(db, t); len(left) != n {
				t.Errorf("each has the token of the next: %d left", len(left))
			}
		}
		db.Exec(t, "DELETE FROM devices")
		testkit.Together(n, func(i int) { put(i, SomeDevice(drivers[0].ID, "i", fmt.Sprint("t", i))) })
		if left := byToken(db, t); len(left) != 1 {
			t.Errorf("one installation: %v", left)
		}
		testkit.Together(n, func(i int) { put(i, SomeDevice(drivers[0].ID, fmt.Sprint(i), fmt.Sprint("t", i))) })
		if left := byToken(db, t); len(left) != devices.MaxDevices {
			t.Errorf("%d of one driver's", len(left))
		}
		testkit.Together(n, func(i int) { put(i, SomeDevice(drivers[0].ID, "twice", "twice")) })
		db.MustCount(t, 1, "devices WHERE push_token = 'twice'")
	})
}

func TestDeleteDevice(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		for i, v := range drivers {
			db.MustPut(t, SomeDevice(v.ID, "i", fmt.Sprint(i)))
			db.MustPut(t, SomeDevice(v.ID, "j", fmt.Sprint(i, "j")))
		}
		for range 2 {
			Must(t, db.DeleteDevice(t.Context(), drivers[0].ID, "i"))
		}
		if left := byToken(db, t); len(left) != 3 || left["0"].ID != "" {
			t.Errorf("left: %v", left)
		}
		MustBeError(t, "an unknown driver's", db.DeleteDevice(t.Context(), dispatch.NewDriverID(time.Now()), "i"), dispatch.ErrDriverNotFound)
	})
}

// When retention deletes a device with a dead token, it also deletes the device from all topics: a dead token can't be unsubscribed.
func TestDeadTokensLeaveTheirTopics(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		db.Exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('dispatch-dsp_x', 0, 1, 0, '')")
		v := db.Fleet(t, 1)[0]
		for _, token := range []string{"dead", "alive"} {
			d := db.MustPut(t, SomeDevice(v.ID, token, token))
			db.Exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES ('dispatch-dsp_x', ?, ?, 1)", d.ID, d.PushToken)
		}
		db.Exec(t, "UPDATE devices SET quarantined_at = 1 WHERE push_token = 'dead'")
		db.MustPrune(t, 1)
		db.MustCount(t, 0, "topic_members WHERE push_token = 'dead'")
		db.MustCount(t, 1, "topic_members WHERE push_token = 'alive'")
	})
}

// TestJudgements: trust, suspicion and quarantine belong to the token, and end when the device gets a new token.
func TestJudgements(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		all := db.Equipped(t, devices.DevicesPerStatement+1)
		mustBe := func(what string, suspected, quarantined int) {
			t.Helper()
			var got [2]int
			err := db.Raw.QueryRow("SELECT COUNT(suspected_at), COUNT(quarantined_at) FROM devices").Scan(&got[0], &got[1])
			if want := [2]int{suspected, quarantined}; err != nil || got != want {
				t.Errorf("%s: suspected, in quarantine %v, %v; want %v", what, got, err, want)
			}
		}
		mustRecord := func(v outbox.Verdict, devices ...dispatch.Device) {
			t.Helper()
			Must(t, ErrorOf(db.RecordVerdict(t.Context(), v, devices)))
		}
		db.MustPut(t, SomeDevice(all[0].Driver, all[0].Installation, "new"))
		mustRecord(outbox.Quarantined, all...)
		mustBe("without suspicion", 0, 0)
		mustRecord(outbox.Suspected, all...)
		mustBe("suspected", len(all)-1, 0)
		first := byToken(db, t)[all[1].PushToken].SuspectedAt
		mustRecord(outbox.Suspected, all...)
		if again := byToken(db, t)[all[1].PushToken].SuspectedAt; first == nil || !Near(*first, time.Now()) || again == nil || !again.Equal(*first) {
			t.Errorf("since %v, then %v", first, again)
		}
		mustRecord(outbox.Trusted, all[2], all[3])
		mustRecord(outbox.Quarantined, all[2])
		mustBe("quarantined after it was accepted", len(all)-3, 0)
		mustRecord(outbox.Quarantined, all[1], all[4])
		mustBe("in quarantine", len(all)-5, 2)
		mustRecord(outbox.Suspected, all...)
		mustBe("suspected again", len(all)-3, 2)
		mustRecord(outbox.Trusted, all[4])
		mustBe("taken after all", len(all)-3, 1)

		back := db.MustPut(t, SomeDevice(all[1].Driver, all[1].Installation, all[1].PushToken))
		if back.QuarantinedAt != nil || back.SuspectedAt == nil || byToken(db, t)[all[1].PushToken].SuspectedAt == nil {
			t.Errorf("the same token came again: %+v", back)
		}
		if kept := db.MustPut(t, SomeDevice(all[2].Driver, all[2].Installation, all[2].PushToken)); kept.SuspectedAt == nil {
			t.Errorf("a suspect token came again: %+v", kept)
		}
		for _, v := range []dispatch.Device{all[2], all[5]} {
			fresh := db.MustPut(t, SomeDevice(v.Driver, v.Installation, "another of "+v.PushToken))
			if fresh.SuspectedAt != nil || fresh.QuarantinedAt != nil {
				t.Errorf("of a new token is known %+v", fresh)
			}
		}
		mustBe("some came again", len(all)-4, 0)
		for _, v := range []outbox.Verdict{outbox.Trusted, outbox.Suspected, outbox.Quarantined} {
			mustRecord(v)
		}
	})
}

// TestFewAreQuarantinedAtOnce: within a minute one in a hundred devices is quarantined, and one at least.
func TestFewAreQuarantinedAtOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		quarantine := func(what string, all []dispatch.Device, want int) {
			t.Helper()
			db.Exec(t, "UPDATE devices SET suspected_at = 1 WHERE quarantined_at IS NULL")
			n, err := OpenPatient(t, db.URL).Devices.RecordVerdict(t.Context(), outbox.Quarantined, all)
			if n != want || err != nil {
				t.Errorf("%s: %d are quarantined, %v, want %d", what, n, err, want)
			}
		}
		all := db.Equipped(t, 30)
		quarantine("one of a small fleet", all, 1)
		quarantine("no other", all[1:], 0)
		all = append(all, db.Equipped(t, 400-30)...)
		quarantine("one in a hundred, of which one is", all[1:], 3)
		db.MustCount(t, 4, "devices WHERE quarantined_at IS NOT NULL")
		db.Exec(t, "UPDATE devices SET quarantined_at = quarantined_at - ?", time.Minute.Microseconds())
		quarantine("a minute later", all[4:], 4)
		db.MustCount(t, 8, "devices WHERE quarantined_at IS NOT NULL")
	})
}

// TestSeen: the first time of each round and driver is stored, and later reports do not change it.
func TestSeen(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		id := db.Add(t, nil).ID
		drivers := db.Fleet(t, 3)
		db.Exec(t, "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, 1, ?, NULL)", id, drivers[2].ID)
		seen := func() (times []int64) {
			t.Helper()
			err := db.Serve.With(t.Context()).Raw("SELECT COALESCE(seen_at, 0) FROM offers ORDER BY driver_id, round").Scan(&times).Error
			Must(t, err)
			return times
		}
		var first []int64
		for range 2 {
			MustAll(t, 12, func(i int) error { return db.MarkSeen(t.Context(), id, 1+i%2, drivers[i%3].ID) })
			times := seen()
			if len(times) != 6 || slices.Contains(times, 0) || !Near(database.Time(times[0]), time.Now()) {
				t.Errorf("seen %v", times)
			}
			if first == nil {
				first = times
			} else if !slices.Equal(times, first) {
				t.Errorf("seen %v, then %v", first, times)
			}
		}
	})
}

// TestFunnel: drivers are counted once in each round, whatever they have of devices and notifications.
func TestFunnel(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 4)
		d, other := db.Add(t, nil), db.Add(t, nil)
		db.MustAccept(t, d.ID, drivers[0].ID)
		db.MustUpdate(t, d.ID, Withdraw)
		told := func(id dispatch.ID, round, state int, driver dispatch.DriverID, kind dispatch.EventType) {
			db.WriteNotification(t, id, func(r *pushes.NotificationRow) { r.Round, r.State, r.DriverID, r.Type = round, state, driver, kind })
		}
		for i, v := range drivers {
			told(d.ID, 1, i%4, v.ID, dispatch.EventOpened)
			told(d.ID, 1, pushes.StateDropped, v.ID, dispatch.EventOpened)
			told(d.ID, 1, pushes.StateDone, v.ID, dispatch.EventTaken)
			told(other.ID, 1, pushes.StateDone, v.ID, dispatch.EventOpened)
			told(other.ID, 1, pushes.StateDone, v.ID, dispatch.EventUpdated)
		}
		told(d.ID, 2, pushes.StateDone, drivers[1].ID, dispatch.EventReopened)
		told(d.ID, 2, pushes.StateDone, "", dispatch.EventReopened)
		told(d.ID, 3, pushes.StateDone, drivers[1].ID, dispatch.EventReopened) // a round that begins at this moment
		for i, v := range drivers[:2] {
			Must(t, errors.Join(db.MarkSeen(t.Context(), d.ID, 1, v.ID), db.MarkSeen(t.Context(), d.ID, 1+i, v.ID)))
		}
		// Three drivers, one of them twice and one without a round, which is the second by now; an app may make one up, and
		// a ledger may be written twice.
		taps := []dispatch.Attempt{
			{Driver: drivers[0].ID, Round: 1}, {Driver: drivers[1].ID, Round: 1}, {Driver: drivers[1].ID, Round: 1},
			{Driver: drivers[2].ID, Round: 0}, {Driver: drivers[2].ID, Round: 99},
		}
		for i := range taps {
			taps[i].ID, taps[i].Dispatch, taps[i].At = dispatch.NewAttemptID(d.CreatedAt), d.ID, d.CreatedAt
		}
		for range 2 {
			Must(t, db.AddAttempts(t.Context(), append(taps, dispatch.Attempt{ID: "att_nothing", Dispatch: "dsp_nothing"})))
		}
		for id, want := range map[dispatch.ID][]outbox.Funnel{
			d.ID:     {{Notified: 4, PushAccepted: 1, Seen: 2, Tapped: 2, Won: 1}, {Notified: 1, PushAccepted: 1, Seen: 1, Tapped: 1}},
			other.ID: {{Notified: 4, PushAccepted: 4}},
		} {
			if got, forgotten, err := db.Funnel(t.Context(), id); !slices.Equal(got, want) || forgotten != 0 || err != nil {
				t.Errorf("got %+v, %d, %v; want %+v", got, forgotten, err, want)
			}
		}
		MustBeError(t, "the funnel of an unknown dispatch", ErrorOfPage(db.Funnel(t.Context(), dispatch.NewID(time.Now()))), dispatch.ErrNotFound)
	})
}

// TestFunnelForgets: the funnel forgets the notified drivers of a round that ended longer ago than notifications are kept, and
// of no other round.
func TestFunnelForgets(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Fleet(t, 1)[0]
		d := db.Add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.OpensAt.Add(100 * 24 * time.Hour) })
		expect := func(what string, want int) {
			t.Helper()
			rounds, forgotten, err := db.Funnel(t.Context(), d.ID)
			if err != nil || forgotten != want || want > 0 && rounds[want-1].Notified != 0 || want < len(rounds) && rounds[want].Notified != 1 {
				t.Errorf("%s: %+v, %d forgotten, %v; want %d", what, rounds, forgotten, err, want)
			}
		}
		long := pushes.KeepDone + time.Hour
		ago := func(by time.Duration, where string, args ...any) {
			db.Exec(t, "UPDATE events SET at = at - ? WHERE "+where, append([]any{by.Microseconds()}, args...)...)
		}
		tell := func(round int) {
			db.WriteNotification(t, d.ID, func(r *pushes.NotificationRow) { r.Round, r.DriverID = round, v.ID })
		}
		tell(1)
		ago(long, "1 = 1")
		expect("it began long ago and stands", 0)
		db.MustAccept(t, d.ID, v.ID)
		expect("it has just been taken", 0)
		ago(long, "type = ?", dispatch.EventAccepted)
		expect("it was taken long ago", 1)

		db.MustUpdate(t, d.ID, Withdraw)
		tell(2)
		expect("and is open again", 1)
		db.Exec(t, "DELETE FROM events WHERE type = ?", dispatch.EventAccepted)
		expect("the first round ended when the second began", 0)
		ago(long, "round = 2")
		expect("the second began long ago, and stands", 1)
		db.Exec(t, "UPDATE dispatches SET expires_at = ?", database.Micros(time.Now().Add(-long)))
		expect("and is over, which nobody has written down", 2)
	})
}

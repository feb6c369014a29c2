package repository

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

func someDevice(driver dispatch.DriverID, installation, token string) dispatch.Device {
	return dispatch.Device{
		Driver: driver, Installation: installation, Platform: dispatch.Android, PushToken: token, AppVersion: "1.2", Locale: "ko-KR",
	}
}

func (db *database) mustPut(t testing.TB, v dispatch.Device) dispatch.Device {
	t.Helper()
	put, err := db.PutDevice(t.Context(), v)
	must(t, err)
	return put
}

// devices returns the stored devices by token.
func (db *database) devices(t testing.TB) map[string]dispatch.Device {
	t.Helper()
	var rows []deviceRow
	must(t, db.serve.WithContext(t.Context()).Find(&rows).Error)
	devices := map[string]dispatch.Device{}
	for i := range rows {
		devices[rows[i].PushToken] = rows[i].device()
	}
	if len(devices) != len(rows) {
		t.Errorf("%d devices with %d tokens", len(rows), len(devices))
	}
	return devices
}

// TestPutDevice: an installation keeps its device id, and a token belongs to the newest device only.
func TestPutDevice(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		a, b := drivers[0].ID, drivers[1].ID
		mustKeep := func(what string, only dispatch.Device) {
			t.Helper()
			if got := db.devices(t); len(got) != 1 || !reflect.DeepEqual(got[only.PushToken], only) {
				t.Errorf("%s: got %+v, want %+v", what, got, only)
			}
		}
		put := func(what string, v dispatch.Device) dispatch.Device {
			t.Helper()
			got := db.mustPut(t, v)
			if v.ID, v.UpdatedAt = got.ID, got.UpdatedAt; !reflect.DeepEqual(got, v) || got.ID == "" || !near(got.UpdatedAt, time.Now()) {
				t.Errorf("%s: got %+v, want %+v", what, got, v)
			}
			mustKeep(what, got)
			return got
		}
		full := someDevice(a, "phone !~", "token !~")
		full.AppVersion, full.Locale = "1.2 (한국어)", ""
		made := put("made", full)
		changed := put("changed", dispatch.Device{
			Driver: a, Installation: full.Installation, Platform: dispatch.IOS, PushToken: "t1", AppVersion: "2", Locale: "en",
		})
		if changed.ID != made.ID || changed.UpdatedAt.Before(made.UpdatedAt) {
			t.Errorf("the same installation: %+v, was %+v", changed, made)
		}
		put("another installation takes the token", someDevice(a, "tablet", "t1"))
		db.mustPut(t, someDevice(b, "tablet", "t2"))
		taken := put("another driver takes the token", someDevice(b, "tablet", "t1"))

		_, err := db.PutDevice(t.Context(), someDevice(dispatch.NewDriverID(time.Now()), "tablet", "t1"))
		mustBeError(t, "a device of an unknown driver", err, dispatch.ErrDriverNotFound)
		mustKeep("an unknown driver's registration takes no token", taken)
	})
}

// TestTenDevices: the eleventh takes the place of the one that was registered the longest ago, whatever was made first.
func TestTenDevices(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		db.mustPut(t, someDevice(drivers[1].ID, "another's", "another's"))
		for i := range maxDevices {
			db.mustPut(t, someDevice(drivers[0].ID, fmt.Sprint(i), fmt.Sprint("t", i)))
		}
		db.mustPut(t, someDevice(drivers[0].ID, "0", "t0"))
		db.mustPut(t, someDevice(drivers[0].ID, "eleventh", "eleventh"))
		db.mustPut(t, someDevice(drivers[0].ID, "eleventh", "eleventh"))
		left := db.devices(t)
		if _, ok := left["t1"]; ok || len(left) != maxDevices+1 {
			t.Errorf("%d devices: %v", len(left), left)
		}
	})
}

// TestTokensAtOnce: concurrent registrations with the same token, the same installation or each other's tokens all succeed,
// and in the end each token and each installation has one device.
func TestTokensAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const n = 24
		drivers := db.drivers(t, n)
		stores := []*Store{db.Store, open(t, db.url)}
		put := func(i int, v dispatch.Device) {
			if _, err := stores[i%len(stores)].PutDevice(t.Context(), v); err != nil {
				t.Errorf("%+v: %v", v, err)
			}
		}
		for range testkit.Scale(1, 3) {
			testkit.Together(n, func(i int) { put(i, someDevice(drivers[i].ID, "i", "same")) })
			if left := db.devices(t); len(left) != 1 || left["same"].Driver == "" {
				t.Errorf("the same token: %v", left)
			}
		}
		for i, v := range drivers {
			put(i, someDevice(v.ID, "i", fmt.Sprint(i)))
		}
		for round := range testkit.Scale(2, 5) {
			testkit.Together(n, func(i int) { put(i, someDevice(drivers[i].ID, "i", fmt.Sprint((i+round+1)%n))) })
			if left := db.devices(t); len(left) != n {
				t.Errorf("each has the token of the next: %d left", len(left))
			}
		}
		db.exec(t, "DELETE FROM devices")
		testkit.Together(n, func(i int) { put(i, someDevice(drivers[0].ID, "i", fmt.Sprint("t", i))) })
		if left := db.devices(t); len(left) != 1 {
			t.Errorf("one installation: %v", left)
		}
		testkit.Together(n, func(i int) { put(i, someDevice(drivers[0].ID, fmt.Sprint(i), fmt.Sprint("t", i))) })
		if left := db.devices(t); len(left) != maxDevices {
			t.Errorf("%d of one driver's", len(left))
		}
		testkit.Together(n, func(i int) { put(i, someDevice(drivers[0].ID, "twice", "twice")) })
		db.mustCount(t, 1, "devices WHERE push_token = 'twice'")
	})
}

func TestDeleteDevice(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		for i, v := range drivers {
			db.mustPut(t, someDevice(v.ID, "i", fmt.Sprint(i)))
			db.mustPut(t, someDevice(v.ID, "j", fmt.Sprint(i, "j")))
		}
		for range 2 {
			must(t, db.DeleteDevice(t.Context(), drivers[0].ID, "i"))
		}
		if left := db.devices(t); len(left) != 3 || left["0"].ID != "" {
			t.Errorf("left: %v", left)
		}
		mustBeError(t, "an unknown driver's", db.DeleteDevice(t.Context(), dispatch.NewDriverID(time.Now()), "i"), dispatch.ErrDriverNotFound)
	})
}

// When retention deletes a device with a dead token, it also deletes the device from all topics: a dead token can't be unsubscribed.
func TestDeadTokensLeaveTheirTopics(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('dispatch-dsp_x', 0, 1, 0, '')")
		v := db.drivers(t, 1)[0]
		for _, token := range []string{"dead", "alive"} {
			d := db.mustPut(t, someDevice(v.ID, token, token))
			db.exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES ('dispatch-dsp_x', ?, ?, 1)", d.ID, d.PushToken)
		}
		db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE push_token = 'dead'")
		db.mustPrune(t, 1)
		db.mustCount(t, 0, "topic_members WHERE push_token = 'dead'")
		db.mustCount(t, 1, "topic_members WHERE push_token = 'alive'")
	})
}

// TestJudgements: trust, suspicion and quarantine belong to the token, and end when the device gets a new token.
func TestJudgements(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		all := db.equipped(t, devicesPerStatement+1)
		mustBe := func(what string, good, suspected, quarantined int) {
			t.Helper()
			var got [3]int
			err := db.raw.QueryRow("SELECT COUNT(good_at), COUNT(suspected_at), COUNT(quarantined_at) FROM devices").Scan(&got[0], &got[1], &got[2])
			if want := [3]int{good, suspected, quarantined}; err != nil || got != want {
				t.Errorf("%s: good, suspected, in quarantine %v, %v; want %v", what, got, err, want)
			}
		}
		mustDo := func(do func(context.Context, []dispatch.Device) error, devices ...dispatch.Device) {
			t.Helper()
			must(t, do(t.Context(), devices))
		}
		db.mustPut(t, someDevice(all[0].Driver, all[0].Installation, "new"))
		mustDo(db.QuarantineDevices, all...)
		mustBe("without suspicion", 0, 0, 0)
		mustDo(db.MarkDevicesSuspect, all...)
		mustBe("suspected", 0, len(all)-1, 0)
		first := db.devices(t)[all[1].PushToken].SuspectedAt
		mustDo(db.MarkDevicesSuspect, all...)
		if again := db.devices(t)[all[1].PushToken].SuspectedAt; first == nil || !near(*first, time.Now()) || again == nil || !again.Equal(*first) {
			t.Errorf("since %v, then %v", first, again)
		}
		mustDo(db.MarkPushAccepted, all[2], all[3])
		mustDo(db.QuarantineDevices, all...)
		mustBe("in quarantine", 2, 0, len(all)-3)
		mustDo(db.MarkDevicesSuspect, all...)
		mustBe("suspected again", 2, 2, len(all)-3)
		mustDo(db.MarkPushAccepted, all[4])
		mustBe("taken after all", 3, 2, len(all)-4)

		back := db.mustPut(t, someDevice(all[1].Driver, all[1].Installation, all[1].PushToken))
		if back.QuarantinedAt != nil || back.SuspectedAt == nil || db.devices(t)[all[1].PushToken].SuspectedAt == nil {
			t.Errorf("the same token came again: %+v", back)
		}
		if kept := db.mustPut(t, someDevice(all[2].Driver, all[2].Installation, all[2].PushToken)); kept.PushAcceptedAt == nil || kept.SuspectedAt == nil {
			t.Errorf("a token that was good came again: %+v", kept)
		}
		for _, v := range []dispatch.Device{all[2], all[5]} {
			if fresh := db.mustPut(t, someDevice(v.Driver, v.Installation, "another of "+v.PushToken)); fresh.PushAcceptedAt != nil || fresh.SuspectedAt != nil || fresh.QuarantinedAt != nil {
				t.Errorf("of a new token is known %+v", fresh)
			}
		}
		mustBe("some came again", 2, 2, len(all)-6)
		for _, do := range []func(context.Context, []dispatch.Device) error{db.MarkPushAccepted, db.MarkDevicesSuspect, db.QuarantineDevices} {
			mustDo(do)
		}
	})
}

// TestSeen: the first time of each round and driver is stored, and later reports do not change it.
func TestSeen(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := db.add(t, nil).ID
		drivers := db.drivers(t, 3)
		db.exec(t, "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, 1, ?, NULL)", id, drivers[2].ID)
		seen := func() (times []int64) {
			t.Helper()
			err := db.serve.WithContext(t.Context()).Raw("SELECT COALESCE(seen_at, 0) FROM offers ORDER BY driver_id, round").Scan(&times).Error
			must(t, err)
			return times
		}
		var first []int64
		for range 2 {
			mustAll(t, 12, func(i int) error { return db.MarkSeen(t.Context(), id, 1+i%2, drivers[i%3].ID) })
			times := seen()
			if len(times) != 6 || slices.Contains(times, 0) || !near(fromMicros(times[0]), time.Now()) {
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
	each(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 4)
		d, other := db.add(t, nil), db.add(t, nil)
		db.mustAccept(t, d.ID, drivers[0].ID)
		db.mustUpdate(t, d.ID, withdraw)
		told := func(id dispatch.ID, round, state int, driver dispatch.DriverID, kind dispatch.EventType) {
			db.notification(t, id, func(r *notificationRow) { r.Round, r.State, r.DriverID, r.Type = round, state, driver, kind })
		}
		for i, v := range drivers {
			told(d.ID, 1, i%4, v.ID, dispatch.EventOpened)
			told(d.ID, 1, stateDropped, v.ID, dispatch.EventOpened)
			told(d.ID, 1, stateDone, v.ID, dispatch.EventTaken)
			told(other.ID, 1, stateDone, v.ID, dispatch.EventOpened)
			told(other.ID, 1, stateDone, v.ID, dispatch.EventUpdated)
		}
		told(d.ID, 2, stateDone, drivers[1].ID, dispatch.EventReopened)
		told(d.ID, 2, stateDone, "", dispatch.EventReopened)
		told(d.ID, 3, stateDone, drivers[1].ID, dispatch.EventReopened) // a round that begins at this moment
		for i, v := range drivers[:2] {
			must(t, errors.Join(db.MarkSeen(t.Context(), d.ID, 1, v.ID), db.MarkSeen(t.Context(), d.ID, 1+i, v.ID)))
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
			must(t, db.AddAttempts(t.Context(), append(taps, dispatch.Attempt{ID: "att_nothing", Dispatch: "dsp_nothing"})))
		}
		for id, want := range map[dispatch.ID][]outbox.Funnel{
			d.ID:     {{Notified: 4, PushAccepted: 1, Seen: 2, Tapped: 2, Won: 1}, {Notified: 1, PushAccepted: 1, Seen: 1, Tapped: 1}},
			other.ID: {{Notified: 4, PushAccepted: 4}},
		} {
			if got, forgotten, err := db.Funnel(t.Context(), id); !slices.Equal(got, want) || forgotten != 0 || err != nil {
				t.Errorf("got %+v, %d, %v; want %+v", got, forgotten, err, want)
			}
		}
		mustBeError(t, "the funnel of an unknown dispatch", errorOfPage(db.Funnel(t.Context(), dispatch.NewID(time.Now()))), dispatch.ErrNotFound)
	})
}

// TestFunnelForgets: the funnel forgets the notified drivers of a round that ended longer ago than notifications are kept, and
// of no other round.
func TestFunnelForgets(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0]
		d := db.add(t, func(d *dispatch.Dispatch) { d.ExpiresAt = d.OpensAt.Add(100 * 24 * time.Hour) })
		expect := func(what string, want int) {
			t.Helper()
			rounds, forgotten, err := db.Funnel(t.Context(), d.ID)
			if err != nil || forgotten != want || want > 0 && rounds[want-1].Notified != 0 || want < len(rounds) && rounds[want].Notified != 1 {
				t.Errorf("%s: %+v, %d forgotten, %v; want %d", what, rounds, forgotten, err, want)
			}
		}
		long := keepDone + time.Hour
		ago := func(by time.Duration, where string, args ...any) {
			db.exec(t, "UPDATE events SET at = at - ? WHERE "+where, append([]any{by.Microseconds()}, args...)...)
		}
		tell := func(round int) {
			db.notification(t, d.ID, func(r *notificationRow) { r.Round, r.DriverID = round, v.ID })
		}
		tell(1)
		ago(long, "1 = 1")
		expect("it began long ago and stands", 0)
		db.mustAccept(t, d.ID, v.ID)
		expect("it has just been taken", 0)
		ago(long, "type = ?", dispatch.EventAccepted)
		expect("it was taken long ago", 1)

		db.mustUpdate(t, d.ID, withdraw)
		tell(2)
		expect("and is open again", 1)
		db.exec(t, "DELETE FROM events WHERE type = ?", dispatch.EventAccepted)
		expect("the first round ended when the second began", 0)
		ago(long, "round = 2")
		expect("the second began long ago, and stands", 1)
		db.exec(t, "UPDATE dispatches SET expires_at = ?", micros(time.Now().Add(-long)))
		expect("and is over, which nobody has written down", 2)
	})
}

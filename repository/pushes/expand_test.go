package pushes_test

import (
	"reflect"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func TestTheOfferGoesToTheEligible(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		now := db.Now(t)
		var want []dispatch.Device
		add := func(eligible bool, edit func(*dispatch.Driver)) dispatch.Driver {
			v := db.AddDriver(t, func(v *dispatch.Driver) {
				v.WorkingHeightM = new(20.0)
				edit(v)
			})
			if p := db.Device(t, v.ID, nil); eligible {
				want = append(want, p)
			}
			return v
		}
		fit := add(true, func(*dispatch.Driver) {})
		want = append(want, db.Device(t, fit.ID, nil)) // a second one
		db.Device(t, fit.ID, func(p *dispatch.Device) { p.QuarantinedAt = &now })
		add(true, func(v *dispatch.Driver) { v.SuspendedUntil = new(now.Add(-time.Second)) })
		add(true, func(v *dispatch.Driver) { v.Regions = []string{"seoul"} })
		add(false, func(v *dispatch.Driver) { v.OnDuty = false })
		add(false, func(v *dispatch.Driver) { v.SuspendedUntil = new(now.Add(time.Hour)) })
		add(false, func(v *dispatch.Driver) { v.Regions = []string{"busan", "seoul-north"} })
		add(false, func(v *dispatch.Driver) { v.VehicleClass = "boom" })
		add(false, func(v *dispatch.Driver) { v.WorkingHeightM = new(19.9) })
		add(false, func(v *dispatch.Driver) { v.WorkingHeightM = nil })
		db.Fleet(t, 1) // no device
		d := db.Add(t, func(d *dispatch.Dispatch) { d.MinWorkingHeightM = new(20.0) })
		o := db.As("ins_a")
		for _, step := range []struct {
			event, as dispatch.EventType
			round     int
		}{
			{dispatch.EventCreated, dispatch.EventOpened, 1}, {dispatch.EventOpened, dispatch.EventOpened, 1},
			{dispatch.EventUpdated, dispatch.EventUpdated, 2}, {dispatch.EventReopened, dispatch.EventReopened, 3},
		} {
			if step.event != dispatch.EventCreated {
				d = db.Happens(t, d.ID, step.event, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Round = step.round })
			}
			told := o.MustExpand(t, db, step.event, 0)
			db.MustTell(t, told.Event.ID, step.as, false, want...)
			for _, n := range db.ToldOf(t, told.Event.ID) {
				if n.Round != step.round || n.DispatchID != d.ID || n.ExpiresAt != database.Micros(d.ExpiresAt) || n.At != database.Micros(told.Event.At) {
					t.Errorf("%s is %+v", step.as, n)
				}
			}
			if told.Unleased != len(want) || told.Dropped != 0 || len(told.Pushes) != 0 || told.Dispatch.Version != d.Version {
				t.Errorf("%s was expanded to %+v", step.event, told)
			}
		}
	})
}

// The name of a region may have characters that are special in JSON, SQL and LIKE.
func TestRegionsOfAnyName(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		names := []string{
			"\uc11c\uc6b8", `a"b`, `a\b`, `it's`, "R&D", "<b>", "a/b", "%", "_", "\U0001f69a", "a\nb", "true", "1", "Seoul", "\u00e9", "e\u0301", "\u2028",
		}
		devices := map[string]dispatch.Device{}
		for _, name := range names {
			v := db.AddDriver(t, func(v *dispatch.Driver) { v.Regions = []string{"elsewhere", name} })
			devices[name] = db.Device(t, v.ID, nil)
		}
		for _, name := range names {
			db.Add(t, func(d *dispatch.Dispatch) { d.Region = name })
			told := db.As("ins_a").MustExpand(t, db, dispatch.EventCreated, 0)
			if told.Unleased != 1 {
				t.Errorf("%q: %d devices get a push", name, told.Unleased)
			}
			db.MustTell(t, told.Event.ID, dispatch.EventOpened, false, devices[name])
		}
	})
}

// audience is the offer of a dispatch in every state that it can have when the dispatch is accepted.
type audience struct {
	dispatch.Dispatch
	winner                                     dispatch.DriverID
	phone, tablet                              dispatch.Device // the winner's devices, of which one got the offer
	sent, underWay, stale, unsent, second      dispatch.Device
	dropped, dead, quarantined, before, others dispatch.Device
	unsentRow                                  pushes.NotificationRow
}

func audienceOf(db *Bench, t testing.TB) *audience {
	t.Helper()
	d, other := db.Add(t, nil), db.Add(t, nil)
	v := db.Equipped(t, 11)
	a := &audience{
		Dispatch: d, winner: v[0].Driver, phone: v[0], tablet: db.Device(t, v[0].Driver, nil), sent: v[1], underWay: v[2],
		stale: v[3], unsent: v[4], second: db.Device(t, v[4].Driver, nil), dropped: v[5], dead: v[6], quarantined: v[7],
		before: v[8], others: v[9],
	}
	later := database.Micros(db.Now(t).Add(time.Hour))
	rows := db.WriteNotifications(t, d, 11, func(i int, n *pushes.NotificationRow) {
		ToDevices(v)(i, n)
		switch n.DeviceID {
		case a.phone.ID, a.sent.ID, a.quarantined.ID:
			n.State = pushes.StateDone
		case a.underWay.ID:
			n.Claim, n.DueAt = "ins_x", later
		case a.stale.ID:
			n.Claim = "ins_x" // the lease has ended: the push was sent or not
		case a.dropped.ID:
			n.State = pushes.StateDropped
		case a.dead.ID:
			n.State = pushes.StateDead
		case a.before.ID:
			n.State, n.Round = pushes.StateDone, 0
		case a.others.ID:
			n.State, n.DispatchID = pushes.StateDone, other.ID
		case v[10].ID:
			n.DeviceID, n.State = a.second.ID, pushes.StateDone
			n.DriverID = a.second.Driver
		}
	})
	a.unsentRow = rows[4]
	db.Exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id IN (?, ?)", a.quarantined.ID, db.Device(t, a.winner, nil).ID)
	return a
}

func TestTakenIsPushedToNotifiedDrivers(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a := audienceOf(db, t)
		o := db.As("ins_a")
		d := db.MustAccept(t, a.ID, a.winner)
		told := o.MustExpand(t, db, dispatch.EventAccepted, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventAccepted, false, a.phone, a.tablet)
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second)
		if got := db.Stored(t, a.unsentRow.ID); got.State != pushes.StateDropped || got.Result != "superseded" {
			t.Errorf("the unsent offer is %+v", got)
		}
		if told.Dropped != 1 || len(told.Pushes) != 4 || told.Unleased != 2 {
			t.Errorf("%d dropped, %d leased, %d left", told.Dropped, len(told.Pushes), told.Unleased)
		}
		rows := db.ToldOf(t, told.Event.ID)
		now := db.Now(t)
		for _, p := range []dispatch.Device{a.underWay, a.stale} {
			n := rows[p.ID]
			if wait := database.Time(n.DueAt).Sub(database.Time(n.CreatedAt)); n.Claim != "" || wait != time.Second {
				t.Errorf("the offer is being sent, and its end is due after %v, leased by %q", wait, n.Claim)
			}
		}
		leased := 0
		for _, n := range rows {
			if n.Claim == "ins_a" && Near(database.Time(n.DueAt), now.Add(Term)) {
				leased++
			} else if n.Claim != "" || database.Time(n.DueAt).After(now.Add(time.Second)) {
				t.Errorf("neither leased nor due: %+v", n)
			}
		}
		if leased != 4 { // all but the two that wait
			t.Errorf("%d are leased", leased)
		}
		mustBePushes(t, db, o, told, d)
	})
}

// An offer that was dropped after an attempt with an unknown result may be on the phone.
func TestTakenIsPushedAfterAnUnknownResult(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a := audienceOf(db, t)
		db.Exec(t, "UPDATE notifications SET attempts = 1 WHERE device_id = ?", a.dropped.ID)
		o := db.As("ins_a")
		db.MustAccept(t, a.ID, a.winner)
		told := o.MustExpand(t, db, dispatch.EventAccepted, 10)
		db.MustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second, a.dropped)
	})
}

// mustBePushes fails the test unless the pushes that Expand returned equal those of LeaseNotifications.
func mustBePushes(t *testing.T, db *Bench, o *Outbox, told Told, d dispatch.Dispatch) {
	t.Helper()
	for _, p := range told.Pushes {
		n := db.Stored(t, p.ID)
		want := outbox.Push{
			ID: n.ID, Event: n.EventID, Type: n.Type, Silent: n.Silent, Round: n.Round, Dispatch: d, ReadAt: p.ReadAt, Driver: n.DriverID,
			Device: p.Device, Attempts: n.Attempts, EventAt: database.Time(n.At), UsefulUntil: database.Time(n.ExpiresAt), LeasedUntil: p.LeasedUntil,
		}
		if !reflect.DeepEqual(p, want) || p.Device.ID != n.DeviceID || p.Device.PushToken != "token of "+string(n.DeviceID) {
			t.Errorf("got  %+v\nwant %+v", p, want)
		}
		if p.ReadAt.After(time.Now()) || !Near(p.ReadAt, time.Now()) {
			t.Errorf("the dispatch was read at %v", p.ReadAt)
		}
		if p.LeasedUntil.After(database.Time(n.DueAt).Add(time.Second)) || !Near(p.LeasedUntil, time.Now().Add(Term)) {
			t.Errorf("leased until %v, the database says %v", p.LeasedUntil, database.Time(n.DueAt))
		}
		mustHoldOne(db, t, o, p)
	}
}

// mustHoldOne fails the test unless o may record the push's result.
func mustHoldOne(db *Bench, t *testing.T, o *Outbox, p outbox.Push) {
	t.Helper()
	err := o.RecordResults(t.Context(), []outbox.SendResult{{ID: p.ID, Status: outbox.Sent}}, nil)
	if n := db.Stored(t, p.ID); err != nil || n.State != pushes.StateDone {
		t.Errorf("recorded: %v, %+v", err, n)
	}
}

func TestAudienceOfEachEvent(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		for _, tt := range []struct {
			event    dispatch.EventType
			happen   func(*audience) // after it was accepted, if it was
			accepted bool
			claimant bool // gets a push
			told     bool // drivers with the offer get a push
		}{
			{event: dispatch.EventExpired, told: true, happen: func(a *audience) {
				db.Happens(t, a.ID, dispatch.EventExpired, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Status = dispatch.Expired })
			}},
			{event: dispatch.EventCanceled, told: true, happen: func(a *audience) { db.MustUpdate(t, a.ID, Cancel) }},
			{event: dispatch.EventCanceled, told: true, accepted: true, claimant: true, happen: func(a *audience) { db.MustUpdate(t, a.ID, Cancel) }},
			{event: dispatch.EventUnassigned, accepted: true, claimant: true, happen: func(a *audience) {
				db.Happens(t, a.ID, dispatch.EventUnassigned, nil)
			}},
			{event: dispatch.EventWithdrawn, accepted: true, happen: func(a *audience) { db.MustUpdate(t, a.ID, Withdraw) }},
			{event: dispatch.EventStarted, accepted: true, happen: func(a *audience) { db.MustUpdate(t, a.ID, Start) }},
		} {
			a := audienceOf(db, t)
			if tt.accepted {
				db.MustAccept(t, a.ID, a.winner)
			}
			tt.happen(a)
			told := o.MustExpand(t, db, tt.event, 10)
			var claimant, others []dispatch.Device
			if tt.claimant {
				claimant = []dispatch.Device{a.phone, a.tablet}
			}
			if tt.told {
				others = []dispatch.Device{a.sent, a.underWay, a.stale, a.second}
				if !tt.accepted {
					others = append(others, a.phone)
				}
			}
			db.MustTell(t, told.Event.ID, tt.event, false, claimant...)
			db.MustTell(t, told.Event.ID, tt.event, true, others...)
			if n := len(db.ToldOf(t, told.Event.ID)); n != len(claimant)+len(others) || len(told.Pushes)+told.Unleased != n || told.Dropped != 1 {
				t.Errorf("%s: %d rows, %d pushes, %d left, %d dropped", tt.event, n, len(told.Pushes), told.Unleased, told.Dropped)
			}
			if got := db.Stored(t, a.unsentRow.ID); got.State != pushes.StateDropped || got.Result != "superseded" {
				t.Errorf("%s: the unsent offer is %+v", tt.event, got)
			}
		}
	})
}

// A driver that declined, or saw the offer, gets the same notifications as the others.
func TestAnOfferThatStandsIsNotDropped(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		a := audienceOf(db, t)
		db.Happens(t, a.ID, dispatch.EventDeclined, nil)
		told := db.As("ins_a").MustExpand(t, db, dispatch.EventDeclined, 10)
		if len(told.Pushes)+told.Unleased+told.Dropped != 0 || db.Stored(t, a.unsentRow.ID).State != pushes.StatePending {
			t.Errorf("%+v", told)
		}
	})
}

// TestNobodyIsAlertedForNothing: a later round is not pushed to who gave the dispatch back, to who has just been relieved of it, to who
// declined it, unless the terms are new, or to who has other work in these hours. A push that waits ends when its driver declines or goes
// off duty.
func TestNobodyIsAlertedForNothing(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		o := db.As("ins_a")
		v := db.Equipped(t, 6)
		quitter, relieved, decliner, busy, resting, willing := v[0], v[1], v[2], v[3], v[4], v[5]
		d := db.Add(t, nil)
		Must(t, db.Decline(t.Context(), d.ID, 1, decliner.Driver, "FAR"))
		db.TakeAndGiveBack(t, d.ID, quitter.Driver)
		db.Take(t, d.ID, relieved.Driver)
		db.Take(t, db.Add(t, nil).ID, busy.Driver)
		db.Take(t, db.Add(t, Later(3)).ID, willing.Driver)
		db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Unassign(d.Version, "key_1", "", now)
		})
		reopened := o.MustExpand(t, db, dispatch.EventReopened, 0).Event.ID
		db.MustTell(t, reopened, dispatch.EventReopened, false, resting, willing)

		Must(t, db.Decline(t.Context(), d.ID, 3, willing.Driver, "FAR"))
		db.Exec(t, "UPDATE drivers SET on_duty = 0 WHERE id = ?", resting.Driver)
		_, dropped, err := o.LeaseNotifications(t.Context(), 10)
		Must(t, err)
		testkit.Equal(t, "what was dropped while it waited", map[string]int{"unwanted": 2}, dropped)

		db.Exec(t, "UPDATE drivers SET on_duty = 1 WHERE id = ?", resting.Driver)
		db.Happens(t, d.ID, dispatch.EventOpened, func(_ *dispatch.Dispatch, e *dispatch.Event) { e.ReasonCode = dispatch.ReasonClaimFailed })
		db.MustTell(t, o.MustExpand(t, db, dispatch.EventOpened, 0).Event.ID, dispatch.EventOpened, false, resting)
		db.Happens(t, d.ID, dispatch.EventUpdated, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Round++ })
		db.MustTell(t, o.MustExpand(t, db, dispatch.EventUpdated, 0).Event.ID, dispatch.EventUpdated, false, relieved, decliner, resting, willing)
	})
}

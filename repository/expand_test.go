package repository

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// lend leases the newest event of that type to the owner.
func (db *database) lend(t testing.TB, owner string, kind dispatch.EventType) (event dispatch.EventID) {
	t.Helper()
	err := db.raw.QueryRowContext(t.Context(), "SELECT id FROM events WHERE type = ? ORDER BY id DESC LIMIT 1", kind).Scan(&event)
	if err != nil {
		t.Fatalf("no event %s: %v", kind, err)
	}
	db.exec(t, "UPDATE events SET claim = ?, next_at = ? WHERE id = ? AND next_at IS NOT NULL",
		owner, micros(db.now(t).Add(term)), event)
	return event
}

// mustExpand leases the newest event of that type to o, and expands it.
func (o *Outbox) mustExpand(t testing.TB, db *database, kind dispatch.EventType, take int) outbox.Expansion {
	t.Helper()
	told, err := o.expandFully(t.Context(), db.lend(t, o.Owner, kind), take)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return told
}

// expandFully is Expand, and completes the event if that is left to do, as a relay does.
func (o *Outbox) expandFully(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	x, err := o.Expand(ctx, event, take)
	if err == nil && x.Open {
		err = o.CompleteEvents(ctx, []dispatch.EventID{event})
	}
	return x, err
}

// happens writes an event of that type about the dispatch, after edit has changed both.
func (db *database) happens(t testing.TB, id dispatch.ID, event dispatch.EventType, edit func(*dispatch.Dispatch, *dispatch.Event)) dispatch.Dispatch {
	t.Helper()
	return db.mustUpdate(t, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		e := dispatch.Event{ID: dispatch.NewEventID(now), Type: event, Dispatch: d.ID, Actor: dispatch.System, At: now}
		if d.Claim != nil {
			e.Driver = d.Claim.Driver
		}
		if edit != nil {
			edit(d, &e)
		}
		d.Version++
		e.Round = d.Round
		return []dispatch.Event{e}, nil
	})
}

// toldOf returns the notifications of the event, by device.
func (db *database) toldOf(t testing.TB, event dispatch.EventID) map[dispatch.DeviceID]notificationRow {
	t.Helper()
	var rows []notificationRow
	must(t, db.serve.WithContext(t.Context()).Where("event_id = ?", event).Find(&rows).Error)
	told := map[dispatch.DeviceID]notificationRow{}
	for _, r := range rows {
		told[r.DeviceID] = r
	}
	if len(told) != len(rows) {
		t.Errorf("%d rows for %d devices", len(rows), len(told))
	}
	return told
}

// mustTell fails the test unless exactly these devices have a notification of that type.
func (db *database) mustTell(t testing.TB, event dispatch.EventID, as dispatch.EventType, silent bool, devices ...dispatch.Device) {
	t.Helper()
	told := db.toldOf(t, event)
	got, want := []string{}, []string{}
	for id, n := range told {
		if n.Type == as && n.Silent == silent {
			got = append(got, string(id))
		}
	}
	for _, v := range devices {
		want = append(want, string(v.ID))
		if n := told[v.ID]; n.DriverID != v.Driver {
			t.Errorf("%s is %s's, not %s's", v.ID, v.Driver, n.DriverID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s is pushed to\n%v, want\n%v", as, got, want)
	}
}

func TestTheOfferGoesToTheEligible(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		now := db.now(t)
		var want []dispatch.Device
		add := func(eligible bool, edit func(*dispatch.Driver)) dispatch.Driver {
			v := db.addDriver(t, func(v *dispatch.Driver) {
				v.WorkingHeightM = new(20.0)
				edit(v)
			})
			if p := db.device(t, v.ID, nil); eligible {
				want = append(want, p)
			}
			return v
		}
		fit := add(true, func(*dispatch.Driver) {})
		want = append(want, db.device(t, fit.ID, nil)) // a second one
		db.device(t, fit.ID, func(p *dispatch.Device) { p.QuarantinedAt = &now })
		add(true, func(v *dispatch.Driver) { v.SuspendedUntil = new(now.Add(-time.Second)) })
		add(true, func(v *dispatch.Driver) { v.Regions = []string{"seoul"} })
		add(false, func(v *dispatch.Driver) { v.OnDuty = false })
		add(false, func(v *dispatch.Driver) { v.SuspendedUntil = new(now.Add(time.Hour)) })
		add(false, func(v *dispatch.Driver) { v.Regions = []string{"busan", "seoul-north"} })
		add(false, func(v *dispatch.Driver) { v.VehicleClass = "boom" })
		add(false, func(v *dispatch.Driver) { v.WorkingHeightM = new(19.9) })
		add(false, func(v *dispatch.Driver) { v.WorkingHeightM = nil })
		db.drivers(t, 1) // no device
		d := db.add(t, func(d *dispatch.Dispatch) { d.MinWorkingHeightM = new(20.0) })
		o := db.as("ins_a")
		for _, step := range []struct {
			event, as dispatch.EventType
			round     int
		}{
			{dispatch.EventCreated, dispatch.EventOpened, 1}, {dispatch.EventOpened, dispatch.EventOpened, 1},
			{dispatch.EventUpdated, dispatch.EventUpdated, 2}, {dispatch.EventReopened, dispatch.EventReopened, 3},
		} {
			if step.event != dispatch.EventCreated {
				d = db.happens(t, d.ID, step.event, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Round = step.round })
			}
			told := o.mustExpand(t, db, step.event, 0)
			db.mustTell(t, told.Event.ID, step.as, false, want...)
			for _, n := range db.toldOf(t, told.Event.ID) {
				if n.Round != step.round || n.DispatchID != d.ID || n.ExpiresAt != micros(d.ExpiresAt) || n.At != micros(told.Event.At) {
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
	each(t, func(t *testing.T, db *database) {
		names := []string{
			"\uc11c\uc6b8", `a"b`, `a\b`, `it's`, "R&D", "<b>", "a/b", "%", "_", "\U0001f69a", "a\nb", "true", "1", "Seoul", "\u00e9", "e\u0301", "\u2028",
		}
		devices := map[string]dispatch.Device{}
		for _, name := range names {
			v := db.addDriver(t, func(v *dispatch.Driver) { v.Regions = []string{"elsewhere", name} })
			devices[name] = db.device(t, v.ID, nil)
		}
		for _, name := range names {
			db.add(t, func(d *dispatch.Dispatch) { d.Region = name })
			told := db.as("ins_a").mustExpand(t, db, dispatch.EventCreated, 0)
			if told.Unleased != 1 {
				t.Errorf("%q: %d devices get a push", name, told.Unleased)
			}
			db.mustTell(t, told.Event.ID, dispatch.EventOpened, false, devices[name])
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
	unsentRow                                  notificationRow
}

func (db *database) audience(t testing.TB) *audience {
	t.Helper()
	d, other := db.add(t, nil), db.add(t, nil)
	v := db.equipped(t, 11)
	a := &audience{
		Dispatch: d, winner: v[0].Driver, phone: v[0], tablet: db.device(t, v[0].Driver, nil), sent: v[1], underWay: v[2],
		stale: v[3], unsent: v[4], second: db.device(t, v[4].Driver, nil), dropped: v[5], dead: v[6], quarantined: v[7],
		before: v[8], others: v[9],
	}
	later := micros(db.now(t).Add(time.Hour))
	rows := db.notifications(t, d, 11, func(i int, n *notificationRow) {
		toDevices(v)(i, n)
		switch n.DeviceID {
		case a.phone.ID, a.sent.ID, a.quarantined.ID:
			n.State = stateDone
		case a.underWay.ID:
			n.Claim, n.DueAt = "ins_x", later
		case a.stale.ID:
			n.Claim = "ins_x" // the lease has ended: the push was sent or not
		case a.dropped.ID:
			n.State = stateDropped
		case a.dead.ID:
			n.State = stateDead
		case a.before.ID:
			n.State, n.Round = stateDone, 0
		case a.others.ID:
			n.State, n.DispatchID = stateDone, other.ID
		case v[10].ID:
			n.DeviceID, n.State = a.second.ID, stateDone
			n.DriverID = a.second.Driver
		}
	})
	a.unsentRow = rows[4]
	db.exec(t, "UPDATE devices SET quarantined_at = 1 WHERE id IN (?, ?)", a.quarantined.ID, db.device(t, a.winner, nil).ID)
	return a
}

func TestTakenIsPushedToNotifiedDrivers(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a := db.audience(t)
		o := db.as("ins_a")
		d := db.mustAccept(t, a.ID, a.winner)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventAccepted, false, a.phone, a.tablet)
		db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second)
		if got := db.stored(t, a.unsentRow.ID); got.State != stateDropped || got.Result != "superseded" {
			t.Errorf("the unsent offer is %+v", got)
		}
		if told.Dropped != 1 || len(told.Pushes) != 4 || told.Unleased != 2 {
			t.Errorf("%d dropped, %d leased, %d left", told.Dropped, len(told.Pushes), told.Unleased)
		}
		rows := db.toldOf(t, told.Event.ID)
		now := db.now(t)
		for _, p := range []dispatch.Device{a.underWay, a.stale} {
			n := rows[p.ID]
			if wait := fromMicros(n.DueAt).Sub(fromMicros(n.CreatedAt)); n.Claim != "" || wait != time.Second {
				t.Errorf("the offer is being sent, and its end is due after %v, leased by %q", wait, n.Claim)
			}
		}
		leased := 0
		for _, n := range rows {
			if n.Claim == "ins_a" && near(fromMicros(n.DueAt), now.Add(term)) {
				leased++
			} else if n.Claim != "" || fromMicros(n.DueAt).After(now.Add(time.Second)) {
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
	each(t, func(t *testing.T, db *database) {
		a := db.audience(t)
		db.exec(t, "UPDATE notifications SET attempts = 1 WHERE device_id = ?", a.dropped.ID)
		o := db.as("ins_a")
		db.mustAccept(t, a.ID, a.winner)
		told := o.mustExpand(t, db, dispatch.EventAccepted, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventTaken, true, a.sent, a.underWay, a.stale, a.second, a.dropped)
	})
}

// mustBePushes fails the test unless the pushes that Expand returned equal those of LeaseNotifications.
func mustBePushes(t *testing.T, db *database, o *Outbox, told outbox.Expansion, d dispatch.Dispatch) {
	t.Helper()
	for _, p := range told.Pushes {
		n := db.stored(t, p.ID)
		want := outbox.Push{
			ID: n.ID, Event: n.EventID, Type: n.Type, Silent: n.Silent, Round: n.Round, Dispatch: d, ReadAt: p.ReadAt, Driver: n.DriverID,
			Device: p.Device, Attempts: n.Attempts, EventAt: fromMicros(n.At), UsefulUntil: fromMicros(n.ExpiresAt), LeasedUntil: p.LeasedUntil,
		}
		if !reflect.DeepEqual(p, want) || p.Device.ID != n.DeviceID || p.Device.PushToken != "token of "+string(n.DeviceID) {
			t.Errorf("got  %+v\nwant %+v", p, want)
		}
		if p.ReadAt.After(time.Now()) || !near(p.ReadAt, time.Now()) {
			t.Errorf("the dispatch was read at %v", p.ReadAt)
		}
		if p.LeasedUntil.After(fromMicros(n.DueAt).Add(time.Second)) || !near(p.LeasedUntil, time.Now().Add(term)) {
			t.Errorf("leased until %v, the database says %v", p.LeasedUntil, fromMicros(n.DueAt))
		}
		db.mustHoldOne(t, o, p)
	}
}

// mustHoldOne fails the test unless o may record the push's result.
func (db *database) mustHoldOne(t *testing.T, o *Outbox, p outbox.Push) {
	t.Helper()
	err := o.RecordResults(t.Context(), []outbox.SendResult{{ID: p.ID, Status: outbox.Sent}})
	if n := db.stored(t, p.ID); err != nil || n.State != stateDone {
		t.Errorf("recorded: %v, %+v", err, n)
	}
}

func TestAudienceOfEachEvent(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		for _, tt := range []struct {
			event    dispatch.EventType
			happen   func(*audience) // after it was accepted, if it was
			accepted bool
			claimant bool // gets a push
			told     bool // drivers with the offer get a push
		}{
			{event: dispatch.EventExpired, told: true, happen: func(a *audience) {
				db.happens(t, a.ID, dispatch.EventExpired, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Status = dispatch.Expired })
			}},
			{event: dispatch.EventCanceled, told: true, happen: func(a *audience) { db.mustUpdate(t, a.ID, cancel) }},
			{event: dispatch.EventCanceled, told: true, accepted: true, claimant: true, happen: func(a *audience) { db.mustUpdate(t, a.ID, cancel) }},
			{event: dispatch.EventUnassigned, accepted: true, claimant: true, happen: func(a *audience) {
				db.happens(t, a.ID, dispatch.EventUnassigned, nil)
			}},
			{event: dispatch.EventWithdrawn, accepted: true, happen: func(a *audience) { db.mustUpdate(t, a.ID, withdraw) }},
			{event: dispatch.EventStarted, accepted: true, happen: func(a *audience) { db.mustUpdate(t, a.ID, start) }},
		} {
			a := db.audience(t)
			if tt.accepted {
				db.mustAccept(t, a.ID, a.winner)
			}
			tt.happen(a)
			told := o.mustExpand(t, db, tt.event, 10)
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
			db.mustTell(t, told.Event.ID, tt.event, false, claimant...)
			db.mustTell(t, told.Event.ID, tt.event, true, others...)
			if n := len(db.toldOf(t, told.Event.ID)); n != len(claimant)+len(others) || len(told.Pushes)+told.Unleased != n || told.Dropped != 1 {
				t.Errorf("%s: %d rows, %d pushes, %d left, %d dropped", tt.event, n, len(told.Pushes), told.Unleased, told.Dropped)
			}
			if got := db.stored(t, a.unsentRow.ID); got.State != stateDropped || got.Result != "superseded" {
				t.Errorf("%s: the unsent offer is %+v", tt.event, got)
			}
		}
	})
}

// A driver that declined, or saw the offer, gets the same notifications as the others.
func TestAnOfferThatStandsIsNotDropped(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		a := db.audience(t)
		db.happens(t, a.ID, dispatch.EventDeclined, nil)
		told := db.as("ins_a").mustExpand(t, db, dispatch.EventDeclined, 10)
		if len(told.Pushes)+told.Unleased+told.Dropped != 0 || db.stored(t, a.unsentRow.ID).State != statePending {
			t.Errorf("%+v", told)
		}
	})
}

// TestNobodyIsAlertedForNothing: a later round is not pushed to who gave the dispatch back, to who has just been relieved of it, to who
// declined it, unless the terms are new, or to who has other work in these hours. A push that waits ends when its driver declines or goes
// off duty.
func TestNobodyIsAlertedForNothing(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		v := db.equipped(t, 6)
		quitter, relieved, decliner, busy, resting, willing := v[0], v[1], v[2], v[3], v[4], v[5]
		d := db.add(t, nil)
		must(t, db.Decline(t.Context(), d.ID, 1, decliner.Driver, "FAR"))
		db.takeAndGiveBack(t, d.ID, quitter.Driver)
		db.take(t, d.ID, relieved.Driver)
		db.take(t, db.add(t, nil).ID, busy.Driver)
		db.take(t, db.add(t, later(3)).ID, willing.Driver)
		db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Unassign(d.Version, "key_1", "", now)
		})
		reopened := o.mustExpand(t, db, dispatch.EventReopened, 0).Event.ID
		db.mustTell(t, reopened, dispatch.EventReopened, false, resting, willing)

		must(t, db.Decline(t.Context(), d.ID, 3, willing.Driver, "FAR"))
		db.exec(t, "UPDATE drivers SET on_duty = 0 WHERE id = ?", resting.Driver)
		_, dropped, err := o.LeaseNotifications(t.Context(), 10)
		must(t, err)
		testkit.Equal(t, "what was dropped while it waited", map[string]int{"unwanted": 2}, dropped)

		db.exec(t, "UPDATE drivers SET on_duty = 1 WHERE id = ?", resting.Driver)
		db.happens(t, d.ID, dispatch.EventOpened, func(_ *dispatch.Dispatch, e *dispatch.Event) { e.ReasonCode = dispatch.ReasonClaimFailed })
		db.mustTell(t, o.mustExpand(t, db, dispatch.EventOpened, 0).Event.ID, dispatch.EventOpened, false, resting)
		db.happens(t, d.ID, dispatch.EventUpdated, func(d *dispatch.Dispatch, _ *dispatch.Event) { d.Round++ })
		db.mustTell(t, o.mustExpand(t, db, dispatch.EventUpdated, 0).Event.ID, dispatch.EventUpdated, false, relieved, decliner, resting, willing)
	})
}

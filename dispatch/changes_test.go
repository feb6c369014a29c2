package dispatch_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	. "firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// later is someTerms an hour later.
func later() Terms {
	t := someTerms()
	t.WorkStartsAt, t.WorkEndsAt = t.WorkStartsAt.Add(time.Hour), t.WorkEndsAt.Add(time.Hour)
	return t
}

func longer(w Window) Window {
	w.ExpiresAt = w.ExpiresAt.Add(time.Minute)
	return w
}

const actor = "key_1"

var changes = []action{
	{
		name: "other terms", do: func(d *Dispatch) ([]Event, error) { return d.Update(7, later(), d.Window, actor, noon) },
		want: map[state]outcome{scheduled: nextRound(Scheduled, EventUpdated), pending: nextRound(Pending, EventUpdated)},
	},
	{
		name: "another window", do: func(d *Dispatch) ([]Event, error) { return d.Update(7, d.Terms, longer(d.Window), actor, noon) },
		want: map[state]outcome{scheduled: moves(Scheduled, EventUpdated), pending: moves(Pending, EventUpdated)},
	},
	{
		name: "both", do: func(d *Dispatch) ([]Event, error) { return d.Update(7, later(), longer(d.Window), actor, noon) },
		want: map[state]outcome{scheduled: nextRound(Scheduled, EventUpdated), pending: nextRound(Pending, EventUpdated)},
	},
	{
		name: "another opening", do: func(d *Dispatch) ([]Event, error) {
			return d.Update(7, d.Terms, Window{OpensAt: d.OpensAt.Add(time.Second), ExpiresAt: d.ExpiresAt}, actor, noon)
		},
		want: map[state]outcome{scheduled: moves(Scheduled, EventUpdated)},
	},
	{
		name: "an opening that has been", do: func(d *Dispatch) ([]Event, error) {
			return d.Update(7, d.Terms, Window{OpensAt: noon.Add(-time.Second), ExpiresAt: d.ExpiresAt}, actor, noon)
		},
		want: map[state]outcome{scheduled: moves(Pending, EventUpdated)},
	},
	{
		name: "an end that has been", do: func(d *Dispatch) ([]Event, error) {
			return d.Update(7, d.Terms, Window{OpensAt: d.OpensAt, ExpiresAt: noon}, actor, noon)
		},
		want: map[state]outcome{scheduled: refused(ErrWindow), pending: refused(ErrWindow)},
	},
	{
		name: "an end before the opening", do: func(d *Dispatch) ([]Event, error) {
			return d.Update(7, later(), Window{OpensAt: d.OpensAt, ExpiresAt: d.OpensAt}, actor, noon)
		},
		want: map[state]outcome{scheduled: refused(ErrWindow), pending: refused(ErrWindow)},
	},
	{
		name: "what it is already", do: func(d *Dispatch) ([]Event, error) {
			kst := time.FixedZone("KST", 9*3600)
			terms := someTerms()
			terms.WorkStartsAt = terms.WorkStartsAt.In(kst)
			return d.Update(7, terms, Window{OpensAt: d.OpensAt.In(kst), ExpiresAt: d.ExpiresAt.In(kst)}, actor, noon)
		},
		want: map[state]outcome{scheduled: nothing, pending: nothing},
	},
	{
		name: "extend", do: func(d *Dispatch) ([]Event, error) { return d.Extend(7, d.ExpiresAt.Add(1), actor, noon) },
		want: map[state]outcome{scheduled: moves(Scheduled, EventUpdated), pending: moves(Pending, EventUpdated)},
	},
	{
		name: "extend by nothing", do: func(d *Dispatch) ([]Event, error) { return d.Extend(7, d.ExpiresAt, actor, noon) },
		want: map[state]outcome{scheduled: refused(ErrWindow), pending: refused(ErrWindow)},
	},
	{
		name: "reopen", do: func(d *Dispatch) ([]Event, error) { return d.Reopen(7, nil, nil, actor, noon) },
		want: map[state]outcome{expired: nextRound(Pending, EventReopened)},
	},
	{
		name: "reopen later", do: func(d *Dispatch) ([]Event, error) { return d.Reopen(7, new(noon.Add(1)), nil, actor, noon) },
		want: map[state]outcome{expired: nextRound(Scheduled, EventReopened)},
	},
	{
		name: "reopen until now", do: func(d *Dispatch) ([]Event, error) {
			return d.Reopen(7, new(noon.Add(-time.Hour)), new(noon), actor, noon)
		},
		want: map[state]outcome{expired: refused(ErrWindow)},
	},
	{
		name: "assign to another", do: func(d *Dispatch) ([]Event, error) { return d.Assign(7, fit(other), myCLM, actor, noon) },
		want: map[state]outcome{
			scheduled: moves(Accepted, EventAccepted), pending: moves(Accepted, EventAccepted),
			expired: refused(ErrExpired), canceled: refused(ErrCanceled), canceledBy: refused(ErrCanceled),
		},
		otherwise: ErrAlreadyTaken,
	},
	{
		name: "assign to the holder", do: func(d *Dispatch) ([]Event, error) { return d.Assign(7, fit(me), myCLM, actor, noon) },
		want: map[state]outcome{
			scheduled: moves(Accepted, EventAccepted), pending: moves(Accepted, EventAccepted),
			accepted: nothing, inProgress: nothing, completed: nothing,
			expired: refused(ErrExpired), canceled: refused(ErrCanceled), canceledBy: refused(ErrCanceled),
		},
	},
	{
		name: "unassign", do: func(d *Dispatch) ([]Event, error) { return d.Unassign(7, actor, "ILL", noon) },
		want: map[state]outcome{accepted: nextRound(Pending, EventUnassigned, EventReopened)},
	},
}

// TestEveryChangeFromEveryState is the table of admins' changes, at the current version and at others.
func TestEveryChangeFromEveryState(t *testing.T) {
	fromEveryState(t, changes)
	var stale []action
	for _, moved := range []int{-1, 1} {
		for _, a := range changes {
			stale = append(stale, action{name: fmt.Sprintf("%s moved by %d", a.name, moved), otherwise: ErrVersionConflict,
				do: func(d *Dispatch) ([]Event, error) {
					d.Version += moved
					defer func() { d.Version -= moved }()
					return a.do(d)
				}})
		}
	}
	fromEveryState(t, stale)
}

func TestTermsEqual(t *testing.T) {
	full := func() Terms {
		t := someTerms()
		t.Site.Lat, t.Site.Lng, t.Note = new(37.5), new(127.0), "gate 2"
		return t
	}
	if !full().Equal(full()) {
		t.Fatal("the same terms are not")
	}
	for name, edit := range map[string]func(*Terms){
		"region": func(t *Terms) { t.Region = "busan" }, "class": func(t *Terms) { t.VehicleClass = "boom" },
		"height": func(t *Terms) { t.MinWorkingHeightM = new(20.5) }, "no height": func(t *Terms) { t.MinWorkingHeightM = nil },
		"address": func(t *Terms) { t.Site.Address += "0" }, "lat": func(t *Terms) { t.Site.Lat = new(0.0) },
		"no lat": func(t *Terms) { t.Site.Lat = nil }, "lng": func(t *Terms) { t.Site.Lng = new(0.0) }, "no lng": func(t *Terms) { t.Site.Lng = nil },
		"start": func(t *Terms) { t.WorkStartsAt = t.WorkStartsAt.Add(1) }, "end": func(t *Terms) { t.WorkEndsAt = t.WorkEndsAt.Add(1) },
		"amount": func(t *Terms) { t.Fee.Amount++ }, "currency": func(t *Terms) { t.Fee.Currency = "USD" }, "note": func(t *Terms) { t.Note = "" },
	} {
		edited := full()
		edit(&edited)
		if edited.Equal(full()) || full().Equal(edited) {
			t.Errorf("another %s is not noticed", name)
		}
	}
	if n := reflect.TypeFor[Terms]().NumField(); n != 8 {
		t.Errorf("Terms has %d fields: see that Equal looks at the new one too", n)
	}
}

func TestUpdateReplaces(t *testing.T) {
	d := inState(Scheduled, "")
	terms, window := later(), Window{OpensAt: noon.Add(-1), ExpiresAt: noon.Add(time.Hour)}
	events, err := d.Update(7, terms, window, actor, noon)
	if err != nil || !reflect.DeepEqual(d.Terms, terms) || d.Window != window {
		t.Errorf("%v, %+v", err, d)
	}
	mustBeEvents(t, events, Event{Type: EventUpdated, Dispatch: d.ID, Round: 3, Actor: actor, At: noon})
	if _, err := d.Accept(fit(me), 2, myCLM, noon); !errors.Is(err, ErrOfferStale) {
		t.Errorf("a tap on the terms before: %v", err)
	}
	events, err = d.Update(8, terms, longer(window), actor, noon)
	if err != nil {
		t.Fatal(err)
	}
	mustBeEvents(t, events, Event{Type: EventUpdated, Dispatch: d.ID, Round: 3, Actor: actor, ReasonCode: ReasonWindowChanged, At: noon})
	events, err = d.Extend(9, noon.Add(2*time.Hour), actor, noon)
	if want := (Window{OpensAt: window.OpensAt, ExpiresAt: noon.Add(2 * time.Hour)}); err != nil || d.Window != want {
		t.Errorf("%v, extended to %v", err, d.Window)
	}
	mustBeEvents(t, events, Event{Type: EventUpdated, Dispatch: d.ID, Round: 3, Actor: actor, ReasonCode: ReasonExtended, At: noon})
	if _, err := d.Accept(fit(me), 3, myCLM, noon); err != nil {
		t.Errorf("a tap on the offer that stands longer: %v", err)
	}
}

// TestReopenedWindow: the window of the expired dispatch was ten minutes long.
func TestReopenedWindow(t *testing.T) {
	end := someTerms().WorkEndsAt
	for _, c := range []struct {
		opens, expires *time.Time
		want           Window
	}{
		{nil, nil, Window{noon, noon.Add(10 * time.Minute)}},
		{new(noon.Add(time.Hour)), nil, Window{noon.Add(time.Hour), noon.Add(70 * time.Minute)}},
		{nil, new(noon.Add(1)), Window{noon, noon.Add(1)}},
		{new(noon.Add(-1)), new(noon.Add(time.Minute)), Window{noon.Add(-1), noon.Add(time.Minute)}},
		{new(end.Add(-time.Minute)), nil, Window{end.Add(-time.Minute), end}},
	} {
		d := inState(Expired, "")
		events, err := d.Reopen(7, c.opens, c.expires, actor, noon)
		if err != nil || d.Window != c.want {
			t.Errorf("%v, %v, want %v", err, d.Window, c.want)
			continue
		}
		mustBeEvents(t, events, Event{Type: EventReopened, Dispatch: d.ID, Round: 3, Actor: actor, At: noon})
	}
}

// TestEachTime: the work is from one to two o'clock.
func TestEachTime(t *testing.T) {
	const hour = time.Hour
	for _, tt := range []struct {
		name                         string
		opens, expires, starts, ends time.Duration // after noon
		wrong                        string        // the field, "" for none
	}{
		{"before the work", 0, hour, hour, 2 * hour, ""},
		{"until the end of the work", 0, 2 * hour, hour, 2 * hour, ""},
		{"work that has begun", 0, hour, -hour, 2 * hour, ""},
		{"work that is over", 0, hour, -2 * hour, -hour, "work_ends_at"},
		{"work that ends now", -hour, hour, -hour, 0, "work_ends_at"},
		{"work of last year", 0, hour, -366 * 24 * hour, -366*24*hour + hour, "work_ends_at"},
		{"work that will be over at the opening", 3 * hour, 4 * hour, hour, 2 * hour, "opens_at"},
		{"work that ends at the opening", 2 * hour, 3 * hour, hour, 2 * hour, "opens_at"},
		{"an offer for longer than the work", 0, 2*hour + 1, hour, 2 * hour, "expires_at"},
		{"an offer that has ended", -hour, 0, hour, 2 * hour, "expires_at"},
		{"work in many years", 0, hour, hour, 200 * 365 * 24 * hour, ""},
	} {
		terms := someTerms()
		terms.WorkStartsAt, terms.WorkEndsAt = noon.Add(tt.starts), noon.Add(tt.ends)
		err := Window{OpensAt: noon.Add(tt.opens), ExpiresAt: noon.Add(tt.expires)}.Check(terms, noon)
		var wrong *TimeError
		field := ""
		if errors.As(err, &wrong) {
			field = wrong.Field
		}
		if field != tt.wrong || (err != nil) != errors.Is(err, ErrWindow) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.wrong)
		}
	}
}

func TestAnOfferEndsWithTheWork(t *testing.T) {
	end := someTerms().WorkEndsAt
	for _, at := range []time.Time{end, end.Add(time.Minute)} {
		d := inState(Expired, "")
		if events, err := d.Reopen(7, nil, nil, actor, at); !errors.Is(err, ErrWindow) || len(events) > 0 {
			t.Errorf("reopened at %s: %v, %v", at, events, err)
		}
	}
	d := inState(Pending, "")
	if _, err := d.Extend(7, end.Add(1), actor, noon); !errors.Is(err, ErrWindow) {
		t.Errorf("extended beyond the work: %v", err)
	}
	if _, err := d.Extend(7, end, actor, noon); err != nil || d.ExpiresAt != end {
		t.Errorf("extended to the end of the work: %v, %v", d.Window, err)
	}
	sooner := d.Terms
	sooner.WorkStartsAt, sooner.WorkEndsAt = noon, noon.Add(time.Minute)
	if _, err := d.Update(8, sooner, d.Window, actor, noon); err != nil || d.ExpiresAt != sooner.WorkEndsAt {
		t.Errorf("the work is moved to before the end of the offer: %v, %v", d.Window, err)
	}
	if _, err := d.Accept(fit(me), 0, myCLM, noon); err != nil {
		t.Fatal(err)
	}
	_, err := d.Withdraw(me, "", noon.Add(30*time.Second))
	if want := (Window{noon.Add(30 * time.Second), sooner.WorkEndsAt}); err != nil || d.Window != want || d.Status != Pending {
		t.Errorf("given back before the end: %s for %v, %v", d.Status, d.Window, err)
	}
	if _, err := d.Accept(fit(me), 0, myCLM, sooner.WorkEndsAt.Add(-1)); err != nil {
		t.Fatal(err)
	}
	window, after := d.Window, sooner.WorkEndsAt
	events, err := d.Withdraw(me, "", after)
	if err != nil || d.Status != Expired || d.Window != window || d.Claim != nil || d.Round != 5 {
		t.Errorf("given back after the end: %+v, %v", d, err)
	}
	mustBeEvents(t, events,
		Event{Type: EventWithdrawn, Dispatch: d.ID, Round: 4, Driver: me, Actor: string(me), At: after},
		Event{Type: EventExpired, Dispatch: d.ID, Round: 5, Actor: System, At: after.Add(time.Microsecond)})
	if _, err := d.Accept(fit(other), 0, myCLM, after); !errors.Is(err, ErrExpired) {
		t.Errorf("work that is over is accepted: %v", err)
	}
}

func TestAssign(t *testing.T) {
	off := fit(me)
	off.OnDuty, off.HadIt = false, true
	for _, s := range []Status{Scheduled, Pending} {
		d := inState(s, "")
		events, err := d.Assign(7, off, myCLM, actor, noon)
		if want := (&Claim{ID: myCLM, Driver: me, Round: 2, AcceptedAt: noon}); err != nil || !reflect.DeepEqual(d.Claim, want) {
			t.Errorf("%s: %v, %+v", s, err, d.Claim)
			continue
		}
		mustBeEvents(t, events, Event{Type: EventAccepted, Dispatch: d.ID, Round: 2, Driver: me, Actor: actor, At: noon})
		unassigned, err := d.Unassign(8, actor, "ILL", noon)
		if err != nil || d.Claim != nil || !d.OpensAt.Equal(noon) || d.ExpiresAt.Sub(d.OpensAt) != 10*time.Minute {
			t.Errorf("%s: %v, %+v", s, err, d)
			continue
		}
		mustBeEvents(t, unassigned,
			Event{Type: EventUnassigned, Dispatch: d.ID, Round: 2, Driver: me, Actor: actor, ReasonCode: "ILL", At: noon},
			Event{Type: EventReopened, Dispatch: d.ID, Round: 3, Actor: System, At: noon.Add(time.Microsecond)})
	}
	busy := fit(me)
	busy.Busy = true
	if d := inState(Pending, ""); !errors.Is(second(d.Assign(7, busy, myCLM, actor, noon)), ErrDriverBusy) || d.Claim != nil {
		t.Errorf("a busy one: %+v", d)
	}
	busy.SuspendedUntil, busy.Regions, busy.VehicleClass, busy.WorkingHeightM, busy.OnDuty = new(noon.Add(1)), nil, "", nil, false
	d := inState(Pending, "")
	var unfit *NotEligibleError
	want := []IneligibleReason{Suspended, WrongRegion, WrongVehicleClass, TooLow}
	if err := second(d.Assign(7, busy, myCLM, actor, noon)); !errors.As(err, &unfit) || !reflect.DeepEqual(unfit.Reasons, want) {
		t.Errorf("not eligible: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPushReread(t *testing.T) {
	d := inState(Pending, "")
	for _, c := range []struct {
		kind  EventType
		round int
		moves bool
	}{{EventOpened, 2, true}, {EventUpdated, 2, true}, {EventOpened, 1, false}, {EventAccepted, 2, false}} {
		p := outbox.Push{Type: c.kind, Round: c.round, UsefulUntil: noon}
		p.Refresh(d)
		if moved := p.UsefulUntil.Equal(d.ExpiresAt); moved != c.moves || p.Dispatch.ID != d.ID {
			t.Errorf("%s of round %d: until %v", c.kind, c.round, p.UsefulUntil)
		}
	}
}

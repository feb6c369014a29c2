package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	me    = DriverID("drv_me")
	rival = DriverID("drv_rival")
)

// stand returns a dispatch in that state and round, open from noon for ten minutes, held by holder where it is held.
func stand(s Status, round int, holder DriverID) Dispatch {
	height := 40.0
	d := Dispatch{
		ID: "dsp_1", Round: round, Version: 7, Status: s,
		Terms: Terms{
			Region: "seoul", VehicleClass: "45m", MinWorkingHeightM: &height,
			WorkStartsAt: noon.Add(time.Hour), WorkEndsAt: noon.Add(2 * time.Hour),
		},
		Window: Window{OpensAt: noon, ExpiresAt: noon.Add(10 * time.Minute)},
	}
	if holder != "" {
		d.Claim = &Claim{ID: "clm_0", Driver: holder, Round: round, AcceptedAt: noon}
	}
	return d
}

func candidate() Candidate {
	height := 45.0
	return Candidate{Driver: Driver{
		ID: me, OnDuty: true, Regions: []string{"busan", "seoul"}, VehicleClass: "45m", WorkingHeightM: &height,
	}}
}

func TestAccept(t *testing.T) {
	offDuty := func(c *Candidate) { c.OnDuty = false }
	busy := func(c *Candidate) { c.Busy = true }
	gaveBack := func(c *Candidate) { c.GaveBack = true }
	none := func(*Candidate) {}
	for _, tt := range []struct {
		name   string
		d      Dispatch
		round  int
		change func(*Candidate)
		want   error
		replay bool
	}{
		{"open", stand(Pending, 1, ""), 1, none, nil, false},
		{"open, no round", stand(Pending, 3, ""), 0, none, nil, false},
		{"an old offer", stand(Pending, 2, ""), 1, none, ErrOfferStale, false},
		{"an offer that is not there yet", stand(Pending, 2, ""), 3, none, ErrOfferStale, false},
		{"mine", stand(Accepted, 2, me), 2, none, nil, true},
		{"mine, no round", stand(Accepted, 2, me), 0, none, nil, true},
		{"mine and under way", stand(InProgress, 1, me), 1, none, nil, true},
		{"mine and done", stand(Completed, 1, me), 1, none, nil, true},
		{"mine, of another round", stand(Accepted, 2, me), 1, none, ErrOfferStale, false},
		{"mine before all else", stand(Accepted, 1, me), 1, offDuty, nil, true},
		{"a rival's", stand(Accepted, 1, rival), 1, none, ErrAlreadyTaken, false},
		{"a rival's before the round", stand(Accepted, 2, rival), 1, none, ErrAlreadyTaken, false},
		{"a rival's before eligibility", stand(Accepted, 1, rival), 1, offDuty, ErrAlreadyTaken, false},
		{"a rival's, under way", stand(InProgress, 1, rival), 1, none, ErrAlreadyTaken, false},
		{"a rival's, done", stand(Completed, 1, rival), 1, none, ErrAlreadyTaken, false},
		{"canceled", stand(Canceled, 1, ""), 1, none, ErrCanceled, false},
		{"mine until it was canceled", stand(Canceled, 1, me), 1, none, ErrCanceled, false},
		{"expired", stand(Expired, 1, ""), 1, none, ErrExpired, false},
		{"expired before the round", stand(Expired, 2, ""), 1, none, ErrExpired, false},
		{"too early", stand(Scheduled, 1, ""), 1, none, ErrNotOpenYet, false},
		{"the round before the opening", stand(Scheduled, 2, ""), 1, none, ErrOfferStale, false},
		{"off duty", stand(Pending, 1, ""), 1, offDuty, ErrNotEligible, false},
		{"the round before eligibility", stand(Pending, 2, ""), 1, offDuty, ErrOfferStale, false},
		{"busy", stand(Pending, 1, ""), 1, busy, ErrDriverBusy, false},
		{"eligibility before overlap", stand(Pending, 1, ""), 1, func(c *Candidate) { offDuty(c); busy(c) }, ErrNotEligible, false},
		{"given back, no round", stand(Pending, 2, ""), 0, gaveBack, ErrOfferStale, false},
		{"given back, taken anew", stand(Pending, 2, ""), 2, gaveBack, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, c := tt.d, candidate()
			tt.change(&c)
			events, err := d.Accept(c, tt.round, "clm_1", noon.Add(time.Minute))
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.want != nil || tt.replay {
				if len(events) != 0 || d.Version != tt.d.Version || d.Status != tt.d.Status || d.Claim != tt.d.Claim {
					t.Errorf("something changed: %+v, %v", d, events)
				}
				return
			}
			if d.Status != Accepted || !d.HeldBy(me) || d.Claim.ID != "clm_1" || d.Claim.Round != d.Round || d.Version != 8 {
				t.Errorf("accepted, but %+v", d)
			}
			if len(events) != 1 || events[0].Type != EventAccepted || events[0].Round != d.Round || events[0].Driver != me {
				t.Errorf("events %+v", events)
			}
		})
	}
}

func TestIneligible(t *testing.T) {
	terms := stand(Pending, 1, "").Terms
	low, past, future := 39.9, noon.Add(-time.Second), noon.Add(time.Second)
	for _, tt := range []struct {
		name   string
		change func(*Driver)
		want   []Reason
	}{
		{"suited", func(*Driver) {}, nil},
		{"off duty", func(v *Driver) { v.OnDuty = false }, []Reason{OffDuty}},
		{"suspended", func(v *Driver) { v.SuspendedUntil = &future }, []Reason{Suspended}},
		{"suspended until now", func(v *Driver) { v.SuspendedUntil = &noon }, nil},
		{"was suspended", func(v *Driver) { v.SuspendedUntil = &past }, nil},
		{"elsewhere", func(v *Driver) { v.Regions = []string{"Seoul", "busan"} }, []Reason{WrongRegion}},
		{"another truck", func(v *Driver) { v.VehicleClass = "28m" }, []Reason{WrongVehicleClass}},
		{"too low", func(v *Driver) { v.WorkingHeightM = &low }, []Reason{TooLow}},
		{"height not known", func(v *Driver) { v.WorkingHeightM = nil }, []Reason{TooLow}},
		{"just high enough", func(v *Driver) { v.WorkingHeightM = terms.MinWorkingHeightM }, nil},
		{"all at once", func(v *Driver) { *v = Driver{SuspendedUntil: &future} },
			[]Reason{OffDuty, Suspended, WrongRegion, WrongVehicleClass, TooLow}},
	} {
		v := candidate().Driver
		tt.change(&v)
		if got := v.Ineligible(terms, noon); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// transitions is section 1 of the contract: what each action makes of each state, "" for a refusal.
var transitions = map[string]map[Status]Status{
	"withdraw": {Accepted: Pending},
	"start":    {Accepted: InProgress, InProgress: InProgress},
	"complete": {InProgress: Completed, Completed: Completed},
	"cancel":   {Scheduled: Canceled, Pending: Canceled, Accepted: Canceled, InProgress: Canceled},
}

func TestTransitions(t *testing.T) {
	later := noon.Add(3 * time.Minute)
	for action, table := range transitions {
		for _, from := range []Status{Scheduled, Pending, Accepted, InProgress, Completed, Canceled, Expired} {
			t.Run(fmt.Sprintf("%s %s", action, from), func(t *testing.T) {
				holder := me
				if from == Scheduled || from == Pending || from == Expired {
					holder = ""
				}
				d := stand(from, 2, holder)
				var err error
				switch action {
				case "withdraw":
					_, err = d.Withdraw(me, "", later)
				case "start":
					_, err = d.Start(me, later)
				case "complete":
					_, err = d.Complete(me, later)
				case "cancel":
					_, err = d.Cancel(7, "key_1", "", later)
				}
				want, allowed := table[from]
				if allowed != (err == nil) || allowed && d.Status != want {
					t.Fatalf("%s, %v", d.Status, err)
				}
				if !allowed && (d.Status != from || d.Version != 7 || d.Round != 2) {
					t.Errorf("refused, but %+v", d)
				}
				if changed := allowed && want != from; changed != (d.Version == 8) {
					t.Errorf("version %d", d.Version)
				}
			})
		}
	}
}

func TestWithdrawOpensTheNextRound(t *testing.T) {
	d := stand(Accepted, 2, me)
	later := noon.Add(time.Hour)
	events, err := d.Withdraw(me, "BREAKDOWN", later)
	if err != nil {
		t.Fatal(err)
	}
	if d.Round != 3 || d.Claim != nil || !d.OpensAt.Equal(later) || !d.ExpiresAt.Equal(later.Add(10*time.Minute)) {
		t.Errorf("%+v", d)
	}
	if len(events) != 2 || events[0].Type != EventWithdrawn || events[0].Round != 2 || events[0].Driver != me ||
		events[0].ReasonCode != "BREAKDOWN" || events[1].Type != EventReopened || events[1].Round != 3 || events[0].ID >= events[1].ID {
		t.Errorf("%+v", events)
	}
}

func TestOnlyTheHolderActs(t *testing.T) {
	for _, s := range []Status{Accepted, InProgress, Completed} {
		for name, act := range map[string]func(*Dispatch) ([]Event, error){
			"withdraw": func(d *Dispatch) ([]Event, error) { return d.Withdraw(me, "", noon) },
			"start":    func(d *Dispatch) ([]Event, error) { return d.Start(me, noon) },
			"complete": func(d *Dispatch) ([]Event, error) { return d.Complete(me, noon) },
		} {
			d := stand(s, 1, rival)
			if _, err := act(&d); !errors.Is(err, ErrNotYours) || d.Status != s {
				t.Errorf("%s a rival's %s: %v", name, s, err)
			}
		}
	}
}

func TestCancelNamesItsVersion(t *testing.T) {
	d := stand(Pending, 1, "")
	if _, err := d.Cancel(6, "key_1", "", noon); !errors.Is(err, ErrVersionMoved) || d.Status != Pending {
		t.Errorf("%v, %s", err, d.Status)
	}
}

func TestReannounce(t *testing.T) {
	for _, tt := range []struct {
		d     Dispatch
		round int
		want  int
	}{
		{stand(Pending, 2, ""), 2, 1}, {stand(Pending, 2, ""), 0, 1}, {stand(Pending, 2, ""), 1, 0},
		{stand(Accepted, 2, me), 2, 0}, {stand(Expired, 2, ""), 2, 0}, {stand(Canceled, 2, ""), 2, 0},
	} {
		if events := tt.d.Reannounce(tt.round, noon); len(events) != tt.want {
			t.Errorf("%s, round %d of %d: %v", tt.d.Status, tt.round, tt.d.Round, events)
		}
	}
}

// The clock opens and closes a dispatch, to the instant.
func TestAt(t *testing.T) {
	d := stand(Pending, 1, "")
	for _, tt := range []struct {
		written Status
		now     time.Time
		want    Status
	}{
		{Pending, d.OpensAt.Add(-time.Microsecond), Scheduled},
		{Pending, d.OpensAt, Pending},
		{Pending, d.ExpiresAt.Add(-time.Microsecond), Pending},
		{Pending, d.ExpiresAt, Expired},
		{Accepted, d.ExpiresAt, Accepted},
		{Canceled, d.OpensAt.Add(-time.Hour), Canceled},
	} {
		if got := d.At(tt.written, tt.now).Status; got != tt.want {
			t.Errorf("%s at %s: %s, want %s", tt.written, tt.now, got, tt.want)
		}
	}
}

func TestReceipts(t *testing.T) {
	ended := noon.Add(time.Minute)
	held := func(o Outcome) *PastClaim {
		return &PastClaim{Claim: Claim{Driver: me, Round: 1, AcceptedAt: noon}, Outcome: o, EndedAt: &ended}
	}
	for _, tt := range []struct {
		d    Dispatch
		past *PastClaim
		want Outcome
	}{
		{stand(Pending, 1, ""), nil, Undecided}, {stand(Scheduled, 1, ""), nil, Undecided},
		{stand(Expired, 1, ""), nil, OutcomeExpired}, {stand(Canceled, 1, ""), nil, OutcomeCanceled},
		{stand(Accepted, 1, rival), nil, Lost}, {stand(Completed, 1, rival), nil, Lost},
		{stand(Accepted, 1, me), held(Won), Won}, {stand(Pending, 2, ""), held(Withdrawn), Withdrawn},
		{stand(Accepted, 2, rival), held(Withdrawn), Withdrawn}, {stand(Canceled, 1, me), held(OutcomeCanceled), OutcomeCanceled},
	} {
		if got := tt.d.ReceiptFor(tt.past); got.Outcome != tt.want {
			t.Errorf("%s, %+v: %s, want %s", tt.d.Status, tt.past, got.Outcome, tt.want)
		}
	}
}

func TestIDs(t *testing.T) {
	a, b := NewID(noon), NewID(noon.Add(time.Microsecond))
	if a >= b {
		t.Errorf("%s is older than %s and sorts behind it", a, b)
	}
	if _, err := ParseID(string(a)); err != nil {
		t.Errorf("%s: %v", a, err)
	}
	for _, s := range []string{"", "dsp_", "drv" + string(a[3:]), string(a) + "0", string(a[:len(a)-1]), "dsp_" + "ABCDEFGHIJKLMNOPQRSTUV0123", string(a[:10]) + "}" + string(a[11:])} {
		if _, err := ParseID(s); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(string(NewID(noon)))
	f.Add("dsp_\x00")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err == nil && (string(id) != s || len(s) != 30) {
			t.Errorf("%q became %q", s, id)
		}
	})
}

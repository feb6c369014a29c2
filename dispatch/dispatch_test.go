package dispatch_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	. "firsttap/dispatch"
)

// TestStatusFollowsTheClock checks the exact instants: open from OpensAt, up to but not including ExpiresAt.
func TestStatusFollowsTheClock(t *testing.T) {
	opens, expires := noon, noon.Add(10*time.Minute)
	d := Dispatch{Window: Window{OpensAt: opens, ExpiresAt: expires}}
	instants := []struct {
		at   time.Time
		want Status
	}{
		{time.Time{}, Scheduled},
		{opens.Add(-time.Nanosecond), Scheduled},
		{opens, Pending},
		{opens.In(time.FixedZone("KST", 9*3600)), Pending},
		{opens.Add(time.Nanosecond), Pending},
		{expires.Add(-time.Nanosecond), Pending},
		{expires, Expired},
		{expires.Add(100 * 365 * 24 * time.Hour), Expired},
	}
	for _, i := range instants {
		if got := d.At(Pending, i.at).Status; got != i.want {
			t.Errorf("at %s: %s, want %s", i.at, got, i.want)
		}
		for _, written := range []Status{Accepted, InProgress, Completed, Canceled, Expired} {
			if got := d.At(written, i.at).Status; got != written {
				t.Errorf("%s at %s: %s", written, i.at, got)
			}
		}
	}
	if d.Status != "" {
		t.Error("At changed its receiver")
	}
}

func TestStatusValid(t *testing.T) {
	for _, s := range []Status{Scheduled, Pending, Accepted, InProgress, Completed, Canceled, Expired} {
		if !s.Valid() {
			t.Errorf("%s is not valid", s)
		}
	}
	for _, s := range []Status{"", "pending", "TAKEN", "PENDING ", "CANCEL"} {
		if s.Valid() {
			t.Errorf("%q is valid", s)
		}
	}
}

func TestHeldBy(t *testing.T) {
	d := inState(Accepted, me)
	if !d.HeldBy(me) || d.HeldBy(other) {
		t.Error("held by the wrong one")
	}
	if d = inState(Pending, ""); d.HeldBy("") {
		t.Error("an open dispatch is held")
	}
}

func TestIneligibleReasons(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*Driver, *Terms)
		want    []IneligibleReason
		matches bool
	}{
		"fit":                           {func(*Driver, *Terms) {}, nil, true},
		"off duty":                      {func(v *Driver, _ *Terms) { v.OnDuty = false }, []IneligibleReason{OffDuty}, true},
		"suspended":                     {func(v *Driver, _ *Terms) { v.SuspendedUntil = new(noon.Add(1)) }, []IneligibleReason{Suspended}, true},
		"suspended until now":           {func(v *Driver, _ *Terms) { v.SuspendedUntil = new(noon) }, nil, true},
		"other region":                  {func(v *Driver, _ *Terms) { v.Regions = []string{"busan"} }, []IneligibleReason{WrongRegion}, false},
		"no region":                     {func(v *Driver, _ *Terms) { v.Regions = nil }, []IneligibleReason{WrongRegion}, false},
		"region in another case":        {func(v *Driver, _ *Terms) { v.Regions = []string{"Seoul"} }, []IneligibleReason{WrongRegion}, false},
		"other class":                   {func(v *Driver, _ *Terms) { v.VehicleClass = "boom" }, []IneligibleReason{WrongVehicleClass}, false},
		"a bit too low":                 {func(v *Driver, _ *Terms) { v.WorkingHeightM = new(19.99) }, []IneligibleReason{TooLow}, false},
		"height unknown":                {func(v *Driver, _ *Terms) { v.WorkingHeightM = nil }, []IneligibleReason{TooLow}, false},
		"no height wanted, none known":  {func(v *Driver, t *Terms) { v.WorkingHeightM, t.MinWorkingHeightM = nil, nil }, nil, true},
		"no height wanted, any will do": {func(v *Driver, t *Terms) { v.WorkingHeightM, t.MinWorkingHeightM = new(1.0), nil }, nil, true},
		"everything": {
			func(v *Driver, _ *Terms) { *v = Driver{SuspendedUntil: new(noon.Add(time.Hour))} },
			[]IneligibleReason{OffDuty, Suspended, WrongRegion, WrongVehicleClass, TooLow}, false,
		},
	} {
		v, terms := fit(me).Driver, someTerms()
		c.edit(&v, &terms)
		if got := v.Ineligible(terms, noon); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := v.MatchesTerms(terms); got != c.matches {
			t.Errorf("%s: MatchesTerms is %v", name, got)
		}
	}
}

func TestReceipts(t *testing.T) {
	ended := noon.Add(-time.Second)
	claim := Claim{ID: oldCLM, Driver: me, Round: 1, AcceptedAt: noon.Add(-time.Hour)}
	past := func(o Outcome, ended *time.Time) *PastClaim {
		return &PastClaim{Claim: claim, Outcome: o, EndedAt: ended}
	}
	had := func(o Outcome, at *time.Time) Receipt {
		return Receipt{Outcome: o, Round: 1, Rank: 1, Behind: new(time.Duration(0)), DecidedAt: at}
	}
	touched, taken := noon.Add(-time.Minute), noon.Add(-time.Second)
	over := func(o Outcome, at time.Time) Receipt { return Receipt{Outcome: o, Round: 2, DecidedAt: &at} }
	lost := func(rank int, behind time.Duration) Receipt {
		return Receipt{Outcome: OutcomeLost, Round: 2, Rank: rank, Behind: &behind, DecidedAt: &taken}
	}
	at := func(d time.Duration) *time.Time { return new(noon.Add(d)) }
	late := RaceStanding{Now: noon.Add(time.Minute)}
	tapped := func(mine, winners *time.Time, before int) RaceStanding {
		return RaceStanding{Tapped: true, FirstTap: mine, WinnerFirstTap: winners, Ahead: before, Now: noon}
	}
	declined := OfferHistory{DeclinedAt: at(-5 * time.Second)}
	for name, c := range map[string]struct {
		d    Dispatch
		past *PastClaim
		c    OfferHistory
		s    RaceStanding
		want Receipt
	}{
		"open":                                 {inState(Pending, ""), nil, OfferHistory{}, late, Receipt{Outcome: OutcomePending, Round: 2}},
		"open, tapped in vain":                 {inState(Pending, ""), nil, OfferHistory{}, tapped(at(0), nil, 3), Receipt{Outcome: OutcomePending, Round: 2}},
		"open, declined":                       {inState(Pending, ""), nil, declined, late, over(OutcomeDeclined, *declined.DeclinedAt)},
		"not open yet":                         {inState(Scheduled, ""), nil, OfferHistory{}, late, Receipt{Outcome: OutcomePending, Round: 2}},
		"expired":                              {inState(Expired, ""), nil, OfferHistory{}, late, over(OutcomeExpired, touched)},
		"expired, declined":                    {inState(Expired, ""), nil, declined, late, over(OutcomeExpired, touched)},
		"canceled":                             {inState(Canceled, ""), nil, OfferHistory{}, late, over(OutcomeCanceled, touched)},
		"canceled after another driver's win":  {inState(Canceled, other), nil, OfferHistory{}, tapped(at(1), at(0), 0), over(OutcomeCanceled, touched)},
		"taken by another":                     {inState(Accepted, other), nil, OfferHistory{}, tapped(at(7), at(0), 0), lost(2, 7)},
		"taken by another, begun":              {inState(InProgress, other), nil, OfferHistory{}, tapped(at(7), at(0), 5), lost(7, 7)},
		"taken by another, done":               {inState(Completed, other), nil, declined, tapped(at(7), at(0), 1), lost(3, 7)},
		"taken by another, though I was first": {inState(Accepted, other), nil, OfferHistory{}, tapped(at(-7), at(0), 0), lost(2, 0)},
		"assigned to another":                  {inState(Accepted, other), nil, OfferHistory{}, tapped(at(7), nil, 1), Receipt{Outcome: OutcomeLost, Round: 2, Rank: 3, DecidedAt: &taken}},
		"taken by another, tapped too early":   {inState(Accepted, other), nil, OfferHistory{}, tapped(nil, at(0), 1), Receipt{Outcome: OutcomeLost, Round: 2, DecidedAt: &taken}},
		"taken by another, declined":           {inState(Accepted, other), nil, declined, late, over(OutcomeDeclined, taken)},
		"taken by another, not written yet":    {inState(Accepted, other), nil, OfferHistory{}, RaceStanding{Now: taken.Add(2*time.Second - 1)}, Receipt{Outcome: OutcomePending, Round: 2}},
		"taken by another, no tap":             {inState(Accepted, other), nil, OfferHistory{}, RaceStanding{Now: taken.Add(2 * time.Second)}, over(OutcomeNoAttempt, taken)},
		"mine":                                 {inState(Accepted, me), past(OutcomeWon, nil), OfferHistory{}, late, had(OutcomeWon, &claim.AcceptedAt)},
		"mine, done":                           {inState(Completed, me), past(OutcomeWon, nil), OfferHistory{}, late, had(OutcomeWon, &claim.AcceptedAt)},
		"given back, open":                     {inState(Pending, ""), past(OutcomeWithdrawn, &ended), OfferHistory{}, late, had(OutcomeWithdrawn, &ended)},
		"withdrawn, taken by another by now":   {inState(Accepted, other), past(OutcomeWithdrawn, &ended), OfferHistory{}, late, had(OutcomeWithdrawn, &ended)},
		"given back, and lost":                 {inState(Accepted, other), past(OutcomeWithdrawn, &ended), OfferHistory{}, tapped(at(7), at(0), 0), lost(2, 7)},
		"given back, and declined":             {inState(Pending, ""), past(OutcomeWithdrawn, &ended), declined, late, over(OutcomeDeclined, *declined.DeclinedAt)},
		"taken away":                           {inState(Pending, ""), past(OutcomeUnassigned, &ended), OfferHistory{}, late, had(OutcomeUnassigned, &ended)},
		"mine, canceled":                       {inState(Canceled, me), past(OutcomeCanceled, &ended), OfferHistory{}, late, had(OutcomeCanceled, &ended)},
	} {
		if got := c.d.ReceiptFor(c.past, c.c, c.s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

// TestErrorsKeepTheirIdentity checks the properties that handler's error table relies on.
func TestErrorsKeepTheirIdentity(t *testing.T) {
	for _, c := range []struct {
		err, is error
		says    string
	}{
		{&TakenError{}, ErrAlreadyTaken, "is being decided"},
		{&TakenError{Final: true}, ErrAlreadyTaken, "another driver has the dispatch"},
		{&NotOpenYetError{OpensAt: noon.In(time.FixedZone("KST", 9*3600))}, ErrNotOpenYet, "2026-05-04T12:00:00Z"},
		{&NotEligibleError{Reasons: []IneligibleReason{OffDuty, TooLow}}, ErrNotEligible, "OFF_DUTY WORKING_HEIGHT"},
		{&StateError{Status: Completed}, ErrInvalidState, "COMPLETED"},
	} {
		wrapped := fmt.Errorf("claim: %w", c.err)
		if !errors.Is(wrapped, c.is) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%v: want a %v that says %q", wrapped, c.is, c.says)
		}
		if strings.Contains(c.err.Error(), string(other)) {
			t.Errorf("%v tells who won", c.err)
		}
	}
	if errors.Is(ErrUnknown, ErrUnavailable) || errors.Is(ErrUnavailable, ErrUnknown) {
		t.Error(`"don't know" and "busy" are the same`)
	}
}

func TestRoles(t *testing.T) {
	for _, r := range []Role{Viewer, Dispatcher, Admin} {
		if ParseRole(r.String()) != r {
			t.Errorf("%s is not read back", r)
		}
	}
	if Viewer >= Dispatcher || Dispatcher >= Admin {
		t.Error("a role does not include the ones before it")
	}
	for _, name := range []string{"", "root", "Admin", "viewer "} {
		if r := ParseRole(name); r >= Viewer {
			t.Errorf("%q is %v, may do something", name, r)
		}
	}
	if s := Role(0).String(); s != "" {
		t.Errorf("no role is called %q", s)
	}
}

func TestSuspend(t *testing.T) {
	now := time.Now()
	var v Driver
	if err := v.Suspend(now, now); !errors.Is(err, ErrSuspensionInPast) || v.SuspendedUntil != nil {
		t.Errorf("until now: %v, %v", err, v.SuspendedUntil)
	}
	if err := v.Suspend(now.Add(time.Microsecond), now); err != nil || v.SuspendedUntil == nil {
		t.Errorf("until later: %v", err)
	}
	if v.Reinstate(); v.SuspendedUntil != nil {
		t.Error("still suspended")
	}
}

package dispatch_test

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	. "firsttap/dispatch"
)

var (
	noon   = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	me     = NewDriverID(noon)
	other  = NewDriverID(noon)
	myCLM  = NewClaimID(noon)
	oldCLM = NewClaimID(noon)
)

var eventForm = regexp.MustCompile(`\Aevt_[0-9a-v]{26}\z`)

func someTerms() Terms {
	return Terms{
		Region: "seoul", VehicleClass: "scissor", MinWorkingHeightM: new(20.0), Site: Site{Address: "1 Sejong-daero"},
		WorkStartsAt: noon.Add(time.Hour), WorkEndsAt: noon.Add(2 * time.Hour),
		Fee: Money{Amount: 350000, Currency: "KRW"},
	}
}

// inState returns a dispatch in its second round, which opened a minute before noon for ten minutes. In states with a claim,
// holder has it.
func inState(s Status, holder DriverID) Dispatch {
	d := Dispatch{
		ID: NewID(noon), Terms: someTerms(), Round: 2, Version: 7, Status: s,
		Window:    Window{OpensAt: noon.Add(-time.Minute), ExpiresAt: noon.Add(9 * time.Minute)},
		CreatedAt: noon.Add(-time.Hour), UpdatedAt: noon.Add(-time.Minute),
	}
	switch s {
	case Scheduled:
		d.OpensAt, d.ExpiresAt = noon.Add(time.Minute), noon.Add(11*time.Minute)
	case Expired:
		d.OpensAt, d.ExpiresAt = noon.Add(-11*time.Minute), noon.Add(-time.Minute)
	}
	if holder != "" {
		d.Claim = &Claim{ID: oldCLM, Driver: holder, Round: 2, AcceptedAt: noon.Add(-time.Second)}
	}
	return d
}

// fit returns a driver who is eligible for someTerms.
func fit(id DriverID) Candidate {
	return Candidate{Driver: Driver{
		ID: id, Regions: []string{"busan", "seoul"}, VehicleClass: "scissor", WorkingHeightM: new(20.0), OnDuty: true,
	}}
}

func TestAcceptGivesTheDispatch(t *testing.T) {
	for _, round := range []int{0, 2} {
		d := inState(Pending, "")
		events, err := d.Accept(fit(me), round, myCLM, noon)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		want := inState(Accepted, "")
		want.ID, want.Version, want.UpdatedAt = d.ID, 8, noon
		want.Claim = &Claim{ID: myCLM, Driver: me, Round: 2, AcceptedAt: noon}
		if !reflect.DeepEqual(d, want) {
			t.Errorf("round %d:\n got %+v\nwant %+v", round, d, want)
		}
		mustBeEvents(t, events, Event{
			Type: EventAccepted, Dispatch: d.ID, Round: 2, Driver: me, Actor: string(me), At: noon,
		})
	}
}

// TestAcceptAsksInOrder lists the reasons for refusing a tap. Each case also has all reasons that come later in the order, so
// that the test fails if a check moves.
func TestAcceptAsksInOrder(t *testing.T) {
	unfit := Candidate{Driver: Driver{ID: me}, Busy: true, HadIt: true}
	busy := fit(me)
	busy.Busy = true
	gaveBack, gaveBackAndBusy := fit(me), busy
	gaveBack.HadIt, gaveBackAndBusy.HadIt = true, true
	all := []IneligibleReason{OffDuty, WrongRegion, WrongVehicleClass, TooLow}

	for name, c := range map[string]struct {
		d     Dispatch
		who   Candidate
		round int
		want  error // nil: it is given; errReplay: it is mine already
	}{
		"canceled":                          {inState(Canceled, ""), unfit, 1, ErrCanceled},
		"canceled, was mine":                {inState(Canceled, me), fit(me), 2, ErrCanceled},
		"canceled, was taken by another":    {inState(Canceled, other), unfit, 1, ErrCanceled},
		"taken":                             {inState(Accepted, other), fit(me), 2, ErrAlreadyTaken},
		"taken, tap names no round":         {inState(Accepted, other), fit(me), 0, ErrAlreadyTaken},
		"taken, stale, unfit":               {inState(Accepted, other), unfit, 1, ErrAlreadyTaken},
		"taken, future round":               {inState(Accepted, other), fit(me), 3, ErrAlreadyTaken},
		"taken and under way":               {inState(InProgress, other), fit(me), 2, ErrAlreadyTaken},
		"taken and done":                    {inState(Completed, other), unfit, 1, ErrAlreadyTaken},
		"mine":                              {inState(Accepted, me), fit(me), 2, errReplay},
		"mine, no round":                    {inState(Accepted, me), fit(me), 0, errReplay},
		"mine, off duty and busy by now":    {inState(Accepted, me), unfit, 2, errReplay},
		"mine, given back before, no round": {inState(Accepted, me), gaveBack, 0, errReplay},
		"mine, begun":                       {inState(InProgress, me), fit(me), 2, errReplay},
		"mine, done":                        {inState(Completed, me), fit(me), 2, errReplay},
		"mine, earlier round":               {inState(Accepted, me), fit(me), 1, ErrOfferStale},
		"mine, later round":                 {inState(Accepted, me), fit(me), 3, ErrOfferStale},
		"mine, done, earlier round":         {inState(Completed, me), fit(me), 1, ErrOfferStale},
		"expired":                           {inState(Expired, ""), fit(me), 2, ErrExpired},
		"expired, stale, unfit":             {inState(Expired, ""), unfit, 1, ErrExpired},
		"expired, given back, no round":     {inState(Expired, ""), gaveBack, 0, ErrExpired},
		"earlier round":                     {inState(Pending, ""), fit(me), 1, ErrOfferStale},
		"later round":                       {inState(Pending, ""), fit(me), 3, ErrOfferStale},
		"negative round":                    {inState(Pending, ""), fit(me), -1, ErrOfferStale},
		"earlier round, unfit":              {inState(Pending, ""), unfit, 1, ErrOfferStale},
		"given back, no round":              {inState(Pending, ""), gaveBack, 0, ErrOfferStale},
		"given back, no round, unfit":       {inState(Pending, ""), unfit, 0, ErrOfferStale},
		"given back, this round":            {inState(Pending, ""), gaveBack, 2, nil},
		"given back, this round, busy":      {inState(Pending, ""), gaveBackAndBusy, 2, ErrDriverBusy},
		"not open, stale":                   {inState(Scheduled, ""), unfit, 1, ErrOfferStale},
		"not open, unfit":                   {inState(Scheduled, ""), unfit, 2, &NotOpenYetError{OpensAt: noon.Add(time.Minute)}},
		"not open, no round":                {inState(Scheduled, ""), fit(me), 0, &NotOpenYetError{OpensAt: noon.Add(time.Minute)}},
		"unfit and busy":                    {inState(Pending, ""), unfit, 2, &NotEligibleError{Reasons: all}},
		"busy":                              {inState(Pending, ""), busy, 2, ErrDriverBusy},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.d
			claimBefore := copyOf(c.d.Claim)
			events, err := c.d.Accept(c.who, c.round, myCLM, noon)
			if c.want == nil {
				if err != nil || len(events) != 1 || !c.d.HeldBy(me) {
					t.Fatalf("got %v, %v; want it given", events, err)
				}
				return
			}
			if replayed := errors.Is(c.want, errReplay) && err == nil; !replayed && !sameRefusal(err, c.want) {
				t.Fatalf("got %#v, want %#v", err, c.want)
			}
			if len(events) != 0 {
				t.Errorf("events of what did not happen: %v", events)
			}
			if !reflect.DeepEqual(c.d, before) || !reflect.DeepEqual(c.d.Claim, claimBefore) {
				t.Errorf("changed:\n from %+v\n   to %+v", before, c.d)
			}
		})
	}
}

var errReplay = errors.New("no event and no error")

// sameRefusal compares errors with their fields.
func sameRefusal(got, want error) bool {
	var taken *TakenError
	if errors.Is(got, ErrAlreadyTaken) && (!errors.As(got, &taken) || !taken.Final) {
		return false // the rule sees what was committed
	}
	return errors.Is(got, want) || reflect.DeepEqual(got, want)
}

func TestNewDispatchIsInItsFirstRound(t *testing.T) {
	window := Window{OpensAt: noon, ExpiresAt: noon.Add(DefaultWindow)}
	for name, c := range map[string]struct {
		now  time.Time
		want Status
	}{
		"opens now": {noon, Pending}, "opens later": {noon.Add(-time.Microsecond), Scheduled}, "too late": {noon.Add(DefaultWindow), Expired},
	} {
		id := NewID(noon)
		d, events := New(id, "A-1", someTerms(), window, "key_1", c.now)
		want := Dispatch{
			ID: id, ExternalID: "A-1", Terms: someTerms(), Window: window, Status: c.want,
			Round: 1, Version: 1, CreatedAt: c.now, UpdatedAt: c.now,
		}
		if !reflect.DeepEqual(d, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, d, want)
		}
		mustBeEvents(t, events, Event{Type: EventCreated, Dispatch: id, Round: 1, Actor: "key_1", At: c.now})
	}
}

// mustBeEvents compares events without their identifiers, which must be distinct and in order.
func mustBeEvents(t *testing.T, got []Event, want ...Event) {
	t.Helper()
	got = slices.Clone(got)
	var last EventID
	for i := range got {
		if id := got[i].ID; !eventForm.MatchString(string(id)) || id <= last {
			t.Errorf("event's identifier %q, after %q", id, last)
		}
		last, got[i].ID = got[i].ID, ""
	}
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("events:\n got %+v\nwant %+v", got, want)
	}
}

func copyOf(c *Claim) *Claim {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

package dispatch_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	. "firsttap/dispatch"
)

// state is a row of the table: a status and the holder in it.
type state struct {
	Status
	holder DriverID
}

// The rows. A dispatch can be canceled with and without a claim.
var (
	scheduled  = state{Scheduled, ""}
	pending    = state{Pending, ""}
	accepted   = state{Accepted, me}
	inProgress = state{InProgress, me}
	completed  = state{Completed, me}
	canceled   = state{Canceled, ""}
	canceledBy = state{Canceled, me}
	expired    = state{Expired, ""}
	states     = []state{scheduled, pending, accepted, inProgress, completed, canceled, canceledBy, expired}
)

// outcome is an action's result: an error, no change, or a new status.
type outcome struct {
	refused error
	to      Status
	round   int // how much it moves
	events  []EventType
	same    bool // nothing of the dispatch moves
}

func refused(err error) outcome { return outcome{refused: err} }
func moves(to Status, events ...EventType) outcome {
	return outcome{to: to, events: events}
}
func nextRound(to Status, events ...EventType) outcome {
	return outcome{to: to, round: 1, events: events}
}

// byHolder are the outcomes of what only a holder may do: without a holder it is refused.
func byHolder(held map[state]outcome) map[state]outcome {
	for _, s := range []state{scheduled, pending, canceled, expired} {
		held[s] = refused(ErrNotHolder)
	}
	return held
}

var nothing = outcome{}

type action struct {
	name string
	do   func(*Dispatch) ([]Event, error)
	want map[state]outcome // states not listed are refused with otherwise
	// otherwise is the outcome in states that are not listed; nil means the status itself, as a StateError.
	otherwise error
}

var actions = []action{
	{
		name: "accept by a free driver",
		do:   func(d *Dispatch) ([]Event, error) { return d.Accept(fit(other), 2, myCLM, noon) },
		want: map[state]outcome{
			pending:   moves(Accepted, EventAccepted),
			scheduled: refused(ErrNotOpenYet), expired: refused(ErrExpired),
			canceled: refused(ErrCanceled), canceledBy: refused(ErrCanceled),
		},
		otherwise: ErrAlreadyTaken,
	},
	{
		name: "accept by the holder",
		do:   func(d *Dispatch) ([]Event, error) { return d.Accept(fit(me), 2, myCLM, noon) },
		want: map[state]outcome{
			pending: moves(Accepted, EventAccepted), accepted: nothing, inProgress: nothing, completed: nothing,
			scheduled: refused(ErrNotOpenYet), expired: refused(ErrExpired),
			canceled: refused(ErrCanceled), canceledBy: refused(ErrCanceled),
		},
	},
	{
		name: "withdraw by the holder",
		do:   func(d *Dispatch) ([]Event, error) { return d.Withdraw(me, "ILL", noon) },
		want: byHolder(map[state]outcome{accepted: nextRound(Pending, EventWithdrawn, EventReopened)}),
	},
	{
		name: "start by the holder",
		do:   func(d *Dispatch) ([]Event, error) { return d.Start(Driver{ID: me}, noon) },
		want: byHolder(map[state]outcome{accepted: moves(InProgress, EventStarted), inProgress: nothing}),
	},
	{
		name: "start by the holder, suspended",
		do:   func(d *Dispatch) ([]Event, error) { return d.Start(Driver{ID: me, SuspendedUntil: &Forever}, noon) },
		want: byHolder(map[state]outcome{accepted: refused(ErrNotEligible), inProgress: nothing}),
	},
	{
		name: "start by the holder, suspended until now",
		do:   func(d *Dispatch) ([]Event, error) { return d.Start(Driver{ID: me, SuspendedUntil: &noon}, noon) },
		want: byHolder(map[state]outcome{accepted: moves(InProgress, EventStarted), inProgress: nothing}),
	},
	{
		name: "complete by the holder",
		do:   func(d *Dispatch) ([]Event, error) { return d.Complete(me, noon) },
		want: byHolder(map[state]outcome{inProgress: moves(Completed, EventCompleted), completed: nothing}),
	},
	{
		name: "cancel", do: func(d *Dispatch) ([]Event, error) { return d.Cancel(7, "key_1", "RAIN", noon) },
		want: map[state]outcome{
			scheduled: moves(Canceled, EventCanceled), pending: moves(Canceled, EventCanceled),
			accepted: moves(Canceled, EventCanceled), inProgress: moves(Canceled, EventCanceled),
		},
	},
	{
		name: "announce again", do: func(d *Dispatch) ([]Event, error) { return d.Reannounce(2, noon) },
		want: map[state]outcome{
			pending: {to: Pending, events: []EventType{EventOpened}, same: true}, scheduled: refused(ErrNotOpenYet), accepted: nothing,
			inProgress: nothing, completed: nothing, canceled: nothing, canceledBy: nothing, expired: nothing,
		},
	},
	{name: "withdraw by another", do: func(d *Dispatch) ([]Event, error) { return d.Withdraw(other, "", noon) }, otherwise: ErrNotHolder},
	{name: "start by another", do: func(d *Dispatch) ([]Event, error) { return d.Start(Driver{ID: other}, noon) }, otherwise: ErrNotHolder},
	{name: "complete by another", do: func(d *Dispatch) ([]Event, error) { return d.Complete(other, noon) }, otherwise: ErrNotHolder},
	{name: "cancel an older version", do: func(d *Dispatch) ([]Event, error) { return d.Cancel(6, "key_1", "", noon) }, otherwise: ErrVersionConflict},
	{name: "cancel a newer version", do: func(d *Dispatch) ([]Event, error) { return d.Cancel(8, "key_1", "", noon) }, otherwise: ErrVersionConflict},
}

// TestEveryActionFromEveryState is the whole table of the contract's first section.
func TestEveryActionFromEveryState(t *testing.T) {
	fromEveryState(t, actions)
}

func fromEveryState(t *testing.T, actions []action) {
	for _, a := range actions {
		for _, from := range states {
			name := fmt.Sprintf("%s/%s held by %q", a.name, from.Status, from.holder)
			t.Run(name, func(t *testing.T) { a.check(t, from) })
		}
	}
}

func (a action) check(t *testing.T, from state) {
	want, listed := a.want[from]
	switch {
	case !listed && a.otherwise != nil:
		want = refused(a.otherwise)
	case !listed:
		want = refused(&StateError{Status: from.Status})
	}
	d := inState(from.Status, from.holder)
	before, claim := d, copyOf(d.Claim)
	events, err := a.do(&d)

	if want.refused != nil {
		if state := (*StateError)(nil); errors.As(want.refused, &state) && !reflect.DeepEqual(err, want.refused) ||
			!errors.Is(err, want.refused) && !errors.As(want.refused, &state) {
			t.Fatalf("got %#v, want %#v", err, want.refused)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if want.to == "" {
		if len(events) > 0 || !reflect.DeepEqual(d, before) || !reflect.DeepEqual(d.Claim, claim) {
			t.Errorf("changed something: %+v, %+v", events, d)
		}
		return
	}
	if d.Status != want.to || d.Round != before.Round+want.round {
		t.Errorf("now %s in round %d, want %s in %d", d.Status, d.Round, want.to, before.Round+want.round)
	}
	if moved := d.Version == before.Version+1; moved == want.same || !d.UpdatedAt.Equal(noon) {
		t.Errorf("version %d at %s: a change moves both, and an announcement only the time", d.Version, d.UpdatedAt)
	}
	if before.UpdatedAt = noon; want.same && !reflect.DeepEqual(d, before) {
		t.Errorf("changed to %+v", d)
	}
	if d.Status == Canceled && !reflect.DeepEqual(d.Claim, claim) {
		t.Errorf("canceled with claim %v, want %v", d.Claim, claim)
	}
	if held := d.Status == Accepted || d.Status == InProgress || d.Status == Completed; held && d.Claim == nil ||
		!held && d.Status != Canceled && d.Claim != nil {
		t.Errorf("%s with claim %v", d.Status, d.Claim)
	}
	var types []EventType
	for _, e := range events {
		types = append(types, e.Type)
		if e.Dispatch != d.ID {
			t.Errorf("%s is about %s", e.Type, e.Dispatch)
		}
	}
	if !reflect.DeepEqual(types, want.events) {
		t.Errorf("events %v, want %v", types, want.events)
	}
}

func TestWithdrawOpensTheNextRoundForAsLong(t *testing.T) {
	d := inState(Accepted, me)
	d.OpensAt, d.ExpiresAt = noon.Add(-time.Hour), noon.Add(-time.Hour+7*time.Minute)
	events, err := d.Withdraw(me, "ILL", noon)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Window{OpensAt: noon, ExpiresAt: noon.Add(7 * time.Minute)}); d.Window != want {
		t.Errorf("window %v, want %v", d.Window, want)
	}
	// The withdrawal is in the round that ends, and the reopening in the next, which has no claim.
	mustBeEvents(t, events,
		Event{Type: EventWithdrawn, Dispatch: d.ID, Round: 2, Driver: me, Actor: string(me), ReasonCode: "ILL", At: noon},
		Event{Type: EventReopened, Dispatch: d.ID, Round: 3, Actor: System, At: noon.Add(time.Microsecond)})

	if _, err := d.Accept(fit(other), 2, myCLM, noon); !errors.Is(err, ErrOfferStale) {
		t.Errorf("a tap of the round before: %v", err)
	}
	late := fit(me)
	late.HadIt = true
	if _, err := d.Accept(late, 0, myCLM, noon); !errors.Is(err, ErrOfferStale) {
		t.Errorf("the withdrawn claim's late retry: %v", err)
	}
	if _, err := d.Accept(fit(other), 3, myCLM, noon); err != nil || d.Claim.Round != 3 {
		t.Errorf("a tap of the new round: %v, %+v", err, d.Claim)
	}
	if _, err := d.Withdraw(me, "", noon); !errors.Is(err, ErrNotHolder) {
		t.Errorf("the stale holder withdraws from the dispatch of another: %v", err)
	}
}

func TestEventsNameActorAndClaim(t *testing.T) {
	step := func(s Status, holder DriverID, do func(*Dispatch) ([]Event, error), want Event) {
		t.Helper()
		d := inState(s, holder)
		events, err := do(&d)
		if err != nil {
			t.Fatal(err)
		}
		want.Dispatch, want.Round, want.At = d.ID, 2, noon
		mustBeEvents(t, events, want)
	}
	step(Accepted, me, func(d *Dispatch) ([]Event, error) { return d.Start(Driver{ID: me}, noon) },
		Event{Type: EventStarted, Driver: me, Actor: string(me)})
	step(InProgress, me, func(d *Dispatch) ([]Event, error) { return d.Complete(me, noon) },
		Event{Type: EventCompleted, Driver: me, Actor: string(me)})
	step(Accepted, me, func(d *Dispatch) ([]Event, error) { return d.Cancel(7, "key_9", "RAIN", noon) },
		Event{Type: EventCanceled, Driver: me, Actor: "key_9", ReasonCode: "RAIN"})
	step(Pending, "", func(d *Dispatch) ([]Event, error) { return d.Cancel(7, "key_9", "", noon) },
		Event{Type: EventCanceled, Actor: "key_9"})
	step(Pending, "", func(d *Dispatch) ([]Event, error) { return d.Reannounce(0, noon) },
		Event{Type: EventOpened, Actor: System, ReasonCode: ReasonClaimFailed})
}

func TestReannounceIsForItsRoundOnly(t *testing.T) {
	for round, want := range map[int]int{0: 1, 1: 0, 2: 1, 3: 0} {
		d := inState(Pending, "")
		if events, err := d.Reannounce(round, noon); len(events) != want || err != nil {
			t.Errorf("round %d: %v, %v, want %d events", round, events, err, want)
		}
		if d.Version != 7 {
			t.Errorf("round %d: version %d, though nothing has changed", round, d.Version)
		}
	}
}

package service

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

type workStep func(ctx context.Context, by dispatch.DriverID, id dispatch.ID, round int) (dispatch.Dispatch, error)

// mustReach fails the test unless the driver's step brings the dispatch to the status.
func (do workStep) mustReach(t *testing.T, by dispatch.DriverID, id dispatch.ID, status dispatch.Status) {
	t.Helper()
	if d, err := do(t.Context(), by, id, 0); err != nil || d.Status != status {
		t.Errorf("%s, %v, want %s", d.Status, err, status)
	}
}

func (do workStep) mustFail(t *testing.T, by dispatch.DriverID, id dispatch.ID, want error) {
	t.Helper()
	mustBe(t, errorOf(do(t.Context(), by, id, 0)), want)
}

func TestWithdraw(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(3)
	far := s.drivers(1, elsewhere)[0]
	withdraw := func(by dispatch.DriverID) (dispatch.Dispatch, error) {
		return s.work.Withdraw(t.Context(), by, id, 0, "ILL")
	}
	s.mustWin(t, Tap{id, v[0], 1})
	mustBe(t, errorOf(withdraw(v[1])), dispatch.ErrNotHolder)
	mustBe(t, errorOf(withdraw(far)), dispatch.ErrNotFound)
	mustBe(t, errorOf(withdraw(dispatch.NewDriverID(time.Now()))), dispatch.ErrDriverNotFound)
	for range 3 { // a client retries after a lost answer
		d, err := withdraw(v[0])
		if err != nil || d.Status != dispatch.Pending || d.Round != 2 || d.Claim != nil {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	s.mustCount(1, "events WHERE dispatch_id = ? AND type = 'dispatch.withdrawn'", id)
	s.mustWin(t, Tap{id, v[1], 2})
	if d, err := withdraw(v[0]); err != nil || d.Round != 2 || !d.HeldBy(v[1]) {
		t.Errorf("the late retry, when another has it: %+v, %v", d, err)
	}
	must(t, errorOf(s.work.Start(t.Context(), v[1], id, 0)))
	mustBe(t, errorOf(withdraw(v[1])), dispatch.ErrInvalidState)                                                    // once it is begun
	mustBe(t, errorOf(s.work.Withdraw(t.Context(), v[0], dispatch.NewID(time.Now()), 0, "")), dispatch.ErrNotFound) // of no dispatch
}

// TestSuspendedDriver: by the database's clock, a suspended driver cannot start work and has no offers, but can complete work
// and withdraw.
func TestSuspendedDriver(t *testing.T) {
	s := newSite(t)
	begun, taken, day := s.dispatch(), s.dispatch(), (24 * time.Hour).Microseconds()
	s.exec("UPDATE dispatches SET work_starts_at = work_starts_at + ?, work_ends_at = work_ends_at + ? WHERE id = ?", day, day, taken) // two that one driver can do
	me := s.drivers(1)[0]
	s.mustWin(t, Tap{begun, me, 1})
	s.mustWin(t, Tap{taken, me, 1})
	start, complete := workStep(s.work.Start), workStep(s.work.Complete)
	start.mustReach(t, me, begun, dispatch.InProgress)
	suspend := func(do func(v *dispatch.Driver, now time.Time) error) {
		t.Helper()
		must(t, errorOf(s.ChangeDriver(t.Context(), me, dispatch.DriverChange{Action: dispatch.AuditDriverSuspend, Apply: do})))
	}
	suspend(func(v *dispatch.Driver, now time.Time) error { return v.Suspend(dispatch.Forever, now) })
	var unfit *dispatch.NotEligibleError
	if _, err := s.work.Start(t.Context(), me, taken, 0); !errors.As(err, &unfit) || !slices.Equal(unfit.Reasons, []dispatch.IneligibleReason{dispatch.Suspended}) {
		t.Errorf("start: %v", err)
	}
	s.mustCount(1, "dispatches WHERE id = ? AND status = 'ACCEPTED'", taken)
	start.mustReach(t, me, begun, dispatch.InProgress) // the repeated start of begun work
	if _, err := s.Accept(t.Context(), Tap{s.dispatch(), me, 1}); !errors.As(err, &unfit) {
		t.Errorf("accept: %v", err)
	}
	if offers, _, err := s.work.Offers(t.Context(), me, dispatch.Page{Limit: 10}); err != nil || len(offers) != 0 {
		t.Errorf("%d offers, %v", len(offers), err)
	}
	complete.mustReach(t, me, begun, dispatch.Completed)
	suspend(func(v *dispatch.Driver, _ time.Time) error { v.Reinstate(); return nil })
	start.mustReach(t, me, taken, dispatch.InProgress) // reinstated
	given := s.dispatch()
	s.mustWin(t, Tap{given, me, 1})
	suspend(func(v *dispatch.Driver, now time.Time) error { return v.Suspend(dispatch.Forever, now) })
	for range 2 { // a client retries after a lost answer
		if d, err := s.work.Withdraw(t.Context(), me, given, 0, ""); err != nil || d.Round != 2 {
			t.Errorf("withdraw: round %d, %v", d.Round, err)
		}
	}
	s.exec("UPDATE drivers SET suspended_until = 1 WHERE id = ?", me)
	s.mustWin(t, Tap{given, me, 2})
	start.mustReach(t, me, given, dispatch.InProgress) // when the suspension is over
}

func TestStartAndComplete(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(2)
	far := s.drivers(1, func(v *dispatch.Driver) { v.VehicleClass = "28m" })[0]
	start, complete := workStep(s.work.Start), workStep(s.work.Complete)
	start.mustFail(t, v[0], id, dispatch.ErrNotHolder)
	s.mustWin(t, Tap{id, v[0], 1})
	complete.mustFail(t, v[0], id, dispatch.ErrInvalidState)
	start.mustFail(t, v[1], id, dispatch.ErrNotHolder)
	start.mustFail(t, far, id, dispatch.ErrNotFound)
	start.mustReach(t, v[0], id, dispatch.InProgress)
	start.mustReach(t, v[0], id, dispatch.InProgress)
	complete.mustFail(t, v[1], id, dispatch.ErrNotHolder)
	complete.mustReach(t, v[0], id, dispatch.Completed)
	complete.mustReach(t, v[0], id, dispatch.Completed)
	start.mustFail(t, v[0], id, dispatch.ErrInvalidState)
	for _, event := range []dispatch.EventType{dispatch.EventStarted, dispatch.EventCompleted, dispatch.EventAccepted} {
		s.mustCount(1, "events WHERE type = ? AND next_at IS NOT NULL", event)
	}
}

// TestLateStepOfAnEarlierRound: a request that names its round changes nothing in a later one, which the same driver has won.
func TestLateStepOfAnEarlierRound(t *testing.T) {
	s := newSite(t)
	id, me := s.dispatch(), s.drivers(1)[0]
	s.mustWin(t, Tap{id, me, 1})
	must(t, errorOf(s.work.Withdraw(t.Context(), me, id, 1, "")))
	s.mustWin(t, Tap{id, me, 2})
	mustBe(t, errorOf(s.work.Start(t.Context(), me, id, 1)), dispatch.ErrOfferStale)
	s.mustCount(1, "dispatches WHERE id = ? AND status = 'ACCEPTED'", id)
	must(t, errorOf(s.work.Start(t.Context(), me, id, 2)))
	mustBe(t, errorOf(s.work.Complete(t.Context(), me, id, 1)), dispatch.ErrOfferStale)
	must(t, errorOf(s.work.Complete(t.Context(), me, id, 2)))
}

func TestSeeAndReceipt(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(2)
	far := s.drivers(1, elsewhere)[0]
	off := s.drivers(1, onDuty(false), suspended)[0]
	outcome := func(v dispatch.DriverID, want dispatch.Outcome) {
		t.Helper()
		if r, err := s.work.Receipt(t.Context(), v, id); err != nil || r.Outcome != want {
			t.Errorf("%+v, %v; want %s", r, err, want)
		}
	}
	outcome(v[0], dispatch.OutcomePending)
	s.mustWin(t, Tap{id, v[0], 1})
	outcome(v[0], dispatch.OutcomeWon)
	s.exec("UPDATE dispatches SET accepted_at = accepted_at + 3600000000") // it stays young, however long the next line takes
	outcome(v[1], dispatch.OutcomePending)                                 // an attempt may not be stored yet
	s.exec("UPDATE dispatches SET accepted_at = accepted_at - 3602000000")
	outcome(v[1], dispatch.OutcomeNoAttempt)
	outcome(off, dispatch.OutcomeNoAttempt) // could have been offered it
	mustBe(t, errorOf(s.work.Receipt(t.Context(), far, id)), dispatch.ErrNotFound)
	mustBe(t, errorOf(s.work.Offer(t.Context(), far, id)), dispatch.ErrNotFound)
	mustBe(t, errorOf(s.work.Offer(t.Context(), v[0], dispatch.NewID(time.Now()))), dispatch.ErrNotFound)
	mustBe(t, errorOf(s.work.Offer(t.Context(), dispatch.NewDriverID(time.Now()), id)), dispatch.ErrDriverNotFound)
	must(t, errorOf(s.backoffice.Cancel(t.Context(), id, s.stored(id).Version, "key_1", "")))
	outcome(v[0], dispatch.OutcomeCanceled)
	outcome(v[1], dispatch.OutcomeCanceled)
}

func TestOffers(t *testing.T) {
	s := newSite(t)
	v := s.drivers(2)
	off, away, far := s.drivers(1, onDuty(false))[0], s.drivers(1, suspended)[0], s.drivers(1, elsewhere)[0]
	open, taken := s.dispatch(), s.dispatch()
	s.mustWin(t, Tap{taken, v[1], 1})
	for who, want := range map[dispatch.DriverID][]dispatch.ID{v[0]: {open}, off: nil, away: nil, far: {}} {
		got, next, err := s.work.Offers(t.Context(), who, dispatch.Page{Limit: 10})
		if err != nil || next != "" || len(got) != len(want) || len(got) == 1 && got[0].ID != open {
			t.Errorf("%s is offered %v, %q, %v; want %v", who, got, next, err, want)
		}
	}
	if _, _, err := s.work.Offers(t.Context(), dispatch.NewDriverID(time.Now()), dispatch.Page{Limit: 10}); !errors.Is(err, dispatch.ErrDriverNotFound) {
		t.Error(err)
	}
}

func TestCreate(t *testing.T) {
	s := newSite(t)
	now := time.Now()
	at := func(d time.Duration) *time.Time { return new(now.Add(d)) }
	for name, c := range map[string]struct {
		opens, expires *time.Time
		want           dispatch.Status // "" for dispatch.ErrWindow
		stands         time.Duration
	}{
		"nothing said":            {nil, nil, dispatch.Pending, dispatch.DefaultWindow},
		"later":                   {at(time.Hour), nil, dispatch.Scheduled, dispatch.DefaultWindow},
		"since a minute":          {at(-time.Minute), nil, dispatch.Pending, dispatch.DefaultWindow},
		"for an hour":             {nil, at(time.Hour), dispatch.Pending, 0},
		"until the work is over":  {at(2*time.Hour - 5*time.Minute), nil, dispatch.Scheduled, 0},
		"longer than the work":    {nil, at(3 * time.Hour), "", 0},
		"over already":            {at(-time.Hour), nil, "", 0},
		"ends in the past":        {nil, at(-time.Second), "", 0},
		"ends before it opens":    {at(time.Hour), at(time.Minute), "", 0},
		"ends as it opens":        {at(time.Hour), at(time.Hour), "", 0},
		"opened and ended before": {at(-time.Hour), at(-time.Minute), "", 0},
	} {
		o := anOrder()
		o.OpensAt, o.ExpiresAt = c.opens, c.expires
		before := s.count("dispatches")
		d, err := s.backoffice.Create(t.Context(), o, "key_1")
		if c.want == "" {
			if !errors.Is(err, dispatch.ErrWindow) || s.count("dispatches") != before {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
			continue
		}
		if err != nil || d.Status != c.want || d.Round != 1 || c.stands != 0 && d.ExpiresAt.Sub(d.OpensAt) != c.stands {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	o := anOrder()
	o.ExternalID = "erp-1"
	must(t, errorOf(s.backoffice.Create(t.Context(), o, "key_1")))
	mustBe(t, errorOf(s.backoffice.Create(t.Context(), o, "key_1")), dispatch.ErrDuplicateExternalID)
}

// TestCancelOpensNothing: taps after a cancellation get ErrCanceled, not ErrAlreadyTaken.
func TestCancelOpensNothing(t *testing.T) {
	s := newSite(t)
	id, v := s.dispatch(), s.drivers(2)
	s.mustWin(t, Tap{id, v[0], 1})
	for _, version := range []int{0, 1, 3} {
		mustBe(t, errorOf(s.backoffice.Cancel(t.Context(), id, version, "key_1", "")), dispatch.ErrVersionConflict)
	}
	if d, err := s.backoffice.Cancel(t.Context(), id, 2, "key_1", "RAIN"); err != nil || d.Status != dispatch.Canceled {
		t.Fatal(err)
	}
	for _, tap := range []Tap{{id, v[0], 1}, {id, v[1], 1}, {id, v[1], noRound}} {
		s.mustFail(t, tap, dispatch.ErrCanceled)
	}
	mustBe(t, errorOf(s.backoffice.Cancel(t.Context(), id, 3, "key_1", "")), dispatch.ErrInvalidState) // twice
}

// TestEndsOnce: of a concurrent withdrawal, cancellation and start one succeeds.
func TestEndsOnce(t *testing.T) {
	s := newSite(t)
	for range 20 {
		id, v := s.dispatch(), s.drivers(1)[0]
		s.mustWin(t, Tap{id, v, 1})
		errs := make([]error, 3)
		testkit.Together(3, func(i int) {
			switch i {
			case 0:
				_, errs[i] = s.work.Withdraw(t.Context(), v, id, 0, "")
			case 1:
				_, errs[i] = s.backoffice.Cancel(t.Context(), id, 2, "key_1", "")
			case 2:
				_, errs[i] = s.work.Start(t.Context(), v, id, 0)
			}
		})
		refused := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
		if len(refused) != 2 {
			t.Errorf("%d of three were refused: %v", len(refused), errs)
		}
	}
}

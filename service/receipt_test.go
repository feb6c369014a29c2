package service

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// race is the storage of a dispatch that bob has, with ann's attempts, in memory, for tests with a fake clock.
type race struct {
	DriverServiceStore
	DriverOffers
	o    dispatch.Offered
	mu   sync.Mutex
	taps []dispatch.Attempt
}

func newRace(decided time.Time) *race {
	r := &race{o: dispatch.Offered{Dispatch: newRow().d, Contact: dispatch.OfferHistory{Driver: ann, Round: 1}}}
	r.o.Status, r.o.Claim = dispatch.Accepted, &dispatch.Claim{Driver: bob, Round: 1, AcceptedAt: decided}
	return r
}

func (r *race) Driver(context.Context, dispatch.DriverID) (dispatch.Driver, error) {
	return dispatch.Driver{ID: ann, Regions: []string{"seoul"}, VehicleClass: "45m"}, nil
}

func (r *race) OfferTo(context.Context, dispatch.ID, dispatch.DriverID) (dispatch.Offered, error) {
	return r.o, nil
}

func (r *race) ClaimOf(context.Context, dispatch.ID, dispatch.DriverID, int) (*dispatch.PastClaim, error) {
	return nil, nil
}

func (r *race) RaceStanding(context.Context, dispatch.ID, int, dispatch.DriverID, dispatch.DriverID) (dispatch.RaceStanding, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return dispatch.RaceStanding{Tapped: len(r.taps) > 0, Now: time.Now()}, nil
}

func (r *race) AddAttempts(_ context.Context, taps []dispatch.Attempt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taps = append(r.taps, taps...)
	return nil
}

// TestReceiptOfATapElsewhere: a driver who asks one instance right after a tap at another is never told that they did not tap,
// however long ago the dispatch was taken, and whether or not they had declined before.
func TestReceiptOfATapElsewhere(t *testing.T) {
	const long, young = time.Hour, time.Second
	for name, c := range map[string]struct {
		decided          time.Duration // ago
		declined, tapped bool
		patience         time.Duration      // of the client
		want             []dispatch.Outcome // of successive requests
		waits            time.Duration
	}{
		"tapped":                     {long, false, true, time.Minute, []dispatch.Outcome{dispatch.OutcomeLost}, 2 * ledgerInterval},
		"declined, then tapped":      {long, true, true, time.Minute, []dispatch.Outcome{dispatch.OutcomeLost}, 2 * ledgerInterval},
		"not tapped":                 {long, false, false, time.Minute, []dispatch.Outcome{dispatch.OutcomeNoAttempt}, 2 * ledgerInterval},
		"declined":                   {long, true, false, time.Minute, []dispatch.Outcome{dispatch.OutcomeDeclined}, 2 * ledgerInterval},
		"just now: tapped":           {young, false, true, time.Minute, []dispatch.Outcome{dispatch.OutcomePending, dispatch.OutcomeLost}, 0},
		"just now: declined, tapped": {young, true, true, time.Minute, []dispatch.Outcome{dispatch.OutcomePending, dispatch.OutcomeLost}, 0},
		"tapped, and hangs up":       {long, false, true, ledgerInterval / 2, []dispatch.Outcome{dispatch.OutcomePending, dispatch.OutcomeLost}, ledgerInterval / 2},
		"declined, tapped, hangs up": {long, true, true, ledgerInterval / 2, []dispatch.Outcome{dispatch.OutcomePending, dispatch.OutcomeLost}, ledgerInterval / 2},
		"not tapped, and hangs up":   {long, false, false, ledgerInterval, []dispatch.Outcome{dispatch.OutcomePending, dispatch.OutcomePending}, ledgerInterval},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				store := newRace(time.Now().Add(-c.decided))
				if c.declined {
					store.o.Contact.DeclinedAt = new(time.Now())
				}
				there, _ := keep(t, store)
				ledger, _ := keep(t, store)
				here := NewAcceptor(AcceptorOptions{Attempts: ledger, Log: quiet})
				work := NewDriverService(DriverServiceOptions{Store: store, Offers: store, Drivers: store, Acceptor: here, Now: time.Now})
				if c.tapped {
					there.Record(t.Context(), Tap{store.o.ID, ann, 1}, time.Now(), &dispatch.TakenError{Final: true})
				}
				var got []dispatch.Outcome
				for i := range c.want {
					ctx, cancel := context.WithTimeout(t.Context(), c.patience)
					began := time.Now()
					r, err := work.Receipt(ctx, ann, store.o.ID)
					cancel()
					if waited := time.Since(began); err != nil || r.Round != 1 || i == 0 && waited != c.waits {
						t.Errorf("%+v, %v, after %s; want it after %s", r, err, waited, c.waits)
					}
					got = append(got, r.Outcome)
					pass(ledgerInterval)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
}

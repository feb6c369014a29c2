// Package service holds the use cases: what happens, in which order, and which failures are tolerated.
package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
	"firsttap/lock"
)

// ClaimStore is the storage in which claims are decided.
type ClaimStore interface {
	// Claim calls rule with the dispatch and the driver, and commits its result if both are unchanged, or nothing. It may call
	// rule again. See dispatches.Dispatches.
	Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// Reannounce announces an open dispatch again, because a claim that had refused other drivers failed. It returns a
	// NotOpenYetError before the opening, and an AnnouncedRecentlyError within quiet of the last announcement.
	Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error)
	// Holders returns the current holder of each dispatch, in one statement. A dispatch that does not exist is left out.
	Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.CurrentHolder, error)
}

// Gate sheds load between instances; see lock.Gate.
type Gate interface {
	Obtain(ctx context.Context, name, owner string, ttl time.Duration) (*lock.GateLease, error)
	Owner(ctx context.Context, name string) (string, error)
	Release(ctx context.Context, name, owner string) error
}

const (
	// decideTimeout is the default of AcceptorOptions.Timeout. The holder of a row's lock commits within milliseconds or is stuck.
	decideTimeout = 2 * time.Second
	// sidelinedSlots bounds the decisions about sidelined drivers at a time, so that connections are left for other claims.
	sidelinedSlots = 2
)

// Tap is one driver's tap on Accept.
type Tap struct {
	Dispatch dispatch.ID
	Driver   dispatch.DriverID
	// Round is the round of the offer that was tapped, 0 for the current one.
	Round int
}

// Acceptance is a won claim.
type Acceptance struct {
	Dispatch dispatch.Dispatch
	// Replayed says that an earlier tap made the claim.
	Replayed bool
}

// AcceptorOptions configures an Acceptor. Claims and Log are required.
type AcceptorOptions struct {
	Claims ClaimStore
	// Gate refuses taps on dispatches that another instance is deciding; nil for an instance without Redis.
	Gate Gate
	// LockTTL is how long the lock of a claim lasts if its instance dies.
	LockTTL time.Duration
	// Timeout bounds a decision with its commit, a look at the holders of dispatches, and an announcement, each by itself. 0 is 2 s.
	// If the reply to a commit is lost, the store takes some time more to find out.
	Timeout time.Duration
	// Attempts records the taps; nil records none.
	Attempts *AttemptWriter
	// Counter counts every tap; nil counts none.
	Counter Counter
	Log     *slog.Logger
}

// Acceptor decides which driver gets a dispatch.
//
// The check of decisions in flight in this process and the lock in Redis shed load: they let one tap through and refuse
// the others. The database decides. Safe for concurrent use.
type Acceptor struct {
	claims   ClaimStore
	gate     Gate // nil for none
	lockTTL  time.Duration
	timeout  time.Duration
	memory   *memory
	attempts *AttemptWriter // nil for none
	counter  Counter        // nil for none
	log      *slog.Logger
	slots    chan struct{} // for the taps of sidelined drivers
	lost     atomic.Int64
	// unverified says that the last verification of claims has failed. verify alone uses it.
	unverified bool
}

// NewAcceptor returns an Acceptor. Run must be running: it notifies refused drivers of failed claims, and verifies
// known claims.
func NewAcceptor(o AcceptorOptions) *Acceptor {
	return &Acceptor{
		claims: o.Claims, gate: o.Gate, lockTTL: o.LockTTL, timeout: cmp.Or(o.Timeout, decideTimeout), memory: newMemory(),
		attempts: o.Attempts, counter: o.Counter, log: o.Log, slots: make(chan struct{}, sidelinedSlots),
	}
}

// LostClaims counts the committed claims that this process has found missing from the database.
func (a *Acceptor) LostClaims() int64 { return a.lost.Load() }

// Accept gives the dispatch to the driver or says why not; the errors are those of dispatch.Dispatch.Accept, and
// ErrNotFound, ErrDriverNotFound, ErrUnavailable, ErrUnknown. A loser is answered at once: Accept waits only for a
// decision about its own driver, and for a slot if the driver is sidelined.
func (a *Acceptor) Accept(ctx context.Context, tap Tap) (Acceptance, error) {
	arrived := time.Now()
	won, err := a.singleFlight(ctx, tap)
	if errors.Is(err, context.Canceled) {
		return won, err // the driver hung up during the decision about an earlier tap, which counts
	}
	if a.counter != nil {
		a.counter.CountClaim(resultOf(won, err))
	}
	if err == nil {
		tap.Round = won.Dispatch.Claim.Round
	}
	a.attempts.Record(ctx, tap, arrived, err)
	return won, err
}

// singleFlight lets one tap at a time lead the decision about a round of a dispatch. The same driver's other taps get its
// result; the taps of other drivers are refused.
func (a *Acceptor) singleFlight(ctx context.Context, tap Tap) (Acceptance, error) {
	f, leads, err := a.memory.enter(tap)
	switch {
	case err != nil:
		a.count(refusedBy(err), DecisionRefused)
		return Acceptance{}, err
	case leads:
		return a.lead(ctx, tap, f)
	}
	a.count(LayerInFlight, DecisionJoined)
	select {
	case <-f.done:
		won := f.result
		won.acceptance.Replayed = won.err == nil
		return won.acceptance, won.err
	case <-ctx.Done():
		return Acceptance{}, errors.Join(dispatch.ErrUnknown, ctx.Err())
	}
}

// lead decides about the tap and ends the flight.
func (a *Acceptor) lead(ctx context.Context, tap Tap, f *flight) (Acceptance, error) {
	r := result{err: dispatch.ErrUnknown} // the result for waiting taps if this panics
	defer func() {
		if a.memory.finish(f, r) && mayBeOpen(tap.Round, r.err) {
			a.memory.follow(f.key.offer, 0, false)
		}
	}()
	// The decision goes on when the client hangs up: a canceled COMMIT would leave its outcome unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	switch {
	case f.key.alone == "":
		r.acceptance, r.err = a.claimThroughGate(ctx, tap)
	case a.memory.hasWon(tap):
		r.acceptance, r.err = a.claim(ctx, tap, dispatch.NewClaimID(time.Now()), LayerDatabase, nil)
	default:
		r.acceptance, r.err = a.claimSidelined(ctx, tap)
	}
	return r.acceptance, r.err
}

// claimSidelined lets the database decide about a sidelined driver's tap, without the lock, when a slot is free.
func (a *Acceptor) claimSidelined(ctx context.Context, tap Tap) (Acceptance, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		a.count(LayerSidelined, DecisionFailed)
		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, ctx.Err())
	}
	if err := a.memory.refuse(tap); err != nil { // the dispatch may have been taken while the tap waited
		a.count(LayerMemory, DecisionRefused)
		return Acceptance{}, err
	}
	return a.claim(ctx, tap, dispatch.NewClaimID(time.Now()), LayerSidelined, nil)
}

func (a *Acceptor) claimThroughGate(ctx context.Context, tap Tap) (Acceptance, error) {
	id := dispatch.NewClaimID(time.Now())
	lease, err := a.obtainLock(ctx, tap, id)
	if err != nil {
		return Acceptance{}, err
	}
	return a.claim(ctx, tap, id, LayerDatabase, lease)
}

// isTaken reports whether a decision that ended with err proves that a driver has the dispatch.
func isTaken(err error) bool { return err == nil || errors.Is(err, dispatch.ErrAlreadyTaken) }

// mayBeOpen reports whether the dispatch may still be open in that round, or in the current one for 0, after a decision
// that ended with err.
func mayBeOpen(round int, err error) bool {
	stale := round != 0 && errors.Is(err, dispatch.ErrOfferStale)
	return !isTaken(err) && !stale && !errors.Is(err, dispatch.ErrNotFound)
}

// cannotWin reports whether the tap cannot win the dispatch in this round, open or not: its round does not exist yet, or
// the driver cannot take the work.
func cannotWin(d *dispatch.Dispatch, c dispatch.Candidate, round int, now time.Time) bool {
	return round > d.Round || round == 0 && c.HadIt || c.Busy || len(c.Ineligible(d.Terms, now)) > 0
}

// claim lets the database decide, and records the outcome. lease may be nil.
func (a *Acceptor) claim(ctx context.Context, tap Tap, id dispatch.ClaimID, l Layer, lease *lock.GateLease) (Acceptance, error) {
	unwinnable := false
	d, err := a.claims.Claim(ctx, tap.Dispatch, tap.Driver,
		func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			events, err := d.Accept(c, tap.Round, id, now)
			unwinnable = !isTaken(err) && cannotWin(d, c, tap.Round, now)
			return events, err
		})
	if unwinnable && decisionOf(false, err) == DecisionRefused && a.memory.sideline(tap.Driver) {
		a.log.Info("driver sidelined after a tap that could not win; the driver's next taps no longer block other drivers",
			"driver", tap.Driver,
			"dispatch", tap.Dispatch, "round", tap.Round, "for", sidelinedFor, "error", err)
	}
	replayed := err == nil && d.Claim.ID != id
	if err == nil && !replayed {
		a.memory.restore(tap.Driver)
	}
	a.count(l, decisionOf(replayed, err))
	a.recordOutcome(ctx, tap, lease, d, err)
	if err != nil {
		return Acceptance{}, err
	}
	return Acceptance{Dispatch: d, Replayed: replayed}, nil
}

// obtainLock obtains the dispatch's lock in Redis, or returns a TakenError. If it returns neither a lease nor an error, the
// database decides without the lock.
func (a *Acceptor) obtainLock(ctx context.Context, tap Tap, id dispatch.ClaimID) (*lock.GateLease, error) {
	if a.gate == nil {
		return nil, nil
	}
	lease, err := a.gate.Obtain(ctx, lockName(tap.Dispatch), claimValue(tap, id), a.lockTTL)
	var held *lock.HeldError
	if !errors.As(err, &held) {
		return lease, nil // also after ErrUnavailable: Redis only sheds load, and may hold the lease all the same
	}
	m, ok := parseMarker(held.Owner)
	switch {
	case !ok || !m.refuses(tap) || a.memory.hasWon(tap): // the database answers a winner who taps again
		return nil, nil
	case m.committed:
		a.count(LayerMarker, DecisionRefused)
		a.memory.learn(tap.Dispatch, m.holder, false)
		a.memory.doubt(tap.Dispatch, m.holder, time.Now().Add(verifyAfter)) // the marker's age is not known
	default:
		a.count(LayerLock, DecisionRefused)
		a.memory.follow(offer{tap.Dispatch, tap.Round}, followUpRetry, false)
	}
	// The marker may have outlived its round, and a tap without a round may be on a later round, which is open.
	return nil, &dispatch.TakenError{Final: m.committed && tap.Round != 0}
}

// recordOutcome stores the outcome in memory and in Redis, which the next taps check first. After ErrUnknown it keeps the
// lock until its TTL ends, because the claim may be committed.
func (a *Acceptor) recordOutcome(ctx context.Context, tap Tap, lease *lock.GateLease, d dispatch.Dispatch, decided error) {
	var err error
	if decisionOf(false, decided) == DecisionFailed {
		a.memory.doubtAll() // after a failover the next primary may lack claims
	}
	switch {
	case isTaken(decided):
		taken := holder{d.Claim.Driver, d.Round}
		a.memory.learn(tap.Dispatch, taken, true)
		if lease != nil {
			err = lease.Replace(ctx, takenValue(taken.driver, taken.round), markerTTL)
		}
	case errors.Is(decided, dispatch.ErrUnknown):
		a.memory.follow(offer{tap.Dispatch, tap.Round}, a.lockTTL, false)
	case lease != nil:
		err = lease.Release(ctx)
	}
	if err != nil {
		// The lock ends by itself, and the database answers correctly without it.
		a.log.Debug("outcome of a claim not written to its lock; the lock ends by itself", "dispatch", tap.Dispatch, "error", err)
	}
}

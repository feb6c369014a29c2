// Package service holds the use cases: what happens, in which order, and what is tolerated.
package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/lock"
)

// Claims is where claims are decided.
type Claims interface {
	// Claim commits what rule decides over the dispatch and driver as they are, or nothing; see repository.Store.
	Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
		rule func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)) (dispatch.Dispatch, error)
	// Reannounce writes that a dispatch is open, for those who were turned away.
	Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (bool, error)
}

// Locks sheds load between instances; see lock.Gate.
type Locks interface {
	Obtain(ctx context.Context, name, owner string, ttl time.Duration) (*lock.Pass, error)
	Owner(ctx context.Context, name string) (string, error)
	Release(ctx context.Context, name, owner string) error
}

const (
	// decideTimeout bounds decide-and-commit. A row's holder commits within milliseconds or is stuck.
	decideTimeout = 2 * time.Second
	// markerTTL is how long losers hear that a dispatch is taken without the database being asked. Afterwards the
	// next tap asks it, and marks the dispatch again.
	markerTTL = time.Minute
)

// Tap is one driver's tap on Accept.
type Tap struct {
	Dispatch dispatch.ID
	Driver   dispatch.DriverID
	// Round is the round of the offer that was tapped, 0 for whichever is current.
	Round int
}

// Acceptance is a won claim.
type Acceptance struct {
	Dispatch dispatch.Dispatch
	// Replayed says that the claim was made by an earlier tap.
	Replayed bool
}

// Acceptor decides who gets a dispatch.
//
// The gate in this process and the lock in Redis shed load: they let one tap through and turn the others away. The
// database decides. Safe for concurrent use.
type Acceptor struct {
	claims      Claims
	locks       Locks // nil: this is the only instance, or every instance relies on the database
	lockTTL     time.Duration
	inflight    *inflight
	reannouncer *reannouncer
	verify      *verifier
	attempts    *Ledger // nil: taps are not kept
	counter     Counter
	log         *slog.Logger
	slots       chan struct{} // for the taps of drivers who are set aside
}

// NewAcceptor returns an Acceptor. locks may be nil. Run must be running for those to hear again who were turned
// away by a claim that came to nothing.
func NewAcceptor(claims Claims, locks Locks, lockTTL time.Duration, log *slog.Logger) *Acceptor {
	a := &Acceptor{
		claims: claims, locks: locks, lockTTL: lockTTL, log: log, counter: noCounter{},
		inflight: newInflight(), reannouncer: newReannouncer(claims, locks, log), slots: make(chan struct{}, sidelinedSlots),
	}
	a.verify = newVerifier(claims, locks, a.inflight, a.reannouncer, log)
	return a
}

// Keep has every tap kept in the ledger. Call it before the first.
func (a *Acceptor) Keep(l *Ledger) { a.attempts = l }

// Run tells drivers who were turned away in vain, and verifies what taps are refused by, until ctx ends.
func (a *Acceptor) Run(ctx context.Context) {
	var verifying sync.WaitGroup
	defer verifying.Wait()
	verifying.Go(func() { a.verify.run(ctx) })
	a.reannouncer.run(ctx)
}

// Accept gives the dispatch to the driver or says why not; the errors are those of dispatch.Dispatch.Accept, and
// ErrNotFound, ErrDriverNotFound, ErrUnavailable, ErrUnknown. A loser is told at once: Accept waits only for the
// driver's own decision.
func (a *Acceptor) Accept(ctx context.Context, tap Tap) (Acceptance, error) {
	arrived := time.Now()
	won, err := a.singleFlight(ctx, tap)
	a.counter.CountClaim(resultOf(won, err))
	if a.attempts == nil {
		return won, err
	}
	if err == nil {
		tap.Round = won.Dispatch.Claim.Round
	}
	a.attempts.Record(ctx, tap, arrived, err)
	return won, err
}

// flushTimeout is how long a receipt waits for the ledger.
const flushTimeout = time.Second

// written reports whether the taps that this instance has answered are in the ledger now.
func (a *Acceptor) written(ctx context.Context) bool {
	if a.attempts == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return a.attempts.Flush(ctx)
}

// writtenElsewhere waits for as long as other instances may take to write the taps that they have answered, and reports
// false where ctx ends first.
func (a *Acceptor) writtenElsewhere(ctx context.Context) bool {
	if a.attempts == nil {
		return true
	}
	select {
	case <-time.After(2 * ledgerInterval): // the longest wait for the next write, and as much again for the write itself
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *Acceptor) singleFlight(ctx context.Context, tap Tap) (Acceptance, error) {
	f, leads, err := a.inflight.enter(tap)
	switch {
	case err != nil:
		a.counter.CountDecision(inflightLayer(err), DecisionRefused)
		return Acceptance{}, err
	case leads:
		return a.lead(ctx, tap, f)
	}
	a.counter.CountDecision(LayerFlight, DecisionJoined)
	select {
	case <-f.done:
		won := f.result
		won.acceptance.Replayed = won.err == nil
		return won.acceptance, won.err
	case <-ctx.Done():
		return Acceptance{}, errors.Join(dispatch.ErrUnknown, ctx.Err())
	}
}

func (a *Acceptor) lead(ctx context.Context, tap Tap, f *flight) (Acceptance, error) {
	r := result{err: dispatch.ErrUnknown} // what those who wait are told should this panic
	defer func() {
		if a.inflight.finish(tap, f, r) && mayBeOpen(tap.Round, r.err) {
			a.reannouncer.schedule(tap, 0, f.turnedAway...)
		}
	}()
	// A driver who hangs up while the claim is being written would leave it neither made nor refused.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideTimeout)
	defer cancel()
	if f.key.sidelined != "" {
		r.acceptance, r.err = a.claimSidelined(ctx, tap)
	} else {
		r.acceptance, r.err = a.claim(ctx, tap)
	}
	return r.acceptance, r.err
}

// isTaken reports whether the dispatch is known to be somebody's after an answer of err.
func isTaken(err error) bool { return err == nil || errors.Is(err, dispatch.ErrAlreadyTaken) }

func (a *Acceptor) claim(ctx context.Context, tap Tap) (Acceptance, error) {
	id := dispatch.NewClaimID(time.Now())
	lease, err := a.obtainLock(ctx, tap, id)
	if err != nil {
		return Acceptance{}, err
	}
	return a.decide(ctx, tap, id, LayerDatabase, lease)
}

// decide has the database decide, under the lease if there is one.
func (a *Acceptor) decide(ctx context.Context, tap Tap, id dispatch.ClaimID, l Layer, lease *lock.Pass) (Acceptance, error) {
	vain := false
	d, err := a.claims.Claim(ctx, tap.Dispatch, tap.Driver,
		func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			events, err := d.Accept(c, tap.Round, id, now)
			vain = !isTaken(err) && cannotWin(d, c, tap.Round, now)
			return events, err
		})
	if vain && a.inflight.sideline(tap.Driver) {
		a.log.Info("a driver's tap could not win, and their next ones are decided aside", "driver", tap.Driver,
			"dispatch", tap.Dispatch, "round", tap.Round, "for", sidelinedFor, "error", err)
	}
	replayed := err == nil && d.Claim.ID != id
	if err == nil && !replayed {
		a.inflight.restore(tap.Driver)
	}
	a.counter.CountDecision(l, decisionOf(replayed, err))
	a.recordOutcome(ctx, tap, lease, d, err)
	if err != nil {
		return Acceptance{}, err
	}
	return Acceptance{Dispatch: d, Replayed: replayed}, nil
}

// obtainLock takes the dispatch's lock. No lease and no error means that the database is to decide without one.
func (a *Acceptor) obtainLock(ctx context.Context, tap Tap, id dispatch.ClaimID) (*lock.Pass, error) {
	if a.locks == nil {
		return nil, nil
	}
	lease, err := a.locks.Obtain(ctx, lockName(tap.Dispatch), claimValue(tap, id), a.lockTTL)
	var held *lock.HeldError
	if !errors.As(err, &held) {
		return lease, nil // also ErrUnavailable: Redis sheds load, and it may hold the lease all the same
	}
	m, ok := parseMarker(held.Owner)
	switch {
	case !ok || !m.refuses(tap):
		return nil, nil
	case m.committed:
		a.counter.CountDecision(LayerMarker, DecisionRefused)
		a.inflight.rememberMarker(tap.Dispatch, m.holder)
		a.verify.note(tap.Dispatch, m.holder, time.Now().Add(verifyAfter)) // nobody knows how old it is
		a.reannouncer.resolve(tap.Dispatch, m.round)
	default:
		a.counter.CountDecision(LayerLock, DecisionRefused)
		a.reannouncer.schedule(tap, followUpRetry)
	}
	// The marker may have outlived its round: a tap that names none may be on a later one, which nobody has.
	return nil, &dispatch.TakenError{Final: m.committed && tap.Round != 0}
}

// recordOutcome leaves the decision where the next taps look. After ErrUnknown it leaves the lock alone: the claim may have
// been made, and only the lock's end lets another driver try.
func (a *Acceptor) recordOutcome(ctx context.Context, tap Tap, lease *lock.Pass, d dispatch.Dispatch, decided error) {
	var err error
	if decisionOf(false, decided) == DecisionFailed {
		a.verify.verifyAll() // the next server to answer may not have what this one had
	}
	switch {
	case isTaken(decided):
		taken := holder{d.Claim.Driver, d.Round}
		a.inflight.rememberTaken(tap.Dispatch, taken)
		a.reannouncer.resolve(tap.Dispatch, taken.round)
		if lease != nil {
			err = lease.Replace(ctx, takenValue(taken.driver, taken.round), markerTTL)
		}
	case errors.Is(decided, dispatch.ErrUnknown):
		a.reannouncer.schedule(tap, a.lockTTL)
	case lease != nil:
		err = lease.Release(ctx)
	}
	if err != nil {
		// The lock ends by itself, and whoever asks the database hears the truth.
		a.log.Debug("the claim's lock was not marked", "dispatch", tap.Dispatch, "error", err)
	}
}

// markTaken has taps told that the dispatch is taken, after a claim on it that was none of theirs.
func (a *Acceptor) markTaken(ctx context.Context, id dispatch.ID, c dispatch.Claim) {
	a.inflight.rememberTaken(id, holder{c.Driver, c.Round})
	a.reannouncer.resolve(id, c.Round)
	if a.locks == nil {
		return
	}
	var held *lock.HeldError
	_, err := a.locks.Obtain(ctx, lockName(id), takenValue(c.Driver, c.Round), markerTTL)
	if errors.As(err, &held) {
		// A tap that is being decided marks the dispatch itself; what an earlier round has left stands in nobody's way but
		// that of this mark.
		old, ok := parseMarker(held.Owner)
		if ok && old.committed && old.round == c.Round && old.driver != c.Driver {
			a.verify.note(id, old.holder, time.Now())
		}
		if ok && old.committed && old.round < c.Round {
			if err = a.locks.Release(ctx, lockName(id), held.Owner); err == nil {
				_, err = a.locks.Obtain(ctx, lockName(id), takenValue(c.Driver, c.Round), markerTTL)
			}
		}
	}
	if err != nil && !errors.As(err, &held) {
		a.log.Debug("the dispatch was not marked as taken", "dispatch", id, "error", err)
	}
}

// markEnded drops what says that the dispatch is taken, after that claim has come to its end.
func (a *Acceptor) markEnded(ctx context.Context, id dispatch.ID, ended dispatch.Claim) {
	a.inflight.forget(id)
	if a.locks == nil {
		return
	}
	err := a.locks.Release(ctx, lockName(id), takenValue(ended.Driver, ended.Round))
	if err != nil && !errors.Is(err, lock.ErrLost) {
		// Taps on the new round pass an old marker; only those that name no round wait for its end.
		a.log.Warn("the taken marker stays until it ends", "dispatch", id, "error", err)
	}
}

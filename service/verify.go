package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
)

// Holders is where a verifier looks.
type Holders interface {
	// Holders returns who has each of the dispatches, in one statement. Of one that is not there it says nothing.
	Holders(ctx context.Context, ids []dispatch.ID) (map[dispatch.ID]dispatch.Holding, error)
}

const (
	// verifyAfter is how long what the database has just said needs no verification. A race is over by then.
	verifyAfter = time.Second
	// reverifyAfter is how often a fact is verified on which taps go on to be refused.
	reverifyAfter = 3 * time.Second
	// verifyInterval is how often the database is asked at most, about verifyAtOnce dispatches in one statement.
	verifyInterval = time.Second
	// verifyGap is the least time between the two looks that miss a claim.
	verifyGap   = verifyInterval * 9 / 10
	verifyBatch = 500
	// verifyMaxAge bounds how old a fact may be that is verified. Its dispatch is still kept by then.
	verifyMaxAge = time.Hour
	// maxVerifications bounds the memory: what does not fit is noted again by a later tap.
	maxVerifications = 2 * maxTaken
)

// verifier looks up whether the database still has the claims because of which this process refuses taps for good. It
// runs behind the taps, which only note what they were refused by.
//
// A committed claim holds its round for ever: whatever comes later is in a later round. So a row that is still in the
// claim's round, or in an earlier one, and is not the claim's driver's says that the database has lost the claim, as one
// does that fails over to a server which had not heard of it. Two looks must say so: a server that has just become the
// primary may take a moment to apply what it has.
type verifier struct {
	holders     Holders // nil: nobody looks
	claims      Claims
	locks       Locks
	inflight    *inflight
	reannouncer *reannouncer
	log         *slog.Logger
	lost        atomic.Int64
	failing     atomic.Bool // the last look failed
	allDoubted  atomic.Bool // a claim has failed for the database's sake: every fact is in doubt

	mu     sync.Mutex
	doubts map[claimKey]verification
}

// claimKey is a committed claim, of which its driver was told.
type claimKey struct {
	dispatch dispatch.ID
	holder
}

type verification struct {
	due, since time.Time
	missed     bool // the database did not have it when it was last asked
	alerted    bool // that it is lost: what is left to do is to announce the dispatch
}

// newVerifier returns a verifier of what the gate refuses taps by, which tells the verifier.
func newVerifier(claims Claims, locks Locks, g *inflight, c *reannouncer, log *slog.Logger) *verifier {
	g.verify = &verifier{claims: claims, locks: locks, inflight: g, reannouncer: c, log: log, doubts: map[claimKey]verification{}}
	return g.verify
}

// Verify has what this process believes verified, by looks at h. Call it before the first tap.
func (a *Acceptor) Verify(h Holders) { a.verify.holders = h }

// LostClaims counts the claims whose drivers were told so and that the database has lost, as far as this process has
// noticed.
func (a *Acceptor) LostClaims() int64 { return a.verify.lost.Load() }

// note has the fact verified at due or soon after.
func (v *verifier) note(id dispatch.ID, h holder, due time.Time) {
	if v == nil || v.holders == nil {
		return
	}
	p := claimKey{id, h}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.doubts[p]; !ok && len(v.doubts) < maxVerifications {
		v.doubts[p] = verification{due: due, since: due}
	}
}

// verifyAll has all facts verified that this process knows.
func (v *verifier) verifyAll() { v.allDoubted.Store(true) }

// run verifies until ctx ends.
func (v *verifier) run(ctx context.Context) {
	if v.holders == nil {
		return
	}
	tick := time.NewTicker(verifyInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.verifyDue(ctx, time.Now()) // the tick may have waited for the last look to end
		}
	}
}

// verifyDue verifies what is due at now.
func (v *verifier) verifyDue(ctx context.Context, now time.Time) {
	if v.allDoubted.Swap(false) {
		v.inflight.eachTaken(now.Add(-verifyMaxAge), func(id dispatch.ID, h holder) { v.note(id, h, now) })
	}
	due, ids := v.due(now)
	if len(due) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	began := time.Now()
	found, err := v.holders.Holders(asking, ids)
	if err != nil && ctx.Err() != nil {
		return // the process stops: that says nothing about the database
	}
	if v.report(len(ids), err); err != nil {
		return // they are still due
	}
	answered := now.Add(time.Since(began))
	for p, d := range due {
		holding, there := found[p.dispatch]
		switch {
		case there && p.heldIn(holding):
			v.settle(p, nil)
		case !d.missed:
			d.missed, d.due = true, answered.Add(verifyGap)
			v.settle(p, &d)
		default:
			v.reportLost(ctx, p, d, holding, there, now)
		}
	}
}

// report says once that the database can't be asked, and once that it can again.
func (v *verifier) report(dispatches int, err error) {
	switch {
	case err != nil && v.failing.CompareAndSwap(false, true):
		v.log.Warn("claims that taps are refused by can't be verified; the database is asked again every second",
			"dispatches", dispatches, "error", err)
	case err == nil && v.failing.CompareAndSwap(true, false):
		v.log.Info("claims that taps are refused by are verified again")
	}
}

// heldIn reports whether the database has the claim, or a later round.
func (p claimKey) heldIn(h dispatch.Holding) bool {
	return h.Round > p.round || h.Round == p.round && h.Driver == p.driver
}

// due returns what is to be verified at now, as many as one look may ask about, and forgets what is too old.
func (v *verifier) due(now time.Time) (map[claimKey]verification, []dispatch.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	due := map[claimKey]verification{}
	var ids []dispatch.ID
	for p, d := range v.doubts {
		switch {
		case now.Sub(d.since) > verifyMaxAge:
			delete(v.doubts, p)
		case !now.Before(d.due) && len(due) < verifyBatch:
			due[p] = d
			ids = append(ids, p.dispatch)
		}
	}
	return due, ids
}

// settle puts what is left of a doubt in its place, nil for nothing.
func (v *verifier) settle(p claimKey, left *verification) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if left == nil {
		delete(v.doubts, p)
		return
	}
	v.doubts[p] = *left
}

// reportLost has nobody refused by a lost claim any more, tells the drivers that the dispatch is open, if it is, and says so to
// the operator, once.
func (v *verifier) reportLost(ctx context.Context, p claimKey, d verification, now dispatch.Holding, there bool, at time.Time) {
	v.forget(ctx, p)
	var announced bool
	var err error
	if there && now.Driver == "" {
		announced, err = v.claims.Reannounce(ctx, p.dispatch, now.Round, reannounceInterval)
	}
	away := errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, dispatch.ErrUnknown)
	var quiet *dispatch.QuietError
	if errors.As(err, &quiet) {
		// Drivers whom this process has refused since that announcement have not heard it.
		v.reannouncer.schedule(Tap{Dispatch: p.dispatch, Driver: p.driver, Round: now.Round}, quiet.For)
	}
	if !d.alerted {
		v.lost.Add(1)
		v.verifyAll() // what lost this one has hardly lost it alone
		says, next := describeLoss(now, there, announced, away || quiet != nil)
		v.log.Error("ALERT the database has lost a claim whose driver was told SUCCESS", "dispatch", p.dispatch, "round", p.round,
			"driver", p.driver, "database_says", says, "database_round", now.Round, "next", next)
	}
	if !away {
		v.settle(p, nil)
		return
	}
	d.alerted, d.due = true, at.Add(verifyInterval/2)
	v.settle(p, &d)
}

// describeLoss is what the database says of a dispatch whose claim it has lost, and what comes of that.
func describeLoss(h dispatch.Holding, there, announced, later bool) (says, next string) {
	const call = "call the driver, or assign it to them again"
	switch {
	case !there:
		return "there is no such dispatch", "call the driver: the dispatch is lost too, create it again"
	case h.Driver != "":
		return "it is " + string(h.Driver) + "'s", "call both drivers: each was told that the job is theirs"
	case announced:
		return "nobody has it", "the drivers are told again that it is open; " + call
	case later:
		return "nobody has it", "the drivers are told again that it is open as soon as that can be announced; " + call
	}
	return "nobody has it, it is " + string(h.Status), "the drivers are not told again by this instance; " + call
}

// forget drops what says that the dispatch is taken by that claim, here and in Redis.
func (v *verifier) forget(ctx context.Context, p claimKey) {
	v.inflight.forgetHolder(p.dispatch, p.holder)
	if v.locks == nil {
		return
	}
	// If it stays, the next tap that meets it has it verified again.
	if err := v.locks.Release(ctx, lockName(p.dispatch), takenValue(p.driver, p.round)); err != nil {
		v.log.Debug("the marker of a lost claim was not removed", "dispatch", p.dispatch, "error", err)
	}
}

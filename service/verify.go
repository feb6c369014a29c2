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

const (
	// verifyAfter is how long an answer of the database needs no verification. A race is over by then.
	verifyAfter = time.Second
	// reverifyAfter is how often a claim is verified while taps are refused by it.
	reverifyAfter = 3 * time.Second
	// verifyInterval is how often the database is asked at most, about verifyBatch dispatches in one statement.
	verifyInterval = time.Second
	// verifyGap is the least time between the two checks that miss a claim.
	verifyGap   = verifyInterval * 9 / 10
	verifyBatch = 500
	// verifyMaxAge bounds the age of a verification. Retention keeps the dispatch for longer.
	verifyMaxAge = time.Hour
	// maxVerifications bounds the memory: a later tap adds again what does not fit.
	maxVerifications = 2 * maxTaken
)

// claimKey identifies a committed claim, whose driver has been answered SUCCESS.
type claimKey struct {
	dispatch dispatch.ID
	holder
}

// verification is the state of one claim in the queue.
type verification struct {
	due, since time.Time
	missed     bool // the database did not have the claim at the last check
	outlived   bool // the database had a later round at the last check
	alerted    bool // the loss is reported: the dispatch is still to be announced
}

// verifyQueue holds the claims that are to be verified.
type verifyQueue struct {
	mu      sync.Mutex
	pending map[claimKey]verification
}

func newVerifyQueue() *verifyQueue { return &verifyQueue{pending: map[claimKey]verification{}} }

// add queues the claim for verification at due, unless the queue has it already.
func (q *verifyQueue) add(id dispatch.ID, h holder, due time.Time) {
	k := claimKey{id, h}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.pending[k]; !ok && len(q.pending) < maxVerifications {
		q.pending[k] = verification{due: due, since: due}
	}
}

// due returns the claims to verify at now, as many as one statement may ask about, and drops those that are too old.
func (q *verifyQueue) due(now time.Time) (map[claimKey]verification, []dispatch.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := map[claimKey]verification{}
	var ids []dispatch.ID
	for k, w := range q.pending {
		switch {
		case now.Sub(w.since) > verifyMaxAge:
			delete(q.pending, k)
		case !now.Before(w.due) && len(due) < verifyBatch:
			due[k] = w
			ids = append(ids, k.dispatch)
		}
	}
	return due, ids
}

func (q *verifyQueue) done(k claimKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pending, k)
}

func (q *verifyQueue) update(k claimKey, w verification) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending[k] = w
}

// verifier checks that the database still has the claims by which this process refuses taps for good. It runs behind the
// taps, which only add to its queue.
//
// A committed claim holds its round for ever: any later claim is in a later round. So a row that is in the claim's round,
// or an earlier one, and has another holder or none proves that the database has lost the claim, as after a failover to a
// server that had not replicated it. Two checks must agree: a new primary may take a moment to apply its relay log.
type verifier struct {
	*verifyQueue
	claims      ClaimStore
	gate        Gate
	inflight    *inflight
	reannouncer *reannouncer
	timeout     time.Duration // of one check
	log         *slog.Logger
	lost        atomic.Int64
	failing     atomic.Bool // the last check failed
	allDoubted  atomic.Bool // a claim failed in the database: every known claim is to be verified
}

// verifyAll queues all claims that this process knows for verification.
func (v *verifier) verifyAll() { v.allDoubted.Store(true) }

func (v *verifier) run(ctx context.Context) {
	tick := time.NewTicker(verifyInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.verifyDue(ctx, time.Now()) // the tick may have waited for the last check to end
		}
	}
}

func (v *verifier) verifyDue(ctx context.Context, now time.Time) {
	if v.allDoubted.Swap(false) {
		v.inflight.eachTaken(now.Add(-verifyMaxAge), func(id dispatch.ID, h holder) { v.add(id, h, now) })
	}
	due, ids := v.due(now)
	if len(due) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	began := time.Now()
	found, err := v.claims.Holders(asking, ids)
	if err != nil && ctx.Err() != nil {
		return // the process is stopping, which says nothing about the database
	}
	if v.logOutage(len(ids), err); err != nil {
		return // they are still due
	}
	answered := now.Add(time.Since(began))
	for k, w := range due {
		holding, exists := found[k.dispatch]
		switch {
		case exists && k.heldIn(holding) && holding.Round == k.round:
			v.done(k)
		case exists && k.heldIn(holding) && w.outlived:
			v.done(k)
			v.dropOutlived(ctx, k, holding)
		case exists && k.heldIn(holding):
			w.outlived, w.missed, w.due = true, false, answered.Add(verifyGap)
			v.update(k, w)
		case !w.missed:
			w.outlived, w.missed, w.due = false, true, answered.Add(verifyGap)
			v.update(k, w)
		default:
			v.reportLost(ctx, k, w, holding, exists, now)
		}
	}
}

// logOutage logs the first check that fails and the first that succeeds again.
func (v *verifier) logOutage(dispatches int, err error) {
	switch {
	case err != nil && v.failing.CompareAndSwap(false, true):
		v.log.Warn("known claims not verified; the database is asked again every second", "dispatches", dispatches, "error", err)
	case err == nil && v.failing.CompareAndSwap(true, false):
		v.log.Info("known claims are verified again")
	}
}

// heldIn reports whether the database has the claim or a later round.
func (k claimKey) heldIn(h dispatch.CurrentHolder) bool {
	return h.Round > k.round || h.Round == k.round && h.Driver == k.driver
}

// dropOutlived removes the marker of a claim that has ended, if the marker is still there at the second check. Such a marker refuses taps
// without a round, although the dispatch may be open. If the dispatch is open, dropOutlived schedules an announcement.
func (v *verifier) dropOutlived(ctx context.Context, k claimKey, h dispatch.CurrentHolder) {
	if err := v.gate.Release(ctx, lockName(k.dispatch), takenValue(k.driver, k.round)); err != nil {
		return // the marker is gone, as usual, or Redis does not answer
	}
	v.log.Info("marker of a claim that has ended removed; it refused taps without a round", "dispatch", k.dispatch, "round", k.round)
	if h.Driver == "" {
		v.reannouncer.schedule(Tap{Dispatch: k.dispatch, Driver: k.driver, Round: h.Round}, followUpRetry)
	}
}

// reportLost drops a lost claim from memory and from Redis, alerts the operator once, and announces the dispatch again if
// it is open. The announcement is retried while the database is unavailable.
func (v *verifier) reportLost(ctx context.Context, k claimKey, w verification, h dispatch.CurrentHolder, exists bool, now time.Time) {
	v.forget(ctx, k)
	var announced bool
	var err error
	if exists && h.Driver == "" {
		bounded, cancel := context.WithTimeout(ctx, v.timeout)
		announced, err = v.claims.Reannounce(bounded, k.dispatch, h.Round, reannounceInterval)
		cancel()
	}
	unavailable := errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, dispatch.ErrUnknown)
	var quiet *dispatch.AnnouncedRecentlyError
	wait, later := followUpRetry, errors.Is(err, dispatch.ErrNotOpenYet)
	if errors.As(err, &quiet) {
		wait, later = quiet.Wait, true
	}
	if later { // drivers whom this process has refused since the last announcement have not heard it
		v.reannouncer.schedule(Tap{Dispatch: k.dispatch, Driver: k.driver, Round: h.Round}, wait)
	}
	if !w.alerted {
		v.lost.Add(1)
		v.verifyAll() // the failure that lost this claim may have lost others
		says, next := describeLoss(h, exists, announced, unavailable || later)
		v.log.Error("ALERT: the database has lost a committed claim; its driver got SUCCESS", "dispatch", k.dispatch, "round", k.round,
			"driver", k.driver, "database_says", says, "database_round", h.Round, "next", next)
	}
	if !unavailable {
		v.done(k)
		return
	}
	w.alerted, w.due = true, now.Add(verifyInterval/2)
	v.update(k, w)
}

// describeLoss returns the database's state of a dispatch whose claim is lost, and what happens next.
func describeLoss(h dispatch.CurrentHolder, exists, announced, later bool) (says, next string) {
	const call = "call the driver, or assign the dispatch to the driver again"
	switch {
	case !exists:
		return "the dispatch does not exist", "call the driver, and create the dispatch again: it is lost too"
	case h.Driver != "":
		return "driver " + string(h.Driver) + " holds the dispatch", "call both drivers: both got SUCCESS for this dispatch"
	case announced:
		return "no driver holds the dispatch", "FirstTap has announced the dispatch again; " + call
	case later:
		return "no driver holds the dispatch", "FirstTap will announce the dispatch again as soon as it can; " + call
	}
	return "no driver holds the dispatch, which is " + string(h.Status), "this instance does not announce it again; " + call
}

// forget drops the claim from memory and its marker from Redis.
func (v *verifier) forget(ctx context.Context, k claimKey) {
	v.inflight.forgetHolder(k.dispatch, k.holder)
	// A marker that stays is verified again after the next tap that it refuses.
	if err := v.gate.Release(ctx, lockName(k.dispatch), takenValue(k.driver, k.round)); err != nil {
		v.log.Debug("marker of a lost claim not removed; it expires by itself", "dispatch", k.dispatch, "error", err)
	}
}

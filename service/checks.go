package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"firsttap/dispatch"
)

const (
	// followUpTick is how often it is looked which offers are due for a check, and followUpRetry how long a check waits after one that
	// found nothing out.
	followUpTick  = 200 * time.Millisecond
	followUpRetry = time.Second
	// followUpOpening is the longest wait until the next check of a dispatch that is not open yet: its opening may be brought forward.
	followUpOpening = time.Minute
	// followUpFor is how long a database that is unavailable is retried after the last refusal. Most offers are over by then.
	followUpFor = dispatch.DefaultWindow
	// followUpDrain bounds the last checks when the process ends.
	followUpDrain = 3 * time.Second
	// reannounceInterval bounds how often taps that fail have a dispatch announced again. It doubles each time.
	reannounceInterval = 10 * time.Second

	// verifyAfter is how long an answer of the database needs no verification. A race is over by then.
	verifyAfter = time.Second
	// reverifyAfter is how often a claim is verified while taps are refused by it.
	reverifyAfter = 3 * time.Second
	// verifyInterval is how often the database is asked at most, about verifyBatch dispatches in one statement.
	verifyInterval = time.Second
	verifyBatch    = 500
	// verifyGap is the least time between the two checks that miss a claim.
	verifyGap = verifyInterval * 9 / 10
	// verifyMaxAge bounds the age of a verification. Retention keeps the dispatch for longer.
	verifyMaxAge = time.Hour
)

// Run checks, behind the taps, what taps were refused by, until ctx ends. Of the drivers who were refused because another driver's claim
// was being decided: if that claim has failed, or its instance has died, the dispatch is announced again. Of the claims by which this
// process refuses taps for good: the database must still have them.
func (a *Acceptor) Run(ctx context.Context) {
	var verifying sync.WaitGroup
	verifying.Go(func() { each(ctx, verifyInterval, func() { a.verify(ctx, time.Now()) }) }) // announcements may be slow
	each(ctx, followUpTick, func() { a.followUp(ctx, time.Now()) })
	verifying.Wait()
	// No other process knows which drivers this one has refused.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), followUpDrain)
	defer cancel()
	a.followUp(last, time.Now().Add(followUpFor))
	if left := a.memory.stillToFollow(); left > 0 {
		a.log.Warn("the process ends with refused taps that it has not followed up; their drivers will not be notified", "rounds", left)
	}
}

// each calls check at that interval until ctx ends.
func each(ctx context.Context, interval time.Duration, check func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ctx.Err() == nil {
			check()
		}
	}
}

// followUp checks the offers that are due at now.
func (a *Acceptor) followUp(ctx context.Context, now time.Time) {
	due, dropped := a.memory.dueFollowUps(now)
	if dropped > 0 {
		a.log.Error("too many rounds to follow up; the drivers refused in the dropped ones will not be notified if those claims fail",
			"dropped", dropped, "follow_ups", maxFollowUps)
	}
	for o, f := range due {
		m, found := marker{}, false
		if !f.lost {
			m, found = a.marked(ctx, o.dispatch)
		}
		switch {
		case ctx.Err() != nil:
			a.memory.followAgain(o, f, 0)
		case !found || m.committed && m.round < o.round:
			a.announceAgain(ctx, o, f)
		case !m.committed: // a claim is being decided
			a.memory.followAgain(o, f, followUpRetry)
		case o.round == 0: // the marker may be of an earlier round, and then the verification announces the current one
			a.memory.doubt(o.dispatch, m.holder, now)
		}
	}
}

// announceAgain announces the dispatch again if it is open in that round, at its opening if it is not open yet, and not sooner than
// reannounceInterval allows. The check is repeated while the database is unavailable.
func (a *Acceptor) announceAgain(ctx context.Context, o offer, f followUp) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	asked, patience := time.Now(), followUpFor
	if f.lost {
		patience = verifyMaxAge
	}
	var quiet *dispatch.AnnouncedRecentlyError
	var early *dispatch.NotOpenYetError
	switch announced, err := a.claims.Reannounce(ctx, o.dispatch, o.round, reannounceInterval); {
	case errors.Is(err, dispatch.ErrNotFound):
	case errors.As(err, &early): // the refused drivers have not been told when it opens: only the driver of the claim has
		f.since = asked
		a.memory.followAgain(o, f, min(max(early.OpensAt.Sub(asked), followUpRetry), followUpOpening))
	case errors.As(err, &quiet) && quiet.Ago < asked.Sub(f.refused): // another instance has announced it since
	case errors.As(err, &quiet):
		a.memory.followAgain(o, f, quiet.Wait)
	case err != nil && time.Since(f.since) < patience:
		a.memory.followAgain(o, f, followUpRetry)
	case err != nil:
		a.log.Error("dispatch not announced again after a claim failed; the refused drivers will not be notified",
			"dispatch", o.dispatch, "error", err)
	case announced:
		a.log.Info("dispatch announced again after a claim failed", "dispatch", o.dispatch, "round", o.round)
	}
}

// verdict is what the database says of a claim. A committed claim holds its round for ever: any later claim is in a later round.
type verdict int

const (
	unasked verdict = iota
	holds
	// ended: the dispatch is in a later round.
	ended
	// missing: the dispatch is in the claim's round, or in an earlier one, and has another holder or none; or it does not exist. The
	// database has lost the claim, as after a failover to a server that had not replicated it.
	missing
)

func (k claimKey) verdict(h dispatch.CurrentHolder, exists bool) verdict {
	switch {
	case exists && h.Round > k.round:
		return ended
	case exists && h.Round == k.round && h.Driver == k.driver:
		return holds
	}
	return missing
}

// verify asks the database about the doubted claims that are due at now. Two checks must agree that a claim has ended or is missing: a new
// primary may take a moment to apply its relay log, and the instance that ended a claim to remove its marker.
func (a *Acceptor) verify(ctx context.Context, now time.Time) {
	due, ids := a.memory.dueDoubts(now)
	if len(due) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	began := time.Now()
	found, err := a.claims.Holders(asking, ids)
	if err != nil && ctx.Err() != nil {
		return // the process is stopping, which says nothing about the database
	}
	switch failed := err != nil; {
	case failed && !a.unverified:
		a.log.Warn("known claims not verified; the database is asked again every second", "dispatches", len(ids), "error", err)
	case !failed && a.unverified:
		a.log.Info("known claims are verified again")
	}
	if a.unverified = err != nil; a.unverified {
		return // they are still due
	}
	again := now.Add(time.Since(began) + verifyGap)
	for k, d := range due {
		h, exists := found[k.dispatch]
		says := k.verdict(h, exists)
		if says != holds && says != d.said {
			a.memory.setDoubt(k, &doubt{due: again, since: d.since, said: says})
			continue
		}
		switch says {
		case ended:
			a.dropMarker(ctx, k, h)
		case missing:
			a.reportLost(ctx, k, h, exists)
		}
		a.memory.setDoubt(k, nil) // not before the claim is forgotten, or a tap would doubt it again
	}
}

// dropMarker removes the marker of a claim that has ended, if it is still there. Such a marker refuses taps without a round, although the
// dispatch may be open. If so, the dispatch is announced.
func (a *Acceptor) dropMarker(ctx context.Context, k claimKey, h dispatch.CurrentHolder) {
	if err := a.unmark(ctx, k.dispatch, k.holder); err != nil {
		return // the marker is gone, as usual, or Redis does not answer
	}
	a.log.Info("marker of a claim that has ended removed; it refused taps without a round", "dispatch", k.dispatch, "round", k.round)
	if h.Driver == "" {
		a.memory.follow(offer{k.dispatch, h.Round}, followUpRetry, false)
	}
}

// reportLost drops a lost claim from Redis and from memory, alerts the operator once, and has the dispatch announced again if no driver
// holds it.
func (a *Acceptor) reportLost(ctx context.Context, k claimKey, h dispatch.CurrentHolder, exists bool) {
	if err := a.unmark(ctx, k.dispatch, k.holder); err != nil { // a marker that stays is verified again after the next tap that it refuses
		a.log.Debug("marker of a lost claim not removed; it expires by itself", "dispatch", k.dispatch, "error", err)
	}
	a.memory.forget(k.dispatch, k.holder)
	if exists && h.Driver == "" {
		a.memory.follow(offer{k.dispatch, h.Round}, 0, true)
	}
	if !a.memory.reportedNow(k) {
		return
	}
	a.lost.Add(1)
	a.memory.doubtAll() // the failure that lost this claim may have lost others
	says, next := "no driver holds the dispatch, which is "+string(h.Status),
		"FirstTap announces the dispatch again if it is open; call the driver, or assign the dispatch to the driver again"
	switch {
	case !exists:
		says, next = "the dispatch does not exist", "call the driver, and create the dispatch again: it is lost too"
	case h.Driver != "":
		says, next = "driver "+string(h.Driver)+" holds the dispatch", "call both drivers: both got SUCCESS for this dispatch"
	}
	a.log.Error("ALERT: the database has lost a committed claim; its driver got SUCCESS", "dispatch", k.dispatch, "round", k.round,
		"driver", k.driver, "database_says", says, "database_round", h.Round, "next", next)
}

package service

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/lock"
)

// The values of a dispatch's key in Redis:
//
//	claim:<driver>:<round>.<claim>  while a claim is being decided; round 0 is the current one
//	taken:<driver>:<round>          after its commit

// LockPrefix is how the names of all dispatches' locks begin.
const LockPrefix = "dispatch:lock:"

// lockName returns the key. The braces make Redis Cluster hash the identifier alone.
func lockName(id dispatch.ID) string { return LockPrefix + "{" + string(id) + "}" }

func claimValue(tap Tap, claim dispatch.ClaimID) string {
	return "claim:" + string(tap.Driver) + ":" + strconv.Itoa(tap.Round) + "." + string(claim)
}

func takenValue(driver dispatch.DriverID, round int) string {
	return "taken:" + string(driver) + ":" + strconv.Itoa(round)
}

// marker is a parsed value.
type marker struct {
	holder
	committed bool
}

// parseMarker parses a value, and reports false if it is malformed.
func parseMarker(value string) (marker, bool) {
	kind, rest, _ := strings.Cut(value, ":")
	driver, token, ok := strings.Cut(rest, ":")
	if !ok || kind != "claim" && kind != "taken" {
		return marker{}, false
	}
	digits, _, _ := strings.Cut(token, ".")
	round, err := strconv.Atoi(digits)
	if kind == "taken" && (err != nil || round < 1 || driver == "") {
		return marker{}, false
	}
	if err != nil {
		round = 0 // another token after the driver
	}
	return marker{holder{dispatch.DriverID(driver), round}, kind == "taken"}, true
}

// refuses reports whether the marker refuses the tap. A marker refuses neither its own driver nor a tap on a later round. A
// claim under way refuses only taps on its own round, because its driver may have invented the round.
func (m marker) refuses(tap Tap) bool {
	switch {
	case m.driver == tap.Driver:
		return false
	case m.round == 0 || tap.Round == 0 || tap.Round == m.round:
		return true
	}
	return m.committed && tap.Round < m.round
}

// marked returns what the key of the dispatch says; false if it is free, or if Redis does not answer.
func (a *Acceptor) marked(ctx context.Context, id dispatch.ID) (marker, bool) {
	if a.gate == nil {
		return marker{}, false
	}
	owner, err := a.gate.Owner(ctx, lockName(id))
	if err != nil {
		return marker{}, false
	}
	return parseMarker(owner)
}

// unmark removes the claim's marker. ErrLost if it is not there.
func (a *Acceptor) unmark(ctx context.Context, id dispatch.ID, h holder) error {
	if a.gate == nil {
		return lock.ErrLost
	}
	return a.gate.Release(ctx, lockName(id), takenValue(h.driver, h.round))
}

// markTaken records an admin's assignment in memory and in Redis, so that later taps are refused without SQL.
func (a *Acceptor) markTaken(ctx context.Context, id dispatch.ID, c dispatch.Claim) {
	assigned := holder{c.Driver, c.Round}
	a.memory.learn(id, assigned, true)
	if a.gate == nil {
		return
	}
	var held *lock.HeldError
	_, err := a.gate.Obtain(ctx, lockName(id), takenValue(assigned.driver, assigned.round), markerTTL)
	if errors.As(err, &held) {
		// A claim under way writes its own marker. The marker of an earlier round is replaced.
		old, ok := parseMarker(held.Owner)
		if ok && old.committed && old.round == c.Round && old.driver != c.Driver {
			a.memory.doubt(id, old.holder, time.Now())
		}
		if ok && old.committed && old.round < c.Round {
			if err = a.gate.Release(ctx, lockName(id), held.Owner); err == nil {
				_, err = a.gate.Obtain(ctx, lockName(id), takenValue(assigned.driver, assigned.round), markerTTL)
			}
		}
	}
	if err != nil && !errors.As(err, &held) {
		a.log.Debug("assignment not marked in Redis; other instances ask the database", "dispatch", id, "error", err)
	}
}

// markEnded drops the record that the dispatch is taken, after the claim has ended.
func (a *Acceptor) markEnded(ctx context.Context, id dispatch.ID, ended dispatch.Claim) {
	h := holder{ended.Driver, ended.Round}
	a.memory.forget(id, h)
	if err := a.unmark(ctx, id, h); err != nil && !errors.Is(err, lock.ErrLost) {
		a.log.Warn(
			"marker of an ended claim not removed; it refuses taps without a round, and is removed about three seconds after the first of "+
				"them",
			"dispatch", id, "error", err,
		)
	}
}

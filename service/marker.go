package service

import (
	"strconv"
	"strings"

	"firsttap/dispatch"
)

// The Redis key of a dispatch and what stands in it:
//
//	claim:<driver>:<round>.<claim>  while a claim is being decided; round 0 is "whichever is current"
//	taken:<driver>:<round>          after its commit

// lockName is the key. The braces make Redis Cluster hash the identifier alone.
func lockName(id dispatch.ID) string { return "dispatch:lock:{" + string(id) + "}" }

func claimValue(tap Tap, claim dispatch.ClaimID) string {
	return "claim:" + string(tap.Driver) + ":" + strconv.Itoa(tap.Round) + "." + string(claim)
}

func takenValue(driver dispatch.DriverID, round int) string {
	return "taken:" + string(driver) + ":" + strconv.Itoa(round)
}

// marker is what a key says.
type marker struct {
	holder
	committed bool
}

// parseMarker reads a value. What it can't read says nothing.
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
		round = 0 // a token of another making
	}
	return marker{holder{dispatch.DriverID(driver), round}, kind == "taken"}, true
}

// refuses reports whether the marker decides about the tap. It does not when it is the driver's own, or when the tap
// is on a newer round than the marker speaks of. A claim that is being decided speaks of its own round only: who made it
// may have made the round up.
func (m marker) refuses(tap Tap) bool {
	switch {
	case m.driver == tap.Driver:
		return false
	case m.round == 0 || tap.Round == 0 || tap.Round == m.round:
		return true
	}
	return m.committed && tap.Round < m.round
}

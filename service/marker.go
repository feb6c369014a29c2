package service

import (
	"strconv"
	"strings"

	"firsttap/dispatch"
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

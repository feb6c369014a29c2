package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// shrink returns settings whose history breaks the same promise as v, with that violation: shorter, and with as few actors and
// faults as it finds in so many tries. It drops one half of them, then quarters, and so on, as Zeller's delta debugging does.
func (s settings) shrink(t *testing.T, v violation, tries int) (settings, violation, *history) {
	t.Helper()
	best, broken, h := s, v, (*history)(nil)
	breaks := func(tried settings) bool {
		if tries == 0 {
			return false
		}
		tries--
		lived := live(t, tried)
		for _, found := range lived.check() {
			if found.promise == v.promise {
				best, broken, h = tried, found, lived
				return true
			}
		}
		return false
	}
	shorten := func() {
		if shorter := (broken.at + time.Second).Round(time.Second); broken.at > 0 && shorter < best.length {
			tried := best
			tried.length = shorter
			breaks(tried)
		}
	}
	shorten()
	parts := best.parts()
	for size := (len(parts) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(parts); {
			fewer := slices.Delete(slices.Clone(parts), from, min(from+size, len(parts)))
			if breaks(best.with(fewer)) {
				parts = fewer
			} else {
				from += size
			}
		}
	}
	shorten()
	if h == nil {
		h = live(t, best)
	}
	return best, broken, h
}

// parts are the names of what takes part in a history: the faults and the actors.
func (s settings) parts() (names []string) {
	for _, f := range s.faults {
		names = append(names, string(f))
	}
	for _, actor := range s.actors() {
		if !slices.Contains(s.idle, actor) {
			names = append(names, actor)
		}
	}
	return names
}

func (s settings) actors() (names []string) {
	for k := range s.admins {
		names = append(names, fmt.Sprintf("a%d", k+1))
	}
	for k := range s.drivers {
		names = append(names, fmt.Sprintf("v%02d", k+1))
	}
	for _, c := range cheats {
		names = append(names, c.name)
	}
	return names
}

// with returns the settings with no other parts than these.
func (s settings) with(parts []string) settings {
	s.faults, s.idle = nil, nil
	for _, f := range allFaults {
		if slices.Contains(parts, string(f)) {
			s.faults = append(s.faults, f)
		}
	}
	for _, actor := range s.actors() {
		if !slices.Contains(parts, actor) {
			s.idle = append(s.idle, actor)
		}
	}
	return s
}

//go:build soak

// Package sim simulates the whole claim in one process: instances with their gates, markers, reannouncers and ledgers, a database, a
// Redis, drivers and admins. They run in a bubble of testing/synctest, so their time is simulated too. A seed determines the history, and
// a checker looks for broken promises in it.
package sim

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "the seed of the history; 0 for several")
	lengthFlag = flag.Duration("length", 0, "how long drivers tap, in the time of the simulation")
	idleFlag   = flag.String("idle", "", "the actors that do nothing, separated by commas")
	showFlag   = flag.String("show", "", "a dispatch whose history is printed")
	faultsFlag = flag.String("faults", "", "the numbers of the faults that happen, separated by commas; all by default, none for -")
)

func usual(seed uint64) settings {
	s := settings{seed: seed, length: 4 * time.Minute, instances: 3, drivers: 22, admins: 3, faults: allFaults}
	if *lengthFlag > 0 {
		s.length = *lengthFlag
	}
	if *idleFlag != "" {
		s.idle = strings.Split(*idleFlag, ",")
	}
	if *faultsFlag != "" {
		s.faults = nil
		for _, n := range strings.Split(*faultsFlag, ",") {
			var k int
			if _, err := fmt.Sscan(n, &k); err == nil {
				s.faults = append(s.faults, allFaults[k])
			}
		}
	}
	return s
}

// command is what lives the history of the settings again.
func (s settings) command() string {
	c := fmt.Sprintf("go test -tags soak ./systemtest/sim -run TestSoakClaims -seed %d -length %s", s.seed, s.length)
	if len(s.idle) > 0 {
		c += " -idle " + strings.Join(s.idle, ",")
	}
	if len(s.faults) < len(allFaults) {
		numbers := []string{"-"}
		for _, f := range s.faults {
			numbers = append(numbers, fmt.Sprint(slices.Index(allFaults, f)))
		}
		c += " -faults " + strings.Join(numbers, ",")
	}
	return c
}

// Whatever fails, the promises to drivers hold.
func TestSoakClaims(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	began, accepts := time.Now(), 0
	for _, seed := range seeds {
		s := usual(seed)
		h := live(t, s)
		for line := range strings.Lines(h.String()) {
			if *showFlag != "" && strings.Contains(line, " "+*showFlag+" ") {
				t.Log(strings.TrimSuffix(line, "\n"))
			}
		}
		n, wins := h.accepts()
		accepts += n
		t.Logf("seed %d: %d accepts, %d wins, %d changes, faults %v", seed, n, wins, len(h.changes), h.struck)
		if found := h.check(); len(found) > 0 {
			t.Errorf("%d promises are broken, the first: %v\n%s", len(found), found[0], s.command())
			for _, v := range found[1:min(len(found), 10)] {
				t.Log(v)
			}
		}
	}
	t.Logf("%.0f accepts a second", float64(accepts)/time.Since(began).Seconds())
}

// The same seed is the same history.
func TestSoakHistoriesFollowFromTheirSeeds(t *testing.T) {
	s := usual(7)
	s.length = time.Minute
	first, second := live(t, s).String(), live(t, s).String()
	if first != second {
		a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
		for k := range min(len(a), len(b)) {
			if a[k] != b[k] {
				t.Fatalf("line %d is different:\n%s\n%s", k, strings.Join(a[max(k-3, 0):k+1], "\n"), b[k])
			}
		}
		t.Fatalf("%d lines and %d", len(a), len(b))
	}
	t.Logf("%d lines", strings.Count(first, "\n"))
}

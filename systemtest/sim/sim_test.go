// Package sim simulates the whole claim in one process: instances with their gates, markers, reannouncers and ledgers, a database, a
// Redis, drivers and admins. They run in a bubble of testing/synctest, so their time is simulated too. A seed determines the history, and
// a checker looks for broken promises in it.
package sim

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

var (
	seedFlag    = flag.Uint64("seed", 1, "the first seed")
	seedsFlag   = flag.Uint64("seeds", 0, "how many seeds; 0 for as many as -accepts needs")
	acceptsFlag = flag.Int("accepts", 0, "how many taps are answered at least; 0 for 20,000, or 8,000 in make test-all")
	lengthFlag  = flag.Duration("length", usualLength, "how long drivers tap in each history, in the time of the simulation")
	idleFlag    = flag.String("idle", "", "the actors that do nothing, separated by commas")
	faultsFlag  = flag.String("faults", "", "the numbers of the faults that happen, separated by commas; by default all, and the cheats alone with every fourth seed; none for -")
	showFlag    = flag.String("show", "", "a dispatch whose history is printed")
	shrinkFlag  = flag.Int("shrink", 60, "how many shorter histories are tried after a broken promise")
)

const usualLength = 2 * time.Minute

// usual are the settings of a seed, as the flags change them.
func usual(seed uint64) settings {
	s := settings{seed: seed, length: *lengthFlag, instances: 3, drivers: 22, admins: 3, faults: allFaults}
	if *idleFlag != "" {
		s.idle = strings.Split(*idleFlag, ",")
	}
	switch {
	case *faultsFlag != "":
		s.faults = nil
		for _, n := range strings.Split(*faultsFlag, ",") {
			var k int
			if _, err := fmt.Sscan(n, &k); err == nil && k >= 0 && k < len(allFaults) {
				s.faults = append(s.faults, allFaults[k])
			}
		}
	case seed%4 == 0:
		s.faults = cheating // in calm weather the checker accepts less
	}
	return s
}

// command is what runs the history of the settings again.
func (s settings) command() string {
	c := fmt.Sprintf("go test ./systemtest/sim -run TestClaims -v -seeds 1 -seed %d -length %s", s.seed, s.length)
	if len(s.idle) > 0 {
		c += " -idle " + strings.Join(s.idle, ",")
	}
	if !slices.Equal(s.faults, usual(s.seed).faults) {
		numbers := []string{"-"}
		for _, f := range s.faults {
			numbers = append(numbers, fmt.Sprint(slices.Index(allFaults, f)))
		}
		c += " -faults " + strings.Join(numbers, ",")
	}
	return c
}

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// Whatever fails, the promises to drivers hold.
func TestClaims(t *testing.T) {
	accepts := cmp.Or(*acceptsFlag, testkit.Scale(4_000, 8_000))
	explore(t, func(s sum) bool {
		return *seedsFlag > 0 && s.histories >= *seedsFlag || *seedsFlag == 0 && s.accepts >= accepts
	})
}

// sum is what several histories add up to.
type sum struct {
	histories     uint64
	accepts, wins int
	struck        map[fault]int
}

// explore runs the history of one seed after the other until enough returns true, as many at a time as there are processors. It ends
// after the first history that breaks a promise.
func explore(t *testing.T, enough func(sum) bool) sum {
	t.Helper()
	all, began := sum{struck: map[fault]int{}}, time.Now()
	var mu sync.Mutex
	for seed := *seedFlag; !enough(all) && !t.Failed(); {
		together := uint64(runtime.GOMAXPROCS(0))
		if *seedsFlag > 0 {
			together = min(together, *seedsFlag-all.histories)
		}
		t.Run("histories", func(t *testing.T) {
			for range together {
				s := usual(seed)
				seed++
				t.Run(fmt.Sprint("seed ", s.seed), func(t *testing.T) {
					t.Parallel()
					h := examine(t, s)
					mu.Lock()
					defer mu.Unlock()
					n, wins := h.accepts()
					all.histories, all.accepts, all.wins = all.histories+1, all.accepts+n, all.wins+wins
					for f, n := range h.struck {
						all.struck[f] += n
					}
				})
			}
		})
	}
	t.Logf("%d histories, %d accepts, %d wins, %d kinds of fault, %.0f accepts a second", all.histories, all.accepts, all.wins, len(all.struck),
		float64(all.accepts)/time.Since(began).Seconds())
	return all
}

// examine runs a history, and fails the test if it breaks a promise. It then prints the shortest such history that it finds.
func examine(t *testing.T, s settings) *history {
	t.Helper()
	h := live(t, s)
	n, wins := h.accepts()
	t.Logf("seed %d: %d accepts, %d wins, %d changes, faults %v", s.seed, n, wins, len(h.changes), h.struck)
	h.show(t, *showFlag, len(h.ops))
	if found := h.check(); len(found) > 0 {
		t.Errorf("seed %d: after %d accepts %d promises are broken, the first: %v\n%s", s.seed, n, len(found), found[0], s.command())
		for _, v := range found[1:min(len(found), 10)] {
			t.Log(v)
		}
		if *shrinkFlag > 0 {
			s, v, h := s.shrink(t, found[0], *shrinkFlag)
			t.Logf("shorter: %v\n%s", v, s.command())
			h.show(t, v.dispatch, 60)
		}
	}
	return h
}

// show prints at most the last so many lines of the dispatch's history.
func (h *history) show(t *testing.T, name string, most int) {
	if name == "" {
		return
	}
	var lines []string
	for line := range strings.Lines(h.String()) {
		if strings.Contains(strings.TrimSpace(line)+" ", " "+name+" ") {
			lines = append(lines, line)
		}
	}
	t.Log("\n" + strings.Join(lines[max(len(lines)-most, 0):], ""))
}

// The same seed is the same history.
func TestHistoriesFollowFromTheirSeeds(t *testing.T) {
	for k := range uint64(2) {
		s := usual(*seedFlag + k)
		s.length /= 6
		first, second := live(t, s).String(), live(t, s).String()
		if first == second {
			t.Logf("seed %d: %d lines", s.seed, strings.Count(first, "\n"))
			continue
		}
		a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
		for k := range min(len(a), len(b)) {
			if a[k] != b[k] {
				t.Fatalf("seed %d: line %d is different:\n%s\n%s", s.seed, k, strings.Join(a[max(k-3, 0):k+1], "\n"), b[k])
			}
		}
		t.Fatalf("seed %d: %d lines and %d", s.seed, len(a), len(b))
	}
}

//go:build soak

package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"firsttap/testkit"
)

// TestEachSlotOnce for as long as SOAK says, by default for 60 slots, with every strategy.
func TestSoakEachSlotOnce(t *testing.T) {
	if hasRole(t) {
		return
	}
	slotsOnce(t, ways, int(testkit.SoakTime(t)/time.Second), rand.Uint64N(1e6))
}

// How long no instance leads after a leader has stopped, and after one was killed, with each strategy.
func TestSoakSuccession(t *testing.T) {
	if hasRole(t) {
		return
	}
	const resignations, kills = 5, 3
	rows := make([]string, len(electing()))
	handOvers(t, electing(), func(i int, f *fleet) {
		rows[i] = f.way.name + "\t"
		for _, all := range [][]succession{f.succeed(resignations, (*process).quit), f.succeed(kills, (*process).kill)} {
			slices.SortFunc(all, func(a, b succession) int { return int(a.led - b.led) })
			middle := all[len(all)/2]
			rows[i] += fmt.Sprintf("%d ms\t%d ms\t%d ms\t", middle.led.Milliseconds(), all[0].led.Milliseconds(), middle.ran.Milliseconds())
		}
	})
	t.Logf("medians and the best of %d resignations and %d kills%s", resignations, kills,
		table("strategy\tresigned: another led after\tbest\tand ran\tkilled: another led after\tbest\tand ran\t", rows))
}

// TestCutOffAtAnyMoment at every millisecond.
func TestSoakCutOffAtEveryMillisecond(t *testing.T) { cutOffEvery(t, time.Millisecond) }

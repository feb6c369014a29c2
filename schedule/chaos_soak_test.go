//go:build soak

package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"firsttap/testkit"
)

// TestEachSlotOnce for as long as SOAK says, by default for 60 slots, with every strategy.
func TestSoakEachSlotOnce(t *testing.T) {
	slotsOnce(t, ways, int(testkit.SoakTime(t)/time.Second), rand.Uint64N(1e6))
}

// How long no instance leads after a leader has stopped, and after one was killed, with each strategy.
func TestSoakSuccession(t *testing.T) {
	const resignations, kills = 5, 3
	onEach(t, electing(), role{}, func(t *testing.T, f *fleet) {
		for how, all := range map[string][]succession{
			"resigned": f.succeed(resignations, (*process).quit), "killed": f.succeed(kills, (*process).kill),
		} {
			slices.SortFunc(all, func(a, b succession) int { return int(a.led - b.led) })
			middle := all[len(all)/2]
			t.Logf("a leader %s %d times: medians until another led %s and ran the job %s; the best led after %s",
				how, len(all), middle.led, middle.ran, all[0].led)
		}
		f.disband()
	})
}

// TestCutOffAtAnyMoment at every millisecond.
func TestSoakCutOffAtEveryMillisecond(t *testing.T) { cutOffEvery(t, time.Millisecond) }

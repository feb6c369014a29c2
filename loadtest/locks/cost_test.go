package locks

import (
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

var rounds = flag.Int("rounds", 101, "how many rounds the ways take turns in")

// turnTakes is the approximate time of a way's turn in a round.
const turnTakes = 8 * time.Millisecond

// TestCost prints the cost of each way without faults: one process, one command at a time, the ways in turns.
func TestCost(t *testing.T) {
	s := startSite(t)
	ways := slices.Concat(bare, lockers, libraries)
	// One client for all: the clients are not compared.
	ways = slices.DeleteFunc(ways, func(w way) bool { return w.name == "redsync" || w.name == "bsm/redislock" })
	took := takeTurns(t, ways, s)
	out := newTable(fmt.Sprintf("Acquire and release on loopback, %d rounds of turns; the ratio is to raw of the same round. Median (quartiles). "+
		"Commands are what a client sends, to all servers together, for a name that was held before.", *rounds),
		"way", "x raw", "us", "commands: acquire", "lose", "release", "how")
	for i, w := range ways {
		var ratios []float64
		for round, us := range took[i] {
			ratios = append(ratios, us/took[0][round])
		}
		acquire, lose, release := count(t, w, s)
		out.row(w.name, middle(ratios, 2), middle(took[i], 0), acquire, lose, release, w.note)
	}
	out.print()
}

// takeTurns returns the microseconds of an acquisition with its release, for each way and round.
func takeTurns(t *testing.T, ways []way, s site) [][]float64 {
	users, times, took := make([]user, len(ways)), make([]int, len(ways)), make([][]float64, len(ways))
	for i, w := range ways {
		users[i] = w.open(t, s)
		turn(t, w, users[i], 20)
		times[i] = max(5, int(float64(turnTakes.Microseconds())/turn(t, w, users[i], 20)))
	}
	for round := range *rounds {
		for k := range ways {
			i := (k + round) % len(ways)
			took[i] = append(took[i], turn(t, ways[i], users[i], times[i]))
		}
	}
	return took
}

// turn acquires and releases n times, and returns the microseconds of one.
func turn(t *testing.T, w way, u user, n int) float64 {
	start := time.Now()
	for range n {
		h, err := u(t.Context(), w.key())
		if err == nil {
			err = h.release(t.Context())
		}
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1000 / float64(n)
}

// count returns how many commands it takes to win a name, to be refused it and to release it.
func count(t *testing.T, w way, s site) (acquire, lose, release string) {
	const times = 15
	through, commands := tapped(t, s)
	winner, loser := w.open(t, through), w.open(t, through)
	var won, lost, released []float64
	for i := range times {
		if i == 0 { // the first one opens connections, loads scripts and inserts rows
			turn(t, w, winner, 2)
			turn(t, w, loser, 2)
		}
		before := settled(commands)
		h, err := winner(t.Context(), w.key())
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		won = append(won, since(commands, &before))
		if _, err := loser(t.Context(), w.key()); err == nil {
			t.Fatalf("%s: two holders", w.name)
		}
		lost = append(lost, since(commands, &before))
		if err := h.release(t.Context()); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		released = append(released, since(commands, &before))
	}
	return whole(won), whole(lost), whole(released)
}

// since returns the count since before, and updates before.
func since(commands *atomic.Int64, before *int64) float64 {
	now := settled(commands)
	n := now - *before
	*before = now
	return float64(n)
}

func whole(values []float64) string { return fmt.Sprintf("%.0f", median(values)) }

package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// dice are random numbers that follow from a seed and a name alone, so that an actor's numbers do not depend on what the others do.
type dice struct {
	*rand.Rand
	nth uint64 // of those with the same name
}

func (d *dice) chance(p float64) bool { return d.Float64() < p }

// between returns a random duration in nanoseconds. Two actors hardly ever act at the same instant, so the order of their actions does
// not depend on the scheduler.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

// cup hands out dice by name. Safe for concurrent use.
type cup struct {
	root uint64
	mu   sync.Mutex
	used map[string]uint64
}

func newCup(seed uint64) *cup { return &cup{root: seed, used: map[string]uint64{}} }

// dice returns new dice: those of the nth call with that name.
func (c *cup) dice(name string) *dice {
	c.mu.Lock()
	n := c.used[name]
	c.used[name]++
	c.mu.Unlock()
	h := fnv.New64a()
	h.Write([]byte(name))
	return &dice{rand.New(rand.NewPCG(c.root, h.Sum64()+n)), n}
}

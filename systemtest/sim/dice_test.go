//go:build soak

package sim

import (
	"hash/fnv"
	"sync"
	"time"
)

// dice are random numbers that follow from a seed and a name alone, so that an actor's numbers do not depend on what the others do.
// The algorithm is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
type dice struct{ state uint64 }

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *dice) chance(p float64) bool { return float64(d.next()>>11)/(1<<53) < p }

func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// between returns a time with nanoseconds: two actors hardly ever do something at the same instant, so that no scheduler decides who is
// first.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least))
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
	d := &dice{c.root ^ h.Sum64() ^ n*0xd1342543de82ef95}
	d.next()
	return d
}

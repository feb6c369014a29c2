package repository

import (
	"log/slog"

	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

const (
	// maxEqualTaps is how many taps of one kind a process stores. Nobody taps that often by hand, and whoever reads a dispatch's taps reads all
	// of them.
	maxEqualTaps = 100
	// maxTapKinds bounds the kinds whose taps are counted. Beyond that, the kind whose last tap is the oldest is forgotten.
	maxTapKinds = 16384
)

// tapKind is what taps have in common that repeat each other.
type tapKind struct {
	dispatch dispatch.ID
	round    int
	driver   dispatch.DriverID
	result   dispatch.AttemptResult
}

// tapCounts counts the taps that this process has stored.
type tapCounts struct {
	stored *lru.Cache[tapKind, int]
	log    *slog.Logger
}

func newTapCounts(log *slog.Logger) *tapCounts {
	stored, err := lru.New[tapKind, int](maxTapKinds)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &tapCounts{stored: stored, log: log}
}

// of returns how many taps of the kind were stored.
func (c *tapCounts) of(kind tapKind) int {
	n, _ := c.stored.Get(kind)
	return n
}

// add counts taps that were stored.
func (c *tapCounts) add(stored map[tapKind]int) {
	for kind, more := range stored {
		n := c.of(kind)
		c.stored.Add(kind, n+more)
		if n < maxEqualTaps && n+more >= maxEqualTaps {
			c.log.Warn("a driver repeats a tap without end; further taps with the same result are answered, but not stored",
				"driver", kind.driver, "dispatch", kind.dispatch, "round", kind.round, "result", kind.result, "stored", n+more)
		}
	}
}

package schedule

import (
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
)

// clock shows the database's time: instances whose own clocks differ wake for a slot together.
type clock struct {
	clockwork.Clock
	now   func() time.Time // this process's
	ahead atomic.Int64     // the database's, in nanoseconds
	read  atomic.Bool      // the database's clock, at some time
}

func newClock(now func() time.Time) *clock { return &clock{Clock: clockwork.NewRealClock(), now: now} }

// vague is how long it may take to read the database's clock, so that what it says is of use.
const vague = 200 * time.Millisecond

// set takes over what the database's clock has shown at some time since this process's showed sent, unless that is long
// ago and the clock was read before.
func (c *clock) set(shown, sent time.Time) {
	took := c.now().Sub(sent)
	if first := !c.read.Swap(true); first || took <= vague {
		c.ahead.Store(int64(shown.Sub(sent.Add(took / 2).Round(0))))
	}
}

// Now implements clockwork.Clock.
func (c *clock) Now() time.Time { return c.now().Add(time.Duration(c.ahead.Load())) }

// Since implements clockwork.Clock.
func (c *clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until implements clockwork.Clock.
func (c *clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

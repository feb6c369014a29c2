package schedule

import (
	"sync/atomic"
	"time"
)

// clock shows the database's time, so that instances whose own clocks differ wake for a slot together.
type clock struct {
	local  func() time.Time
	offset atomic.Int64              // of the database's clock from the local one, in nanoseconds
	readAt atomic.Pointer[time.Time] // when the database's clock was last read; nil if never
}

func newClock(local func() time.Time) *clock { return &clock{local: local} }

// maxReadTime is how long a reading of the database's clock may take and still correct an earlier one.
const maxReadTime = 200 * time.Millisecond

// sync sets the clock by a reading of the database's that was requested at sent, by the local clock. A slow reading is
// used only if there was none before.
func (c *clock) sync(reading, sent time.Time) {
	took, now := c.local().Sub(sent), time.Now()
	if first := c.readAt.Swap(&now) == nil; first || took <= maxReadTime {
		c.offset.Store(int64(reading.Sub(sent.Add(took / 2).Round(0))))
	}
}

func (c *clock) now() time.Time { return c.local().Add(time.Duration(c.offset.Load())) }

package lock

import (
	"fmt"
	"time"
)

// Hold says how long a name is held. The constructors return the usual holds; their fields may be changed.
type Hold struct {
	// TTL is how long the server keeps the name without a renewal.
	TTL time.Duration
	// RenewEvery is the interval between renewals, at most half of TTL; 0 means that the lease is not renewed.
	RenewEvery time.Duration
	// AtMost ends the lease even if it is renewed, so that work that hangs does not hold the name for ever; 0 sets no limit.
	AtMost time.Duration
	// Heartbeat ends the lease when the work has not called Lease.Heartbeat for that long; 0 requires no calls.
	Heartbeat time.Duration
	// AtLeast keeps the name held for that long after it was acquired, even if it is released earlier, so that an instance
	// whose clock is late does not repeat a short job. If the holder dies, the name is held for the rest of the TTL only.
	AtLeast time.Duration
	// Wait is how long Acquire waits while the name is held or the server is unavailable; 0 means a single attempt.
	Wait time.Duration
}

// Fixed holds for ttl, without renewal.
func Fixed(ttl time.Duration) Hold { return Hold{TTL: ttl} }

// Renewed holds for at most atMost while the holder is alive. The lease is renewed every third of ttl; a usual ttl is 30 s.
func Renewed(ttl, atMost time.Duration) Hold {
	return Hold{TTL: ttl, RenewEvery: ttl / 3, AtMost: atMost}
}

// Expected holds for work that should take d: the TTL is 1.5 d, the lease is renewed every d/2, and it ends after 10 d.
func Expected(d time.Duration) Hold {
	return Hold{TTL: d + d/2, RenewEvery: d / 2, AtMost: 10 * d}
}

// Between holds for at least atLeast and at most atMost, without renewal, like ShedLock's lockAtLeastFor and lockAtMostFor.
func Between(atLeast, atMost time.Duration) Hold {
	return Hold{TTL: atMost, AtLeast: atLeast}
}

// minTTL leaves time for the scheduler and the network.
const minTTL = 10 * time.Millisecond

func (h Hold) validate() error {
	problem := ""
	switch {
	case h.TTL < minTTL:
		problem = fmt.Sprintf("a TTL of %s is less than %s", h.TTL, minTTL)
	case h.RenewEvery < 0 || h.AtMost < 0 || h.Heartbeat < 0 || h.AtLeast < 0 || h.Wait < 0:
		problem = "a duration is negative"
	case h.RenewEvery > h.TTL/2:
		problem = fmt.Sprintf("a renewal every %s is too late for a TTL of %s", h.RenewEvery, h.TTL)
	case h.RenewEvery > 0 && h.AtMost == 0 && h.Heartbeat == 0:
		problem = "a renewed hold needs AtMost or Heartbeat, or work that hangs would hold the name for ever"
	case h.RenewEvery == 0 && h.Heartbeat > 0:
		problem = "a Heartbeat needs a renewed hold"
	case h.Heartbeat > 0 && h.Heartbeat < h.RenewEvery:
		problem = fmt.Sprintf("a Heartbeat of %s is shorter than the renewal interval, %s", h.Heartbeat, h.RenewEvery)
	case h.AtLeast > h.maxDuration():
		problem = fmt.Sprintf("AtLeast %s is longer than the longest hold, %s", h.AtLeast, h.maxDuration())
	}
	if problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, problem)
	}
	return nil
}

// maxDuration is the longest that a lease can last.
func (h Hold) maxDuration() time.Duration {
	switch {
	case h.RenewEvery == 0 && (h.AtMost == 0 || h.AtMost > h.TTL):
		return h.TTL
	case h.AtMost == 0:
		return 1<<63 - 1
	}
	return h.AtMost
}

// safetyMargin is how long before the server's deadline the holder ends its lease. It allows for clocks that run at
// different rates, for scheduling delays, and for the work to stop.
func safetyMargin(ttl time.Duration) time.Duration { return ttl / 10 }

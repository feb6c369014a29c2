package lock

import (
	"fmt"
	"time"
)

// Hold is how long a name is held, and how. The constructors cover what is usual; change what they return for the rest.
type Hold struct {
	// TTL is how long the server keeps the name for a holder that it does not hear from.
	TTL time.Duration
	// Every is how often the lease is renewed; 0 is never, and at most half of TTL.
	Every time.Duration
	// AtMost ends the holding, renewed or not, so that a work that hangs does not hold for ever; 0 is no such end.
	AtMost time.Duration
	// Beat ends the holding when the work has not called Lease.Beat for that long; 0 does not ask for it.
	Beat time.Duration
	// AtLeast keeps the name taken that long after it was acquired, also when it is released earlier: a short job is not
	// run again by an instance whose clock is a little late. A holder that dies keeps it for the rest of its TTL only.
	AtLeast time.Duration
	// Wait is how long Acquire waits for a name that is held or a server that is away; 0 does not wait.
	Wait time.Duration
}

// Fixed holds for ttl and no longer.
func Fixed(ttl time.Duration) Hold { return Hold{TTL: ttl} }

// Renewed holds while the holder lives, and for atMost: the lease is renewed at every third of ttl. 30 s are usual.
func Renewed(ttl, atMost time.Duration) Hold {
	return Hold{TTL: ttl, Every: ttl / 3, AtMost: atMost}
}

// Expected holds for work that is expected to take d: one and a half times that, renewed at every half of it, and no
// longer than ten times.
func Expected(d time.Duration) Hold {
	return Hold{TTL: d + d/2, Every: d / 2, AtMost: 10 * d}
}

// Between holds for at most atMost, without renewal, and keeps the name taken for atLeast. ShedLock's lockAtMostFor and
// lockAtLeastFor.
func Between(atLeast, atMost time.Duration) Hold {
	return Hold{TTL: atMost, AtLeast: atLeast}
}

// minTTL is what a scheduler and a network may take.
const minTTL = 10 * time.Millisecond

func (h Hold) validate() error {
	problem := ""
	switch {
	case h.TTL < minTTL:
		problem = fmt.Sprintf("a TTL of %s is less than %s", h.TTL, minTTL)
	case h.Every < 0 || h.AtMost < 0 || h.Beat < 0 || h.AtLeast < 0 || h.Wait < 0:
		problem = "a time is negative"
	case h.Every > h.TTL/2:
		problem = fmt.Sprintf("renewing every %s is too late for a TTL of %s", h.Every, h.TTL)
	case h.Every > 0 && h.AtMost == 0 && h.Beat == 0:
		problem = "a renewed hold needs AtMost or Beat, or work that hangs would hold for ever"
	case h.Every == 0 && h.Beat > 0:
		problem = "only a renewed hold has a Beat"
	case h.Beat > 0 && h.Beat < h.Every:
		problem = fmt.Sprintf("a Beat of %s is shorter than a renewal, %s", h.Beat, h.Every)
	case h.AtLeast > h.maxDuration():
		problem = fmt.Sprintf("AtLeast %s is longer than the longest hold, %s", h.AtLeast, h.maxDuration())
	}
	if problem != "" {
		return fmt.Errorf("%w: %s", ErrInvalid, problem)
	}
	return nil
}

// maxDuration is how long the name can be held.
func (h Hold) maxDuration() time.Duration {
	switch {
	case h.Every == 0 && (h.AtMost == 0 || h.AtMost > h.TTL):
		return h.TTL
	case h.AtMost == 0:
		return 1<<63 - 1
	}
	return h.AtMost
}

// safetyMargin is how long before the server may give the name away the holder stops trusting its lease: for clocks that run
// at different rates, a scheduler that is late, and the work to stop.
func safetyMargin(ttl time.Duration) time.Duration { return ttl / 10 }

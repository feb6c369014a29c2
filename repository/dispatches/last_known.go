package dispatches

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"firsttap/dispatch"
)

const (
	// maxKnown bounds the dispatches and the drivers that are kept: a few megabytes, or forty if all texts are as long as may be.
	maxKnown = 4096
	// maxClockDelay is the longest that a reading of the database's clock may take to replace one that was as quick.
	maxClockDelay = 50 * time.Millisecond
)

// lastKnown holds the open dispatches, the drivers and the database's clock as this process last knew them, so that a claim need
// not read them first. They may be old: a write that is based on them must name their versions. Safe for concurrent use. The nil
// lastKnown holds nothing.
type lastKnown struct {
	dispatches *lru.Cache[dispatch.ID, dispatch.Dispatch]
	drivers    *lru.Cache[dispatch.DriverID, knownDriver]
	// clock is how far the database's clock is ahead of this process's. What a claim takes for the time only decides whether it reads
	// first: the write compares with the database's clock.
	clock struct {
		sync.Mutex
		ahead       time.Duration
		read, quick bool // whether it was read, and in no more than maxClockDelay
	}
}

type knownDriver struct {
	dispatch.Driver
	updatedAt int64 // in microseconds
}

func newLastKnown() *lastKnown {
	dispatches, err := lru.New[dispatch.ID, dispatch.Dispatch](maxKnown)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	drivers, err := lru.New[dispatch.DriverID, knownDriver](maxKnown)
	if err != nil {
		panic(err)
	}
	return &lastKnown{dispatches: dispatches, drivers: drivers}
}

// claimSnapshot returns what is known of a claim of an open dispatch, and reports whether that is enough to decide on. It takes
// the driver for free, and for one who has not withdrawn from the dispatch.
func (k *lastKnown) claimSnapshot(id dispatch.ID, driver dispatch.DriverID) (claimSnapshot, bool) {
	if k == nil {
		return claimSnapshot{}, false
	}
	d, ok := k.dispatches.Get(id)
	if !ok {
		return claimSnapshot{}, false
	}
	v, ok := k.drivers.Get(driver)
	k.clock.Lock()
	ahead, read := k.clock.ahead, k.clock.read
	k.clock.Unlock()
	if !ok || !read {
		return claimSnapshot{}, false
	}
	now := NotBefore(time.Now().Add(ahead).Truncate(time.Microsecond).UTC(), d.UpdatedAt)
	return claimSnapshot{
		dispatch: d.At(dispatch.Pending, now), candidate: dispatch.Candidate{Driver: v.Driver}, driverUpdatedAt: v.updatedAt, now: now,
	}, true
}

// learnDispatch records the dispatch if it is open or will be, and forgets it if not.
func (k *lastKnown) learnDispatch(d *dispatch.Dispatch) {
	if k == nil {
		return
	}
	if d.Status == dispatch.Pending || d.Status == dispatch.Scheduled {
		k.dispatches.Add(d.ID, *d)
	} else {
		k.dispatches.Remove(d.ID)
	}
}

func (k *lastKnown) learnDriver(v *dispatch.Driver, updatedAt int64) {
	if k != nil {
		k.drivers.Add(v.ID, knownDriver{*v, updatedAt})
	}
}

// learnTime records the database's time, from the reply to a request that was sent at that time. The time is taken for that of the reply's
// arrival: an estimate that is behind costs at most a read, but one that is ahead would give an event too large an identifier.
func (k *lastKnown) learnTime(now, sent time.Time) {
	if k == nil {
		return
	}
	received := time.Now()
	k.clock.Lock()
	defer k.clock.Unlock()
	if quick := received.Sub(sent) <= maxClockDelay; quick || !k.clock.quick {
		k.clock.ahead, k.clock.read, k.clock.quick = now.Sub(received), true, quick
	}
}

// forget drops what a claim found to be old.
func (k *lastKnown) forget(id dispatch.ID, driver dispatch.DriverID) {
	k.dispatches.Remove(id)
	k.drivers.Remove(driver)
}

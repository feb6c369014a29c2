package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxOrphans bounds the goroutines that clean up; what is more ends by its TTL.
	maxOrphans = 1000
	// maxOrphanAge is how long a request that nobody answered may still arrive.
	maxOrphanAge = time.Minute
)

// orphans are grants that the server may or may not have made, or still have: an acquisition or a release got no
// answer. Each is released in the background until that is certain.
type orphans struct {
	mu    sync.Mutex
	count int
	work  sync.WaitGroup
}

// wait returns when the last is done. The Locker is closing: no more come.
func (c *orphans) wait() {
	c.mu.Lock()   // whoever saw that it was not closing has been counted
	c.mu.Unlock() //nolint:staticcheck // an empty critical section is what is wanted
	c.work.Wait()
}

// release releases grant, which ends by itself at end. A grant that was not acquired for certain may still come to be: that
// it is not found proves nothing then.
func (c *orphans) release(l *Locker, grant Grant, end time.Time, acquired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.closing:
		return
	default:
	}
	if c.count == maxOrphans {
		return
	}
	c.count++
	c.work.Go(func() {
		l.releaseOrphan(grant, end, acquired)
		c.mu.Lock()
		c.count--
		c.mu.Unlock()
	})
}

func (l *Locker) releaseOrphan(grant Grant, end time.Time, acquired bool) {
	if latest := time.Now().Add(maxOrphanAge); end.After(latest) {
		end = latest
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	for pause := minBackoff; ; pause = min(2*pause, time.Second) {
		bounded, done := context.WithTimeout(ctx, l.timeout)
		err := grant.Release(bounded, 0)
		done()
		if err == nil || acquired && errors.Is(err, ErrLost) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.closing:
			timer.Stop()
			return
		}
	}
}

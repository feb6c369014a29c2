package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxOrphans bounds the goroutines that release orphans. Orphans beyond that end by their TTL.
	maxOrphans = 1000
	// maxOrphanAge is how long an unanswered request may still reach the server.
	maxOrphanAge = time.Minute
)

// orphans are grants that may exist on the server although no lease uses them: an acquisition or a release got no answer.
// Each is released in the background until the server confirms that it is gone.
type orphans struct {
	ctx     context.Context // ends when the Locker is closed
	cancel  context.CancelFunc
	timeout time.Duration

	mu    sync.Mutex
	count int
	work  sync.WaitGroup
}

// close stops releasing and waits for the goroutines.
func (o *orphans) close() {
	o.mu.Lock() // release either counts its goroutine before this, or starts none
	o.cancel()
	o.mu.Unlock()
	o.work.Wait()
}

// release starts releasing grant, which expires by itself at end. acquired says that the server confirmed the grant: if it
// did not, the request may still arrive, and a release that finds nothing proves nothing.
func (o *orphans) release(grant Grant, end time.Time, acquired bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil || o.count == maxOrphans {
		return
	}
	o.count++
	o.work.Go(func() {
		o.retry(grant, end, acquired)
		o.mu.Lock()
		o.count--
		o.mu.Unlock()
	})
}

func (o *orphans) retry(grant Grant, end time.Time, acquired bool) {
	if latest := time.Now().Add(maxOrphanAge); end.After(latest) {
		end = latest
	}
	ctx, cancel := context.WithDeadline(o.ctx, end)
	defer cancel()
	for pause := minBackoff; ; pause = min(2*pause, time.Second) {
		if err := o.try(ctx, grant); err == nil || acquired && errors.Is(err, ErrLost) {
			return
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// try sends one release. Closing the Locker does not cancel a request that was sent.
func (o *orphans) try(ctx context.Context, grant Grant) error {
	detached, cancel := detach(ctx)
	defer cancel()
	bounded, cancel := context.WithTimeout(detached, o.timeout)
	defer cancel()
	return grant.Release(bounded, 0)
}

package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxRenewalsPerRequest = 500
	// maxRenewalRequests are sent concurrently, so that one that hangs does not delay the others.
	maxRenewalRequests = 4
)

// renewalBatcher combines renewals: those that arrive while requests are in flight share the next request. A thousand
// leases that are due at once cost a few round trips, and a single renewal is sent at once.
type renewalBatcher struct {
	client redis.UniversalClient

	mu       sync.Mutex
	waiting  []*renewal
	inFlight int // requests
}

type renewal struct {
	ctx   context.Context
	key   string
	owner string
	ttl   int64
	done  chan error // buffered: the result may come after ctx has ended
}

// extend returns when the renewal was answered, or when ctx ends.
func (r *renewalBatcher) extend(ctx context.Context, key, owner string, ttl int64) error {
	mine := &renewal{ctx, key, owner, ttl, make(chan error, 1)}
	r.mu.Lock()
	r.waiting = append(r.waiting, mine)
	if r.inFlight < maxRenewalRequests {
		r.inFlight++
		go r.send()
	}
	r.mu.Unlock()
	select {
	case err := <-mine.done:
		return err
	case <-ctx.Done():
		return unavailable(ctx, ctx.Err())
	}
}

// send sends requests until no renewal is waiting.
func (r *renewalBatcher) send() {
	for {
		batch := r.nextBatch()
		if len(batch) == 0 {
			return
		}
		r.sendBatch(batch)
	}
}

// nextBatch returns renewals whose contexts have not ended. If there are none, send has to return.
func (r *renewalBatcher) nextBatch() []*renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []*renewal
	for len(r.waiting) > 0 && len(batch) < maxRenewalsPerRequest {
		if first := r.waiting[0]; first.ctx.Err() == nil {
			batch = append(batch, first)
		}
		r.waiting = r.waiting[1:]
	}
	if len(batch) == 0 {
		r.inFlight--
		r.waiting = nil
	}
	return batch
}

func (r *renewalBatcher) sendBatch(batch []*renewal) {
	ctx, cancel := withLatestDeadline(batch)
	defer cancel()
	var unknown []*renewal // the server did not know the script
	for i, answer := range r.pipeline(ctx, batch, extendScript.EvalSha) {
		if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") {
			unknown = append(unknown, batch[i])
		} else {
			batch[i].done <- scriptError(ctx, answer)
		}
	}
	for i, answer := range r.pipeline(ctx, unknown, extendScript.Eval) {
		unknown[i].done <- scriptError(ctx, answer)
	}
}

func (r *renewalBatcher) pipeline(ctx context.Context, batch []*renewal,
	run func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd) []*redis.Cmd {
	answers := make([]*redis.Cmd, len(batch))
	// Each answer has its own error.
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, b := range batch {
			answers[i] = run(ctx, p, []string{b.key}, b.owner, b.ttl)
		}
		return nil
	})
	return answers
}

// withLatestDeadline returns a context with the latest deadline of the batch.
func withLatestDeadline(batch []*renewal) (context.Context, context.CancelFunc) {
	var latest time.Time
	for _, b := range batch {
		end, bounded := b.ctx.Deadline()
		if !bounded {
			return context.WithCancel(context.Background())
		}
		if end.After(latest) {
			latest = end
		}
	}
	return context.WithDeadline(context.Background(), latest)
}

package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxRenewalsPerRequest is how many leases share a request.
	maxRenewalsPerRequest = 500
	// maxRenewalRequests may be under way at once: one that hangs does not hold the others up.
	maxRenewalRequests = 4
)

// renewalBatcher sends extensions together: those that come while requests are under way share the next one. A thousand leases
// that are due at once cost a few round trips, and a single one does not wait for company.
type renewalBatcher struct {
	client redis.UniversalClient

	mu       sync.Mutex
	waiting  []*renewal
	inFlight int // under way
}

type renewal struct {
	ctx   context.Context
	key   string
	owner string
	ttl   int64
	done  chan error // has room for the answer
}

// extend returns when the answer is there, or ctx ends.
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

// send makes requests until nobody waits.
func (r *renewalBatcher) send() {
	for {
		batch := r.nextBatch()
		if len(batch) == 0 {
			return
		}
		r.sendBatch(batch)
	}
}

// nextBatch returns those who wait and still want an answer; nobody, and the request has ended.
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
	ctx, cancel := latestDeadline(batch)
	defer cancel()
	var unknown []*renewal // where the server does not know the script
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
	// What went wrong is in each answer.
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, b := range batch {
			answers[i] = run(ctx, p, []string{b.key}, b.owner, b.ttl)
		}
		return nil
	})
	return answers
}

// latestDeadline returns a context that lasts as long as the last of the batch waits.
func latestDeadline(batch []*renewal) (context.Context, context.CancelFunc) {
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

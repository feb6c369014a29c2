package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis keeps leases as keys with an end. It answers within its timeout, whatever becomes of the server: after a
// failure it says ErrUnavailable without asking, until a probe in the background has been answered.
//
// Safe for concurrent use. Run must be running for it to recover from a failure.
type Redis struct {
	client  redis.UniversalClient
	timeout time.Duration
	log     *slog.Logger
	down    atomic.Bool
}

// NewRedis returns leases on client. No call waits longer than timeout. The client must heed contexts
// (ContextTimeoutEnabled) and must not retry: a retried SET NX finds its own value and would report it as held.
func NewRedis(client redis.UniversalClient, timeout time.Duration, log *slog.Logger) *Redis {
	return &Redis{client: client, timeout: timeout, log: log}
}

// Lease is a name that was obtained.
type Lease struct {
	redis *Redis
	name  string
	owner string
}

// Obtain takes name for ttl at once or not at all: a HeldError says who has it, ErrUnavailable that nobody can
// tell. owner must be unique to the call. It costs one command, won or lost.
//
// After ErrUnavailable the lease may have been obtained all the same. The lease that comes with that error is for
// Release and Replace, which touch only what owner has. While Redis is taken to be away they do nothing, and the lease
// ends by itself.
func (r *Redis) Obtain(ctx context.Context, name, owner string, ttl time.Duration) (*Lease, error) {
	lease := &Lease{redis: r, name: name, owner: owner}
	if r.down.Load() {
		return lease, ErrUnavailable
	}
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	// GET makes the reply tell whose value stands in the way: no second command to find out.
	holder, err := r.client.Do(bounded, "SET", name, owner, "NX", "GET", "PX", ttl.Milliseconds()).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return lease, nil
	case err != nil:
		return lease, r.unavailable(ctx, err)
	case holder == owner:
		return lease, nil
	}
	return nil, &HeldError{Owner: holder}
}

// Owner returns who has name, "" if nobody has. ErrUnavailable that nobody can tell.
func (r *Redis) Owner(ctx context.Context, name string) (string, error) {
	if r.down.Load() {
		return "", ErrUnavailable
	}
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	owner, err := r.client.Get(bounded, name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", r.unavailable(ctx, err)
	}
	return owner, nil
}

var (
	// A release or replacement acts on the caller's own value only: the lease may have ended and the name may be
	// somebody else's by now.
	releaseScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
return 0`)
	replaceScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
  redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
  return 1
end
return 0`)
)

// Release gives the name up. ErrLost if it was no longer the lease's, ErrUnavailable if nobody can tell. It works
// after ctx has ended: a release that is given up keeps the name held for the rest of its time.
func (l *Lease) Release(ctx context.Context) error {
	return l.redis.Release(ctx, l.name, l.owner)
}

// Replace leaves owner's mark on the name for ttl, in place of the lease's. Errors as of Release.
func (l *Lease) Replace(ctx context.Context, owner string, ttl time.Duration) error {
	return l.redis.run(ctx, replaceScript, l.name, l.owner, owner, ttl.Milliseconds())
}

// Release removes owner from name, wherever owner was obtained. Errors as of [Lease.Release].
func (r *Redis) Release(ctx context.Context, name, owner string) error {
	return r.run(ctx, releaseScript, name, owner)
}

func (r *Redis) run(ctx context.Context, script *redis.Script, name string, args ...any) error {
	if r.down.Load() {
		return ErrUnavailable
	}
	ctx = context.WithoutCancel(ctx)
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n, err := script.Run(bounded, r.client, []string{name}, args...).Int()
	switch {
	case err != nil:
		return r.unavailable(ctx, err)
	case n == 0:
		return ErrLost
	}
	return nil
}

// Degraded reports whether Redis is taken to be away.
func (r *Redis) Degraded() bool { return r.down.Load() }

// unavailable says what became of a call, and takes Redis to be away unless the call ended for the caller's own reasons
// or Redis has answered, if with an error.
func (r *Redis) unavailable(caller context.Context, err error) error {
	var answered redis.Error
	if caller.Err() != nil || errors.As(err, &answered) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if !r.down.Swap(true) {
		r.log.Warn("redis is away, going on without it", "error", err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

const (
	probeEvery = 200 * time.Millisecond
	// healthyProbe is how long a Redis that is taken to be there may take over an answer that nobody waits for.
	healthyProbe = time.Second
)

// Run finds out when Redis goes away and when it is back. It returns when ctx ends.
func (r *Redis) Run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.probe(ctx)
		}
	}
}

func (r *Redis) probe(ctx context.Context) {
	timeout := healthyProbe
	if r.down.Load() {
		timeout = r.timeout
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.client.Ping(bounded).Err(); err != nil {
		_ = r.unavailable(ctx, err)
	} else if r.down.Swap(false) {
		r.log.Info("redis is back")
	}
}

// EvictionPolicy returns the server's maxmemory-policy. Under any but "noeviction" Redis may drop a lease to make
// room.
func (r *Redis) EvictionPolicy(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	info, err := r.client.InfoMap(bounded, "memory").Result()
	if err != nil {
		return "", r.unavailable(ctx, err)
	}
	return info["Memory"]["maxmemory_policy"], nil
}

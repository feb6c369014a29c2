package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Gate sheds load with keys that end: whoever is turned away costs one command. It has no renewal and no fence, as what
// stands behind it decides; for a lease to work under, see Locker. It answers within its timeout, whatever becomes of the
// server: after a failure it says ErrUnavailable without asking, until a probe in the background has been answered.
//
// Safe for concurrent use. Run must be running for it to recover from a failure.
type Gate struct {
	client  redis.UniversalClient
	timeout time.Duration
	log     *slog.Logger
	metrics *Metrics
	outages outages
}

// NewGate returns a gate on client. No call waits longer than timeout. The client must heed contexts
// (ContextTimeoutEnabled) and must not retry: a retried SET NX finds its own value and would report it as held. Attempts
// are counted in metrics, where there are any.
func NewGate(client redis.UniversalClient, timeout time.Duration, log *slog.Logger, metrics *Metrics) *Gate {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Gate{client: client, timeout: timeout, log: log, metrics: metrics}
}

// Pass is a name that was obtained.
type Pass struct {
	gate  *Gate
	name  string
	owner string
}

// Obtain takes name for ttl at once or not at all: a HeldError says who has it, ErrUnavailable that nobody can
// tell. owner must be unique to the call. It costs one command, won or lost.
//
// After ErrUnavailable the name may have been obtained all the same. The pass that comes with that error is for
// Release and Replace, which touch only what owner has. While Redis is taken to be away they do nothing, and the name
// frees itself.
func (g *Gate) Obtain(ctx context.Context, name, owner string, ttl time.Duration) (*Pass, error) {
	pass, err := g.obtain(ctx, name, owner, ttl)
	g.metrics.attempt(err)
	return pass, err
}

func (g *Gate) obtain(ctx context.Context, name, owner string, ttl time.Duration) (*Pass, error) {
	pass := &Pass{gate: g, name: name, owner: owner}
	if g.outages.now.Load() {
		return pass, ErrUnavailable
	}
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	// GET makes the reply tell whose value stands in the way: no second command to find out.
	holder, err := g.client.Do(bounded, "SET", name, owner, "NX", "GET", "PX", ttl.Milliseconds()).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return pass, nil
	case err != nil:
		return pass, g.fail(ctx, err)
	case holder == owner:
		return pass, nil
	}
	return nil, &HeldError{Owner: holder}
}

// Owner returns who has name, "" if nobody has. ErrUnavailable that nobody can tell.
func (g *Gate) Owner(ctx context.Context, name string) (string, error) {
	if g.outages.now.Load() {
		return "", ErrUnavailable
	}
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	owner, err := g.client.Get(bounded, name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", g.fail(ctx, err)
	}
	return owner, nil
}

var (
	// A release or replacement acts on the caller's own value only: its time may be over and the name may be
	// somebody else's by now.
	gateReleaseScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
return 0`)
	gateReplaceScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
  redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
  return 1
end
return 0`)
)

// Release gives the name up. ErrLost if it was no longer the pass's, ErrUnavailable if nobody can tell. It works
// after ctx has ended: a release that is given up keeps the name held for the rest of its time.
func (p *Pass) Release(ctx context.Context) error {
	return p.gate.Release(ctx, p.name, p.owner)
}

// Replace leaves owner's mark on the name for ttl, in place of the pass's. Errors as of Release.
func (p *Pass) Replace(ctx context.Context, owner string, ttl time.Duration) error {
	return p.gate.runScript(ctx, gateReplaceScript, p.name, p.owner, owner, ttl.Milliseconds())
}

// Release removes owner from name, wherever owner was obtained. Errors as of [Pass.Release].
func (g *Gate) Release(ctx context.Context, name, owner string) error {
	return g.runScript(ctx, gateReleaseScript, name, owner)
}

func (g *Gate) runScript(ctx context.Context, script *redis.Script, name string, args ...any) error {
	if g.outages.now.Load() {
		return ErrUnavailable
	}
	ctx = context.WithoutCancel(ctx)
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	n, err := script.Run(bounded, g.client, []string{name}, args...).Int()
	switch {
	case err != nil:
		return g.fail(ctx, err)
	case n == 0:
		return ErrLost
	}
	return nil
}

// Degraded reports whether the gate considers Redis unreachable.
func (g *Gate) Degraded() bool { return g.outages.now.Load() }

// DegradedFor returns how long Redis was considered unreachable since the gate was made. It never decreases.
func (g *Gate) DegradedFor() time.Duration { return g.outages.total() }

// fail says what became of a call, and takes Redis to be away unless the call ended for the caller's own reasons
// or Redis has answered, if with an error.
func (g *Gate) fail(caller context.Context, err error) error {
	var answered redis.Error
	if caller.Err() != nil || errors.As(err, &answered) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if g.outages.begin() {
		g.log.Warn("redis is away, going on without it", "error", err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

const (
	probeEvery = 200 * time.Millisecond
	// healthyProbe is how long a Redis that is taken to be there may take over an answer that nobody waits for.
	healthyProbe = time.Second
)

// Run finds out when Redis goes away and when it is back. It returns when ctx ends.
func (g *Gate) Run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.probe(ctx)
		}
	}
}

func (g *Gate) probe(ctx context.Context) {
	timeout := healthyProbe
	if g.outages.now.Load() {
		timeout = g.timeout
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := g.client.Ping(bounded).Err(); err != nil {
		_ = g.fail(ctx, err)
	} else if g.outages.end() {
		g.log.Info("redis is back")
	}
}

// EvictionPolicy returns the server's maxmemory-policy. Under any but "noeviction" Redis may drop a key to make
// room.
func (g *Gate) EvictionPolicy(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	info, err := g.client.InfoMap(bounded, "memory").Result()
	if err != nil {
		return "", g.fail(ctx, err)
	}
	return info["Memory"]["maxmemory_policy"], nil
}

// outages records whether there is an outage now, and how long all of them have lasted.
type outages struct {
	now atomic.Bool

	mu    sync.Mutex
	since time.Time     // start of the current outage
	past  time.Duration // sum of the earlier outages
}

// begin starts an outage. It reports false if there is one already.
func (o *outages) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.Swap(true) {
		return false
	}
	o.since = time.Now()
	return true
}

// end ends the outage. It reports false if there was none.
func (o *outages) end() bool {
	if !o.now.Load() {
		return false // the usual case, without the mutex
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.now.Swap(false) {
		return false
	}
	o.past += time.Since(o.since)
	return true
}

func (o *outages) total() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.Load() {
		return o.past + time.Since(o.since)
	}
	return o.past
}

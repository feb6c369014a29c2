package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Gate sheds load with Redis keys that expire: a refused call costs one command. It has no renewal and no fence, because
// the database behind it decides; for a lease to work under, see [Locker]. Every call returns within the timeout. After a
// failure, also one that Redis answers, calls return ErrUnavailable without asking Redis until a background probe has obtained a name and
// released it.
//
// It is safe for concurrent use. Run must be running, or the gate does not recover from a failure.
type Gate struct {
	client  redis.UniversalClient
	timeout time.Duration
	log     *slog.Logger
	metrics *Metrics
	outages outages
}

// NewGate returns a gate on client, whose calls wait for at most timeout. The client must obey contexts
// (ContextTimeoutEnabled) and must not retry: a retried SET NX would find its own value. metrics may be nil.
func NewGate(client redis.UniversalClient, timeout time.Duration, log *slog.Logger, metrics *Metrics) *Gate {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Gate{client: client, timeout: timeout, log: log, metrics: metrics}
}

// GateLease is a name that was obtained from a Gate.
type GateLease struct {
	gate  *Gate
	name  string
	owner string
}

// Obtain acquires name for ttl without waiting. It returns a HeldError with the owner if the name is held, and
// ErrUnavailable if Redis does not answer. If owner holds the name already, it counts as obtained, so calls that share an owner have to
// mean the same. It costs one command.
//
// With ErrUnavailable the name may have been obtained nevertheless. Obtain then also returns a lease, which is only for
// Release and Replace; both change the name only if owner holds it. While Redis is considered unreachable they do nothing,
// and the name expires.
func (g *Gate) Obtain(ctx context.Context, name, owner string, ttl time.Duration) (*GateLease, error) {
	lease, err := g.obtain(ctx, name, owner, ttl)
	g.metrics.attempt(err)
	return lease, err
}

func (g *Gate) obtain(ctx context.Context, name, owner string, ttl time.Duration) (*GateLease, error) {
	lease := &GateLease{gate: g, name: name, owner: owner}
	if g.outages.now.Load() {
		return lease, ErrUnavailable
	}
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	holder, err := g.set(bounded, name, owner, ttl)
	switch {
	case errors.Is(err, redis.Nil):
		return lease, nil
	case err != nil:
		return lease, g.fail(ctx, err)
	case holder == owner:
		return lease, nil
	}
	return nil, &HeldError{Owner: holder}
}

// set returns the owner of name if that is held, and redis.Nil if owner has obtained it.
func (g *Gate) set(ctx context.Context, name, owner string, ttl time.Duration) (holder string, err error) {
	// GET makes the reply contain the owner, which saves a second command.
	return g.client.Do(ctx, "SET", name, owner, "NX", "GET", "PX", ttl.Milliseconds()).Text()
}

// Owner returns the owner of name, "" if the name is free. It returns ErrUnavailable if Redis does not answer.
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
	// Both scripts change the key only if it has the caller's value: the caller's key may have expired, and another owner
	// may hold the name by now.
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

// Release frees the name. It returns ErrLost if the owner did not hold the name any more, and ErrUnavailable if Redis does
// not answer. It works after ctx has ended, because the name would otherwise stay held for the rest of its ttl.
func (l *GateLease) Release(ctx context.Context) error {
	return l.gate.Release(ctx, l.name, l.owner)
}

// Replace makes owner the owner of the name for ttl. Its errors are those of Release.
func (l *GateLease) Replace(ctx context.Context, owner string, ttl time.Duration) error {
	return l.gate.runScript(ctx, gateReplaceScript, l.name, l.owner, owner, ttl.Milliseconds())
}

// Release frees name if owner holds it; another process may have obtained it. Its errors are those of [GateLease.Release].
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
	switch n, err := script.Run(bounded, g.client, []string{name}, args...).Int(); {
	case err != nil:
		return g.fail(ctx, err)
	case n == 0:
		return ErrLost
	}
	return nil
}

// Degraded reports whether the gate considers Redis unavailable.
func (g *Gate) Degraded() bool { return g.outages.now.Load() }

// DegradedFor returns how long Redis was considered unavailable since the gate was made. It never decreases.
func (g *Gate) DegradedFor() time.Duration { return g.outages.total() }

// fail returns ErrUnavailable with err. It starts an outage unless the caller's context has ended, or only this name can't be used: its key
// has another type.
func (g *Gate) fail(caller context.Context, err error) error {
	if caller.Err() == nil && !redis.HasErrorPrefix(err, "WRONGTYPE") && g.outages.begin() {
		g.log.Warn("redis does not grant locks; the database alone decides until redis grants one to a probe", "error", err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

const (
	// probeEvery is the time between two probes during an outage, and healthyProbeEvery otherwise: then each call is a probe, too.
	probeEvery, healthyProbeEvery = 200 * time.Millisecond, time.Second
	// healthyProbe is the least timeout of a probe outside an outage. No call waits for it.
	healthyProbe = time.Second
	// probeNames is how many names are probed in turn in a cluster: its servers have a part of the names each.
	probeNames = 16
)

// Run probes Redis, so that the gate notices when an outage begins and ends: it obtains and releases a name that begins with prefix, as
// callers do. It returns when ctx ends.
func (g *Gate) Run(ctx context.Context, prefix string) {
	names := 1
	if _, cluster := g.client.(*redis.ClusterClient); cluster {
		names = probeNames
	}
	owner := "probe:" + rand.Text()
	for n, good := 0, 0; ctx.Err() == nil; n++ {
		if err := g.probe(ctx, fmt.Sprintf("%s{probe-%d}", prefix, n%names), owner); err != nil {
			good = 0
			_ = g.fail(ctx, err)
		} else if good++; good >= names {
			if lasted, ended := g.outages.end(); ended {
				g.log.Warn("redis grants locks again; the gate is in use", "outage", lasted)
			}
		}
		every := healthyProbeEvery
		if g.Degraded() {
			every = probeEvery
		}
		_ = sleep(ctx, every)
	}
}

// probe obtains and releases name, if it is free. Another instance's probe may have it.
func (g *Gate) probe(ctx context.Context, name, owner string) error {
	timeout := max(healthyProbe, g.timeout)
	if g.Degraded() {
		timeout = g.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := g.set(ctx, name, owner, healthyProbe); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return gateReleaseScript.Run(ctx, g.client, []string{name}, owner).Err()
}

// EvictionPolicy returns the server's maxmemory-policy. With any other than "noeviction", Redis may evict a name that is
// held.
func (g *Gate) EvictionPolicy(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	info, err := g.client.InfoMap(bounded, "memory").Result()
	if err != nil {
		return "", err
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

// end ends the outage and returns how long it lasted. It reports false if there was none.
func (o *outages) end() (lasted time.Duration, ended bool) {
	if !o.now.Load() {
		return 0, false // the usual case, without the mutex
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.now.Swap(false) {
		return 0, false
	}
	lasted = time.Since(o.since)
	o.past += lasted
	return lasted, true
}

func (o *outages) total() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.Load() {
		return o.past + time.Since(o.since)
	}
	return o.past
}

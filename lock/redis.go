package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis keeps leases as keys with a TTL, on a single server, a Sentinel's master or a Cluster. It is a Strategy, a Watcher
// and an Admin.
//
// A failover to a replica that had not received a lease frees the name in the middle of the lease, because replication is
// asynchronous; so does a flush or an eviction. The holder learns of it at its next renewal. Where that could do harm,
// check the fence on every write.
type Redis struct {
	client        redis.UniversalClient
	keys          Keys
	renewals      renewalBatcher
	subscriptions subscriptions
}

// NewRedis returns a strategy on client. The client must obey contexts (ContextTimeoutEnabled). It should not retry: if the reply to a
// release is lost and the client sends the release again, Release reports a lost lease. A client of a cluster must retry, to follow slots
// that move; there such a report may be wrong.
func NewRedis(client redis.UniversalClient, keys Keys) *Redis {
	return &Redis{
		client: client, keys: keys,
		renewals: renewalBatcher{client: client}, subscriptions: subscriptions{client: client},
	}
}

// Keys is a naming scheme for the Redis keys of names.
type Keys struct{ prefix, suffix string }

// TaggedKeys returns the scheme prefix:{name}. A Cluster keeps all keys with the same hash tag on the same server.
func TaggedKeys(prefix string) Keys { return Keys{prefix + ":{", "}"} }

// ShedLockKeys returns the scheme of ShedLock's Redis providers, prefix:environment:name. Their defaults are "job-lock" and
// "default".
func ShedLockKeys(prefix, environment string) Keys { return Keys{prefix + ":" + environment + ":", ""} }

func (k Keys) lockKey(name string) string { return k.prefix + name + k.suffix }

// fenceKey is in the same Cluster slot as the lock's key: the whole of a key without a hash tag counts as its tag.
func (k Keys) fenceKey(name string) string {
	if k.suffix == "" {
		return "{" + k.lockKey(name) + "}:fence"
	}
	return k.lockKey(name) + ":fence"
}

// releaseChannel is the Pub/Sub channel on which releases are announced.
func (k Keys) releaseChannel(name string) string { return k.lockKey(name) + ":freed" }

// fenceTTLSeconds is how long a server remembers a name's latest fence. It exceeds the likely error of a clock, so that a
// server whose clock was set back, or a replica with a slow clock that takes over, still continues from that fence. The key
// expires because the number of names is not bounded. If its fence is ahead of the clock, it lives longer by that much.
const fenceTTLSeconds = 24 * 60 * 60

// nextFence is the part of a script that computes the next fence: the server's clock in microseconds, or the latest fence
// plus one if that is larger. The clock is ahead of every fence before a flush, and comparable to the fences of other
// strategies; Lua's numbers represent it exactly until the year 2255. If a server has lost its data and its clock is
// behind, its fences are too small, and [Fences] rejects writes under them until the clock has caught up.
const nextFence = `
local fence = redis.call("INCR", KEYS[2])
local t = redis.call("TIME")
fence = math.max(fence, t[1] * 1000000 + t[2])
local ahead = math.ceil(fence / 1000000) - t[1]
redis.call("SET", KEYS[2], string.format("%.0f", fence), "EX", ahead + ARGV[1])
`

// The value of a key is the owner, a space and the fence.
var (
	// A repeated request finds its own owner, and extends the lease.
	acquireScript = redis.NewScript(`
local value = redis.call("GET", KEYS[1])
if value then
  if string.sub(value, 1, #ARGV[2]) ~= ARGV[2] then return {value, redis.call("PTTL", KEYS[1])} end
  redis.call("PEXPIRE", KEYS[1], ARGV[3])
  return tonumber(string.sub(value, #ARGV[2] + 1))
end
` + nextFence + `
redis.call("SET", KEYS[1], ARGV[2] .. string.format("%.0f", fence), "PX", ARGV[3])
return fence`)
	extendScript = redis.NewScript(`
local value = redis.call("GET", KEYS[1])
if not value then return 0 end
if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
return redis.call("PEXPIRE", KEYS[1], ARGV[2])`)
	// pcall: if the user may not PUBLISH, the name is freed nevertheless.
	freeScript = redis.NewScript(`
local value = redis.call("GET", KEYS[1])
if not value then return 0 end
if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then return -1 end
redis.call("DEL", KEYS[1])
redis.pcall("PUBLISH", ARGV[2], "")
return 1`)
	breakScript = redis.NewScript(nextFence + `
local value = redis.call("GET", KEYS[1])
local left = redis.call("PTTL", KEYS[1])
redis.call("DEL", KEYS[1])
redis.pcall("PUBLISH", ARGV[2], "")
return {fence, left, value or ""}`)
)

// ownerPrefix is the beginning of a value that belongs to owner.
func ownerPrefix(owner string) string { return owner + " " }

// parseValue returns the parts of a key's value.
func parseValue(value string) (owner string, fence int64) {
	owner, number := value, ""
	if i := strings.LastIndexByte(value, ' '); i >= 0 {
		owner, number = value[:i], value[i+1:]
	}
	fence, _ = strconv.ParseInt(number, 10, 64) // 0 if another program wrote the value
	return owner, fence
}

type redisGrant struct {
	redis *Redis
	name  string
	owner string
	fence int64
}

// Acquire implements Strategy. It costs one command.
func (r *Redis) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	g := &redisGrant{redis: r, name: name, owner: owner}
	answer, err := acquireScript.Run(ctx, r.client, []string{r.keys.lockKey(name), r.keys.fenceKey(name)},
		fenceTTLSeconds, ownerPrefix(owner), millis(ttl)).Result()
	if err != nil {
		return g, unavailable(ctx, err)
	}
	switch answer := answer.(type) {
	case int64:
		g.fence = answer
		return g, nil
	case []any:
		if len(answer) == 2 {
			value, _ := answer[0].(string)
			holder, _ := parseValue(value)
			return nil, &HeldError{Owner: holder, Remaining: remainingOf(answer[1])}
		}
	}
	return g, fmt.Errorf("%w: unexpected reply %v", ErrUnavailable, answer)
}

// remainingOf converts the reply of PTTL.
func remainingOf(answer any) time.Duration {
	ms, _ := answer.(int64)
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// millis returns ttl in milliseconds, at least one.
func millis(ttl time.Duration) int64 { return max(ttl.Milliseconds(), 1) }

// Fence implements Grant.
func (g *redisGrant) Fence() int64 { return g.fence }

// Extend implements Grant. Concurrent extensions share requests.
func (g *redisGrant) Extend(ctx context.Context, ttl time.Duration) error {
	return g.redis.renewals.extend(ctx, g.redis.keys.lockKey(g.name), ownerPrefix(g.owner), millis(ttl))
}

// Release implements Grant. It costs one command.
func (g *redisGrant) Release(ctx context.Context, keep time.Duration) error {
	key := []string{g.redis.keys.lockKey(g.name)}
	if keep > 0 {
		return scriptError(ctx, extendScript.Run(ctx, g.redis.client, key, ownerPrefix(g.owner), millis(keep)))
	}
	return scriptError(ctx, freeScript.Run(ctx, g.redis.client, key, ownerPrefix(g.owner), g.redis.keys.releaseChannel(g.name)))
}

// scriptError converts the reply of a script that checks the owner.
func scriptError(ctx context.Context, answer *redis.Cmd) error {
	n, err := answer.Int()
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case n == 0:
		return ErrExpired
	case n < 0:
		return ErrStolen
	}
	return nil
}

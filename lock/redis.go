package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis keeps leases as keys that end, on one server, or on whichever of a Sentinel's or a Cluster's servers has the key.
// It is a Strategy, a Watcher and a Registry.
//
// Replication is asynchronous: a failover to a replica that had not heard of a lease gives the name away in the middle
// of it, and so does a flush, or an eviction. The holder learns it at its next renewal. What must not happen twice even
// then is for the fence to refuse.
type Redis struct {
	client        redis.UniversalClient
	keys          Keys
	renewals      renewalBatcher
	subscriptions subscriptions
}

// NewRedis returns leases on client, which must heed contexts (ContextTimeoutEnabled) and must not retry, as those of
// [Dial].
func NewRedis(client redis.UniversalClient, keys Keys) *Redis {
	return &Redis{
		client: client, keys: keys,
		renewals: renewalBatcher{client: client}, subscriptions: subscriptions{client: client},
	}
}

// Keys says which key a name has.
type Keys struct{ prefix, suffix string }

// Tagged is prefix:{name}: what else is kept under the same hash tag is on the same server of a Cluster.
func Tagged(prefix string) Keys { return Keys{prefix + ":{", "}"} }

// ShedLock is the key of ShedLock's Redis providers, prefix:environment:name; theirs are "job-lock" and "default".
func ShedLock(prefix, environment string) Keys { return Keys{prefix + ":" + environment + ":", ""} }

func (k Keys) lockKey(name string) string { return k.prefix + name + k.suffix }

// fenceKey is in the same slot as the lock: the tag of a key without one is all of it.
func (k Keys) fenceKey(name string) string {
	if k.suffix == "" {
		return "{" + k.lockKey(name) + "}:fence"
	}
	return k.lockKey(name) + ":fence"
}

// releaseChannel is where a release is announced.
func (k Keys) releaseChannel(name string) string { return k.lockKey(name) + ":freed" }

// fenceTTLSeconds is for how many seconds a server remembers a name's last fence. It is more than clocks are wrong by: a server
// whose clock has gone back, and a replica that takes over with a clock that is behind, still know the fence that the
// next has to be larger than. The key ends, since there may be any number of names; one that is ahead of the clock lives
// for that much longer.
const fenceTTLSeconds = 24 * 60 * 60

// nextFence is the part of a script that moves the fence: to the server's clock in microseconds, and always past the last.
// The clock is past everything before a flush, and close to the fences of other strategies; a double counts it exactly
// until the year 2255. A server that has lost its data and whose clock is behind, too, gives a fence that is too small:
// what remembers fences, as [Fences] does, refuses its writes until the clock has caught up.
const nextFence = `
local fence = redis.call("INCR", KEYS[2])
local t = redis.call("TIME")
fence = math.max(fence, t[1] * 1000000 + t[2])
local ahead = math.ceil(fence / 1000000) - t[1]
redis.call("SET", KEYS[2], string.format("%.0f", fence), "EX", ahead + ARGV[1])
`

// A key's value is its owner, a space and the fence.
var (
	// A request that is repeated finds its own owner, and counts as the later one.
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
	// An announcement that is not allowed must not keep the name taken.
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

// ownerPrefix is how the value of owner's key begins.
func ownerPrefix(owner string) string { return owner + " " }

// parseValue takes a key's value apart.
func parseValue(value string) (owner string, fence int64) {
	owner, number := value, ""
	if i := strings.LastIndexByte(value, ' '); i >= 0 {
		owner, number = value[:i], value[i+1:]
	}
	fence, _ = strconv.ParseInt(number, 10, 64) // what somebody else wrote has none
	return owner, fence
}

type redisGrant struct {
	redis *Redis
	name  string
	owner string
	fence int64
}

// Acquire implements Strategy, by one command, won or lost.
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
			return nil, &HeldError{Owner: holder, Left: remainingOf(answer[1])}
		}
	}
	return g, fmt.Errorf("%w: the server answered %v", ErrUnavailable, answer)
}

// remainingOf is a PTTL's answer.
func remainingOf(answer any) time.Duration {
	ms, _ := answer.(int64)
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// millis is ttl in Redis' unit, no less than one.
func millis(ttl time.Duration) int64 { return max(ttl.Milliseconds(), 1) }

// Fence implements Grant.
func (g *redisGrant) Fence() int64 { return g.fence }

// Extend implements Grant. Leases that are extended at the same time share a request.
func (g *redisGrant) Extend(ctx context.Context, ttl time.Duration) error {
	return g.redis.renewals.extend(ctx, g.redis.keys.lockKey(g.name), ownerPrefix(g.owner), millis(ttl))
}

// Release implements Grant, by one command.
func (g *redisGrant) Release(ctx context.Context, keep time.Duration) error {
	key := []string{g.redis.keys.lockKey(g.name)}
	if keep > 0 {
		return scriptError(ctx, extendScript.Run(ctx, g.redis.client, key, ownerPrefix(g.owner), millis(keep)))
	}
	return scriptError(ctx, freeScript.Run(ctx, g.redis.client, key, ownerPrefix(g.owner), g.redis.keys.releaseChannel(g.name)))
}

// scriptError reads the answer of a script that looks at the owner.
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

package limit

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bucketScript is GCRA, after github.com/rwz/redis-gcra and github.com/go-redis/redis_rate, which has had no release since 2023,
// takes whole rates only, and has no debts. The one key holds when the bucket will be full again, in microseconds of the
// server's clock, and ends then.
//
// KEYS[1] the bucket; ARGV[1] microseconds for a token, ARGV[2] the burst, ARGV[3] how many tokens are wanted, ARGV[4] how
// many are spent already, whether they were there or not. It returns how many were taken, and in how many microseconds
// there is one more. PSETEX rather than SET: the SETs that a server counts stay those of the claims.
var bucketScript = redis.NewScript(`
local t = redis.call("TIME")
local now = t[1] * 1000000 + t[2]
local each, burst, want, spent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full = math.max(tonumber(redis.call("GET", KEYS[1]) or "0"), now) + spent * each
local took = math.max(0, math.min(want, math.floor((now - full) / each + burst + 0.000001)))
if took + spent > 0 then
  full = full + took * each
  redis.call("PSETEX", KEYS[1], math.ceil((full - now) / 1000), string.format("%.3f", full))
end
return {took, math.max(0, math.ceil(full + each - burst * each - now))}`)

func bucketKey(name string) string { return "rate:{" + name + "}" }

// tokenInterval is how long the bucket takes to have one more token.
func (l *Limiter) tokenInterval() time.Duration { return time.Duration(float64(time.Second) / l.Rate) }

// scriptArgs are the script's.
func (l *Limiter) scriptArgs(want, spent int) []any { return []any{1e6 / l.Rate, l.Burst, want, spent} }

// fetchTokens settles what c owes and takes up to a chunk, or as many as there are requests that wait: none, and how long there is
// none, or an error when Redis can't tell.
func (l *Limiter) fetchTokens(ctx context.Context, name string, c *caller) (got int, wait time.Duration, err error) {
	bounded, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	want := min(l.Burst, max(l.chunk, 1+int(c.waiting.Load())))
	got, wait, err = parseReply(bucketScript.Run(bounded, l.Redis, []string{bucketKey(name)}, l.scriptArgs(want, int(c.debt.Swap(0)))...))
	if err != nil {
		l.redisFailed(ctx, err)
	}
	return got, wait, err
}

func parseReply(cmd *redis.Cmd) (got int, wait time.Duration, err error) {
	n, err := cmd.Int64Slice()
	if err != nil {
		return 0, 0, err
	}
	if len(n) != 2 {
		return 0, 0, errors.New("the bucket answered something else")
	}
	return int(n[0]), time.Duration(n[1]) * time.Microsecond, nil
}

func redisAnswered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// debts are the chunks that were taken on credit and not settled yet, at most one for each caller.
type debts struct {
	mu   sync.Mutex
	owed map[string]*caller
	wake chan struct{}
}

func (d *debts) add(name string, c *caller) {
	d.mu.Lock()
	if len(d.owed) < maxCallers {
		d.owed[name] = c
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *debts) drain() map[string]*caller {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := maps.Clone(d.owed)
	clear(d.owed)
	return all
}

const (
	probeEvery = 200 * time.Millisecond
	// chargeTimeout bounds a pipeline of debts, for which nobody waits; settleBatch is how many it has.
	chargeTimeout  = time.Second
	maxChargeBatch = 256
)

// Run settles debts, and asks for Redis while it is away. It returns when ctx ends, at once without Redis.
func (l *Limiter) Run(ctx context.Context) {
	if l.Redis == nil {
		return
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.debts.wake:
			l.chargeDebts(ctx)
		case <-tick.C:
			if l.down.Load() {
				l.probe(ctx)
			}
		}
	}
}

func (l *Limiter) probe(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if err := l.Redis.Ping(bounded).Err(); (err == nil || redisAnswered(err)) && l.down.Swap(false) {
		l.Log.Info("redis is back: rates are limited over all instances")
	}
}

// chargeDebts takes what is owed from the common buckets. What can't be settled is forgiven: the local buckets bound it.
func (l *Limiter) chargeDebts(ctx context.Context) {
	all := l.debts.drain()
	names := make([]string, 0, maxChargeBatch)
	for name, c := range all {
		if c.debt.Swap(0) == 0 {
			continue // settled with the next chunk
		}
		if names = append(names, name); len(names) == maxChargeBatch {
			l.chargeBatch(ctx, names, all)
			names = names[:0]
		}
	}
	if len(names) > 0 {
		l.chargeBatch(ctx, names, all)
	}
}

func (l *Limiter) chargeBatch(ctx context.Context, names []string, all map[string]*caller) {
	if l.down.Load() {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, chargeTimeout)
	defer cancel()
	replies, err := l.chargePipeline(bounded, names, bucketScript.EvalSha)
	var again []string // where the script is not known: there is a new server, or one that has lost it
	for i, cmd := range replies {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			again = append(again, names[i])
			continue
		}
		l.applyDebtReply(cmd, all[names[i]])
	}
	if len(again) > 0 {
		replies, err = l.chargePipeline(bounded, again, bucketScript.Eval)
		for i, cmd := range replies {
			l.applyDebtReply(cmd, all[again[i]])
		}
	}
	if err != nil {
		l.redisFailed(ctx, err)
	}
}

// applyDebtReply has a caller who owes more than there is wait until that is made up for.
func (l *Limiter) applyDebtReply(cmd *redis.Cmd, c *caller) {
	if _, wait, err := parseReply(cmd); err == nil && wait > l.tokenInterval() {
		c.markEmpty(time.Now().Add(wait))
	}
}

// chargePipeline settles a chunk of each name at once. In a cluster each node gets its own.
func (l *Limiter) chargePipeline(ctx context.Context, names []string,
	ask func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd,
) ([]*redis.Cmd, error) {
	pipe := l.Redis.Pipeline()
	replies := make([]*redis.Cmd, len(names))
	for i, name := range names {
		replies[i] = ask(ctx, pipe, []string{bucketKey(name)}, l.scriptArgs(0, l.chunk)...)
	}
	_, err := pipe.Exec(ctx)
	return replies, err
}

// markEmpty has heard that the common bucket is empty until then.
func (c *caller) markEmpty(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.emptyUntil) {
		c.emptyUntil, c.credit = until, 0
	}
}

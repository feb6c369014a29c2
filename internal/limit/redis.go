package limit

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bucketScript implements GCRA, after github.com/rwz/redis-gcra and github.com/go-redis/redis_rate, which takes only whole
// rates and does not support debts. The key holds the time at which the bucket is full again, in microseconds of the
// server's clock, and expires then.
//
// KEYS[1] is the bucket, ARGV[1] the microseconds per token, ARGV[2] the burst, ARGV[3] the number of tokens wanted, and
// ARGV[4] the number of tokens that were spent on credit. It returns how many tokens were taken, and in how many
// microseconds there is one more. It uses PSETEX so that the server's count of SETs remains that of the claims.
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

func (l *Limiter) bucketKey(name string) string { return l.Namespace + ":rate:{" + name + "}" }

// tokenInterval is how long a bucket takes to gain one token.
func (l *Limiter) tokenInterval() time.Duration { return time.Duration(float64(time.Second) / l.Rate) }

func (l *Limiter) scriptArgs(want, spent int) []any { return []any{1e6 / l.Rate, l.Burst, want, spent} }

// fetchTokens charges c's debt and takes a chunk of tokens, or more if more requests wait. If it gets none, it returns how
// long the bucket is empty.
func (l *Limiter) fetchTokens(ctx context.Context, name string, c *caller) (got int, wait time.Duration, err error) {
	bounded, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	want := min(l.Burst, max(l.chunk, 1+int(c.waiting.Load())))
	got, wait, err = parseReply(bucketScript.Run(bounded, l.Redis, []string{l.bucketKey(name)}, l.scriptArgs(want, int(c.debt.Swap(0)))...))
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
		return 0, 0, errors.New("unexpected reply of the rate limit script")
	}
	return int(n[0]), time.Duration(n[1]) * time.Microsecond, nil
}

// debts are the callers with a chunk that was taken on credit and not charged yet.
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
	// chargeTimeout bounds a pipeline that charges debts, unless Timeout is longer. No request waits for it.
	chargeTimeout  = time.Second
	maxChargeBatch = 256
	// probeNames is how many buckets are probed in turn in a cluster: its servers have a part of the buckets each.
	probeNames = 16
)

// Run charges debts in the background, and probes Redis while it is unavailable. It returns when ctx ends, or at once if
// there is no Redis.
func (l *Limiter) Run(ctx context.Context) {
	if l.Redis == nil {
		return
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	names := 1
	if _, cluster := l.Redis.(*redis.ClusterClient); cluster {
		names = probeNames
	}
	good := 0 // probes in a row, during an outage
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.debts.wake:
			l.chargeDebts(ctx)
		case <-tick.C:
			if l.down.Load() == nil {
				continue
			}
			if l.probe(ctx, good) != nil {
				good = 0
			} else if good++; good >= names {
				l.redisCounts()
				good = 0
			}
		}
	}
}

// probe takes a token from the bucket with that number, which is nobody's, as a request does from its caller's.
func (l *Limiter) probe(ctx context.Context, n int) error {
	bounded, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	bucket := l.bucketKey("probe-" + strconv.Itoa(n))
	_, _, err := parseReply(bucketScript.Run(bounded, l.Redis, []string{bucket}, l.scriptArgs(1, 0)...))
	return err
}

// redisCounts ends an outage.
func (l *Limiter) redisCounts() {
	if since := l.down.Swap(nil); since != nil {
		l.Log.Warn("redis counts requests again; the instances share their limits", "outage", time.Since(*since))
	}
}

// chargeDebts charges all debts to the shared buckets. A debt that can't be charged is dropped; the local bucket bounds it.
func (l *Limiter) chargeDebts(ctx context.Context) {
	all := l.debts.drain()
	names := make([]string, 0, maxChargeBatch)
	for name, c := range all {
		if c.debt.Swap(0) == 0 {
			continue // fetchTokens has charged it
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
	if l.down.Load() != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, max(chargeTimeout, l.Timeout))
	defer cancel()
	replies, err := l.chargePipeline(bounded, names, bucketScript.EvalSha)
	var again []string // the server did not know the script
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

// applyDebtReply makes a caller wait if it spent more on credit than its bucket held.
func (l *Limiter) applyDebtReply(cmd *redis.Cmd, c *caller) {
	if _, wait, err := parseReply(cmd); err == nil && wait > l.tokenInterval() {
		c.markEmpty(time.Now().Add(wait))
	}
}

// chargePipeline charges a chunk to each name's bucket, with one pipeline per Redis node.
func (l *Limiter) chargePipeline(ctx context.Context, names []string,
	run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd,
) ([]*redis.Cmd, error) {
	pipe := l.Redis.Pipeline()
	replies := make([]*redis.Cmd, len(names))
	for i, name := range names {
		replies[i] = run(ctx, pipe, []string{l.bucketKey(name)}, l.scriptArgs(0, l.chunk)...)
	}
	_, err := pipe.Exec(ctx)
	return replies, err
}

// markEmpty records that the shared bucket is empty until that time, and drops the credit.
func (c *caller) markEmpty(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.emptyUntil) {
		c.emptyUntil, c.credit = until, 0
	}
}

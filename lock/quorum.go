package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Quorum holds a name on most of several independent Redis servers: it goes on while a minority of them is away. The
// algorithm is Redlock (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with two additions: a
// fence that grows from holder to holder, whichever majority each of them had, and a server that comes back empty is
// asked again by whoever holds.
//
// It takes clocks that run at about the same rate. A server that forgets a lease, in a restart without persistence, must
// stay away for the longest TTL, or a majority can be had twice. It is a Strategy and a Registry.
type Quorum struct{ nodes []*Redis }

// NewQuorum returns a quorum of nodes: an odd number of at least three, no two of which are the same server or
// replicas of each other, all with the same keys. The timeout of their clients is what one that is away costs at most.
func NewQuorum(nodes ...*Redis) (*Quorum, error) {
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		return nil, fmt.Errorf("%w: a quorum has 3, 5, 7, ... servers, not %d", ErrInvalid, len(nodes))
	}
	return &Quorum{nodes}, nil
}

const (
	// splitTries is how often a vote that nobody won is held again, after a pause of up to splitPause: among many who
	// ask at once one should get the name, as elsewhere.
	splitTries = 5
	splitPause = 20 * time.Millisecond
)

// raiseFenceScript moves a fence up to at least the given one, if the owner, where one is given, still has the name. A fence
// that is ahead of the server's clock lives until the clock is past it.
var raiseFenceScript = redis.NewScript(`
if ARGV[2] ~= "" then
  local value = redis.call("GET", KEYS[1])
  if not value or string.sub(value, 1, #ARGV[2]) ~= ARGV[2] then return 0 end
  redis.call("SET", KEYS[1], ARGV[2] .. ARGV[3], "KEEPTTL")
end
local fence = tonumber(ARGV[3])
if (tonumber(redis.call("GET", KEYS[2])) or 0) < fence then
  local ahead = math.max(math.ceil(fence / 1000000) - redis.call("TIME")[1], 0)
  redis.call("SET", KEYS[2], ARGV[3], "EX", ahead + ARGV[1])
end
return 1`)

func (r *Redis) raiseFence(ctx context.Context, name, mark string, fence int64) error {
	return scriptError(ctx, raiseFenceScript.Run(ctx, r.client, []string{r.keys.lockKey(name), r.keys.fenceKey(name)},
		fenceTTLSeconds, mark, fence))
}

// Acquire implements Strategy. It costs two commands a server, one where it fails. A loser may hear of the winner, or of
// another loser who has got in the way.
func (q *Quorum) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		g := &quorumGrant{quorum: q, name: name, owner: owner, missing: make([]atomic.Bool, len(q.nodes))}
		if try > 1 { // votes of an earlier try, taken back late, are none of this one's
			g.owner = fmt.Sprintf("%s.%d", owner, try)
		}
		for _, node := range q.nodes {
			g.grants = append(g.grants, &redisGrant{redis: node, name: name, owner: g.owner})
			g.acquired = append(g.acquired, make(chan struct{}))
		}
		err := g.vote(ctx, ttl)
		if err == nil {
			return g, nil
		}
		undone := g.rollBack(context.WithoutCancel(ctx))
		switch {
		case !errors.Is(err, ErrHeld):
			return g, err
		case undone != nil:
			return g, undone
		case !errors.Is(err, errSplit) || try == splitTries || sleep(ctx, rand.N(splitPause)) != nil:
			return nil, err
		}
	}
}

// errSplit says that nobody has the majority.
var errSplit = fmt.Errorf("%w: the vote is split", ErrHeld)

type quorumGrant struct {
	quorum   *Quorum
	name     string
	owner    string
	fence    int64
	grants   []*redisGrant
	acquired []chan struct{} // closed when a server's acquisition is over: it may be late, and must not come after a release
	missing  []atomic.Bool   // the servers that had no trace of the name at the last renewal
}

// vote votes, and makes the fence known to a majority: the next majority has one of them in it.
func (g *quorumGrant) vote(ctx context.Context, ttl time.Duration) error {
	granted, v := askAll(ctx, len(g.grants), func(ctx context.Context, i int) (Grant, error) {
		defer close(g.acquired[i])
		return g.quorum.nodes[i].Acquire(ctx, g.name, g.owner, ttl)
	}, votes.decided)
	if v.yes < v.majority {
		return v.heldError()
	}
	for i, err := range v.answers {
		if err == nil {
			g.fence = max(g.fence, granted[i].Fence())
		}
	}
	raised := g.quorum.askAll(ctx, func(ctx context.Context, i int) error {
		return g.quorum.nodes[i].raiseFence(ctx, g.name, ownerPrefix(g.owner), g.fence)
	}, votes.decided)
	if raised.yes < raised.majority {
		return raised.unavailable(ctx)
	}
	return nil
}

// Fence implements Grant.
func (g *quorumGrant) Fence() int64 { return g.fence }

// Extend implements Grant. A server that came back empty gets the lease and its fence again, and its vote counts from the
// next renewal.
func (g *quorumGrant) Extend(ctx context.Context, ttl time.Duration) error {
	v := g.quorum.askAll(ctx, func(ctx context.Context, i int) error {
		if g.missing[i].Load() {
			return errors.Join(ErrExpired, g.heal(ctx, i, ttl))
		}
		err := g.grants[i].Extend(ctx, ttl)
		g.missing[i].Store(errors.Is(err, ErrExpired))
		return err
	}, votes.decided)
	switch {
	case v.yes >= v.majority:
		return nil
	case v.no > len(g.grants)-v.majority:
		return v.firstOf(ErrStolen, ErrExpired)
	}
	return v.unavailable(ctx)
}

func (g *quorumGrant) heal(ctx context.Context, i int, ttl time.Duration) error {
	_, err := g.quorum.nodes[i].Acquire(ctx, g.name, g.owner, ttl)
	if err == nil {
		err = g.quorum.nodes[i].raiseFence(ctx, g.name, ownerPrefix(g.owner), g.fence)
	}
	g.missing[i].Store(err != nil)
	return err
}

// Release implements Grant. It asks every server, and is done when that is decided: what a minority still has ends by
// itself.
func (g *quorumGrant) Release(ctx context.Context, keep time.Duration) error {
	v := g.release(ctx, keep, votes.decided)
	switch {
	case v.yes >= v.majority:
		return nil
	case v.no > len(g.grants)-v.majority:
		return v.firstOf(ErrStolen, ErrExpired)
	}
	return v.unavailable(ctx)
}

// rollBack takes back the votes of an acquisition that failed; nil when a majority has answered.
func (g *quorumGrant) rollBack(ctx context.Context) error {
	if v := g.release(ctx, 0, votes.answered); !v.answered() {
		return v.unavailable(ctx)
	}
	return nil
}

func (g *quorumGrant) release(ctx context.Context, keep time.Duration, enough func(votes) bool) votes {
	return g.quorum.askAll(ctx, func(ctx context.Context, i int) error {
		select {
		case <-g.acquired[i]:
			return g.grants[i].Release(ctx, keep)
		case <-ctx.Done():
			return unavailable(ctx, ctx.Err())
		}
	}, enough)
}

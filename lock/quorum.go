package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Quorum holds a name on a majority of independent Redis servers, so that it works while a minority is unavailable. It is
// a Strategy and an Admin. The algorithm is Redlock (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/)
// with two additions: the fence grows from holder to holder, whatever majorities they had; and a holder acquires its name
// again on a server that has lost its data.
//
// The servers' clocks must run at about the same rate. A server that restarts without persistence must stay stopped for
// the longest TTL, or two holders can have a majority.
type Quorum struct{ nodes []*Redis }

// NewQuorum returns a quorum of nodes: an odd number, at least three, with the same keys on different servers that do not
// replicate each other. The timeout of a node's client bounds how long an unavailable server delays an operation.
func NewQuorum(nodes ...*Redis) (*Quorum, error) {
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		return nil, fmt.Errorf("%w: a quorum has 3, 5, 7, ... servers, not %d", ErrInvalid, len(nodes))
	}
	return &Quorum{nodes}, nil
}

const (
	// splitTries is how many times an acquisition votes if no candidate gets a majority, with pauses of up to splitPause,
	// so that of many concurrent candidates one usually succeeds, as with other strategies.
	splitTries = 5
	splitPause = 20 * time.Millisecond
)

// raiseFenceScript raises a fence to at least the given value. If an owner is given, it must still hold the name. A fence
// that is ahead of the server's clock lives longer by that much.
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

// Acquire implements Strategy. It costs two commands per server, also if it is refused and undone, and a third if it fails after a majority
// has granted the name. Candidates that split the servers try again, a few times. The HeldError of a refusal may name another candidate
// that failed too.
func (q *Quorum) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		g := &quorumGrant{
			quorum:  q,
			name:    name,
			owner:   owner,
			missing: make([]atomic.Pointer[error], len(q.nodes)),
			healing: make([]sync.Mutex, len(q.nodes)),
		}
		if try > 1 { // a late rollback of an earlier try must not remove this try's votes
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
		rollbackErr := g.rollBack(context.WithoutCancel(ctx))
		switch {
		case !errors.Is(err, ErrHeld):
			return g, err
		case rollbackErr != nil:
			return g, rollbackErr
		case !errors.Is(err, errSplit) || try == splitTries || sleep(ctx, rand.N(splitPause)) != nil:
			return nil, err
		}
	}
}

// errSplit means that no candidate has a majority.
var errSplit = fmt.Errorf("%w: no candidate has a majority of the servers", ErrHeld)

type quorumGrant struct {
	quorum   *Quorum
	name     string
	owner    string
	fence    int64
	grants   []*redisGrant
	acquired []chan struct{}         // closed when a server's acquisition has returned, which its release has to wait for
	missing  []atomic.Pointer[error] // the answer of a server that has to get the name again; nil if it need not
	healing  []sync.Mutex            // held while a server acquires the name again, which its release has to wait for
}

// vote acquires the name on a majority, and then raises the fence on a majority. The next holder's majority shares a server
// with that one, so its fence is larger.
func (g *quorumGrant) vote(ctx context.Context, ttl time.Duration) error {
	granted, v := askAll(ctx, len(g.grants), func(ctx context.Context, i int) (Grant, error) {
		defer close(g.acquired[i])
		grant, err := g.quorum.nodes[i].Acquire(ctx, g.name, g.owner, ttl)
		if errors.Is(err, ErrUnavailable) {
			g.missing[i].Store(&err)
		}
		return grant, err
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

// Extend implements Grant. It acquires the name again on a server that has lost its data, unless the answers say that the name
// is lost: then such a vote would count against the next candidate. A restored vote counts from the next renewal on.
func (g *quorumGrant) Extend(ctx context.Context, ttl time.Duration) error {
	v := g.quorum.askAll(ctx, func(ctx context.Context, i int) error { return g.extendOn(ctx, i, ttl) }, votes.decided)
	err := v.ownershipError(ctx)
	if errors.Is(err, ErrLost) || v.isStolen() {
		return err
	}
	for i := range g.missing {
		if g.missing[i].Load() != nil && g.healing[i].TryLock() {
			go g.heal(ctx, i, ttl)
		}
	}
	return err
}

// extendOn extends the lease on one server. While the name is being acquired there, for the first time or again, the answer is
// unknown: the vote may count already. It is unknown too if that acquisition was not answered.
func (g *quorumGrant) extendOn(ctx context.Context, i int, ttl time.Duration) error {
	select {
	case <-g.acquired[i]:
	default:
		return unavailable(ctx, errors.New("lock: the name is being acquired"))
	}
	if g.missing[i].Load() != nil {
		if !g.healing[i].TryLock() {
			return unavailable(ctx, errors.New("lock: the name is being restored"))
		}
		why := g.missing[i].Load()
		g.healing[i].Unlock()
		if why != nil {
			return *why
		}
	}
	err := g.grants[i].Extend(ctx, ttl)
	if errors.Is(err, ErrExpired) {
		g.missing[i].CompareAndSwap(nil, &err) // the answer may be older than one to a restoration
	}
	return err
}

// heal acquires the name on a server that does not know it, and raises the fence there. If one of them fails, the next renewal does
// both again. The caller has locked g.healing[i].
func (g *quorumGrant) heal(ctx context.Context, i int, ttl time.Duration) {
	defer g.healing[i].Unlock()
	ctx, cancel := detach(ctx)
	defer cancel()
	_, err := g.quorum.nodes[i].Acquire(ctx, g.name, g.owner, ttl)
	if err == nil {
		err = g.quorum.nodes[i].raiseFence(ctx, g.name, ownerPrefix(g.owner), g.fence)
	}
	if err != nil {
		g.missing[i].Store(&err)
		return
	}
	g.missing[i].Store(nil)
}

// Release implements Grant. It asks every server and returns when a majority has decided. What remains on a minority
// expires.
func (g *quorumGrant) Release(ctx context.Context, keep time.Duration) error {
	return g.release(ctx, keep, votes.decided).ownershipError(ctx)
}

// rollBack releases the votes of a failed acquisition. It returns nil if a majority answered.
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
			g.healing[i].Lock()
			defer g.healing[i].Unlock()
			return g.grants[i].Release(ctx, keep)
		case <-ctx.Done():
			return unavailable(ctx, ctx.Err())
		}
	}, enough)
}

package locks

import (
	"context"
	"strings"
	"testing"
	"time"
)

// ttl is how long a server keeps a name without a renewal, in each way.
const ttl = 3 * time.Second

// way is one of the ways to give a name a single owner.
type way struct {
	name string
	note string // how it is used
	ours bool
	open func(t *testing.T, s site) user
}

// key is a name that no other way uses, as two ways may use the same key for it.
func (w way) key() string { return strings.ReplaceAll(w.name, " ", "-") }

// user takes part in a way, with a client of its own. It asks for the name once, without waiting, and returns an error if
// it is refused.
type user func(ctx context.Context, name string) (*held, error)

// held is an acquired name.
type held struct {
	work    context.Context                 // ends when the way notices the loss of the name; nil if it does not check
	extend  func(ctx context.Context) error // nil if the way renews by itself
	release func(ctx context.Context) error
}

// keep returns the context of the work under h. For ways that do not renew by themselves, a ticker renews every third of
// the TTL, and the first failure ends the work.
func (h *held) keep(ctx context.Context) context.Context {
	if h.extend == nil {
		return h.work
	}
	work, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-work.Done():
				return
			case <-tick.C:
			}
			if err := h.extend(work); err != nil {
				cancel(err)
			}
		}
	}()
	return work
}

// A strict client heeds contexts, never retries and waits 1 s at most, like FirstTap's. The other libraries' documentation
// does not ask for one.
var (
	libraries = []way{
		{"redsync", "client of its README, Extend by a ticker every TTL/3", false, redsyncOn(plainClient)},
		{"redsync, strict client", "strict client, Extend by a ticker every TTL/3", false, redsyncOn(strictClient)},
		{"bsm/redislock", "client of its README, Refresh by a ticker every TTL/3", false, bsmOn(plainClient)},
		{"bsm/redislock, strict client", "strict client, Refresh by a ticker every TTL/3", false, bsmOn(strictClient)},
		{"rueidislock", "options of its README for one Redis, renews by itself every TTL/2", false, openRueidis},
	}
	lockers = []way{
		{"FirstTap Redis", "Locker with Renewed, every TTL/3", true, openRedis},
		{"FirstTap quorum", "Locker with Renewed, 3 Redis servers", true, openQuorum},
		{"FirstTap table", "Locker with Renewed, MariaDB, ShedLock's table", true, openTable},
		{"FirstTap named", "Locker with Renewed, MariaDB, GET_LOCK", true, openNamed},
		{"FirstTap rows", "Locker with Renewed, MariaDB, FOR UPDATE SKIP LOCKED", true, openRows},
	}
	bare = []way{
		{"raw", "SET NX PX, and a script that deletes what is its own", false, openRaw},
		{"FirstTap Gate", "the accept path's: no renewal, no fence", true, openGate},
		{"FirstTap Redis, strategy alone", "a fence, but neither trust nor renewal", true, openStrategy},
	}
)

package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/internal/redisclient"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// plainClient is the client of the libraries' documentation, with go-redis' default timeouts and retries.
func plainClient(t *testing.T, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// strictClient is the client that FirstTap uses.
func strictClient(t *testing.T, addr string) redis.UniversalClient {
	client, err := redisclient.Dial("redis://"+addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func redsyncOn(dial func(*testing.T, string) redis.UniversalClient) func(*testing.T, site) user {
	return func(t *testing.T, s site) user {
		rs := redsync.New(goredis.NewPool(dial(t, s.redis[0])))
		return func(ctx context.Context, name string) (*held, error) {
			mutex := rs.NewMutex(name, redsync.WithExpiry(ttl))
			if err := mutex.TryLockContext(ctx); err != nil {
				return nil, err
			}
			return &held{
				extend:  func(ctx context.Context) error { return done(mutex.ExtendContext(ctx)) },
				release: func(ctx context.Context) error { return done(mutex.UnlockContext(ctx)) },
			}, nil
		}
	}
}

// done turns redsync's two results into one error.
func done(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("refused")
	}
	return err
}

func bsmOn(dial func(*testing.T, string) redis.UniversalClient) func(*testing.T, site) user {
	return func(t *testing.T, s site) user {
		locker := redislock.New(dial(t, s.redis[0]))
		return func(ctx context.Context, name string) (*held, error) {
			l, err := locker.Obtain(ctx, name, ttl, nil)
			if err != nil {
				return nil, err
			}
			return &held{
				extend:  func(ctx context.Context) error { return l.Refresh(ctx, ttl, nil) },
				release: l.Release,
			}, nil
		}
	}
}

func openRueidis(t *testing.T, s site) user {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.redis[0]}},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: ttl,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return func(ctx context.Context, name string) (*held, error) {
		work, cancel, err := locker.TryWithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return &held{work: work, release: func(context.Context) error { cancel(); return nil }}, nil
	}
}

var rawRelease = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
return 0`)

func openRaw(t *testing.T, s site) user {
	client := strictClient(t, s.redis[0])
	return func(ctx context.Context, name string) (*held, error) {
		owner := newOwner()
		got, err := client.Do(ctx, "SET", name, owner, "NX", "PX", ttl.Milliseconds()).Text()
		if err != nil || got != "OK" {
			return nil, errors.Join(errors.New("held"), err)
		}
		return &held{release: func(ctx context.Context) error {
			n, err := rawRelease.Run(ctx, client, []string{name}, owner).Int()
			return done(n == 1, err)
		}}, nil
	}
}

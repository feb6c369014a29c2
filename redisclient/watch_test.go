package redisclient

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/servertest"
)

// Whoever watches hears of each command and of how it ended, but not of one that waits for something to happen.
func TestWatchRedis(t *testing.T) {
	server := servertest.StartRedis(t)
	client, err := Dial(server.URL(), 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var mu sync.Mutex
	var asked []string
	var failed []error
	Observe(client, func(ctx context.Context, command string) (context.Context, func(error)) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, command)
		return ctx, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}
	})
	ctx := t.Context()
	client.Do(ctx, "SET", "a", "b", "NX", "GET", "PX", 1000) // there is nothing to GET
	client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, "a").Err() })
	client.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: time.Millisecond})
	client.LPush(ctx, "a", "not a list")
	if c := Pool(client); c.Open < 1 || c.Open < c.Idle {
		t.Errorf("%+v", c)
	}
	server.Kill()
	client.Ping(ctx)
	if want := []string{"set", "pipeline", "lpush", "ping"}; !slices.Equal(asked, want) {
		t.Errorf("it heard of %v, want %v", asked, want)
	}
	var refused redis.Error
	if len(failed) != 4 || failed[0] != nil || failed[1] != nil || !errors.As(failed[2], &refused) || failed[3] == nil {
		t.Errorf("they ended with %v", failed)
	}
}

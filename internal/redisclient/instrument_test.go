package redisclient

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
)

// The observer is called for each command with its result, but not for a command that waits for entries.
func TestInstrument(t *testing.T) {
	server := servertest.StartRedis(t)
	client, err := Dial(server.URL(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var mu sync.Mutex
	var commands []string
	var results []error
	Instrument(client, func(ctx context.Context, command string) (context.Context, func(error)) {
		mu.Lock()
		defer mu.Unlock()
		commands = append(commands, command)
		return ctx, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, err)
		}
	})
	ctx := t.Context()
	client.Do(ctx, "SET", "a", "b", "NX", "GET", "PX", 3_600_000) // answers nil
	client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, "a").Err() })
	client.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "$"}, Block: time.Millisecond})
	client.LPush(ctx, "a", "not a list")
	server.Kill()
	client.Ping(ctx)
	if want := []string{"set", "pipeline", "lpush", "ping"}; !slices.Equal(commands, want) {
		t.Errorf("observed %v, want %v", commands, want)
	}
	var refused redis.Error
	if len(results) != 4 || results[0] != nil || results[1] != nil || !errors.As(results[2], &refused) || results[3] == nil {
		t.Errorf("the results are %v", results)
	}
}

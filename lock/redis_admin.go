package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// List implements Admin. It scans all keys of the servers.
func (r *Redis) List(ctx context.Context) ([]Holder, error) {
	names, err := r.heldNames(ctx)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	var found []Holder
	for _, name := range names {
		h, err := r.Show(ctx, name)
		if err != nil {
			return nil, err
		}
		if h.Owner != "" {
			found = append(found, h)
		}
	}
	return found, nil
}

func (r *Redis) heldNames(ctx context.Context) ([]string, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.scan(ctx, r.client)
	}
	var mu sync.Mutex
	var all []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		names, err := r.scan(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, names...)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// scan returns the sorted names that have a key on the server.
func (r *Redis) scan(ctx context.Context, server redis.Cmdable) ([]string, error) {
	var names []string
	const pageSize = 1000
	keys := server.Scan(ctx, 0, globEscaper.Replace(r.keys.prefix)+"*"+r.keys.suffix, pageSize).Iterator()
	for keys.Next(ctx) {
		name := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), r.keys.prefix), r.keys.suffix)
		if checkName(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), keys.Err()
}

// globEscaper escapes the special characters of a SCAN pattern.
var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// Show implements Admin.
func (r *Redis) Show(ctx context.Context, name string) (Holder, error) {
	var value *redis.StringCmd
	var left *redis.DurationCmd
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		value, left = p.Get(ctx, r.keys.lockKey(name)), p.PTTL(ctx, r.keys.lockKey(name))
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Holder{}, unavailable(ctx, err)
	}
	h := Holder{Name: name, Remaining: max(left.Val(), 0)}
	h.Owner, h.Fence = parseValue(value.Val())
	return h, nil
}

// Break implements Admin.
func (r *Redis) Break(ctx context.Context, name string) (Holder, error) {
	answer, err := breakScript.Run(ctx, r.client, []string{r.keys.lockKey(name), r.keys.fenceKey(name)},
		fenceTTLSeconds, r.keys.releaseChannel(name)).Slice()
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	if len(answer) != 3 {
		return Holder{}, fmt.Errorf("%w: unexpected reply %v", ErrUnavailable, answer)
	}
	h := Holder{Name: name, Remaining: remainingOf(answer[1])}
	h.Fence, _ = answer[0].(int64)
	value, _ := answer[2].(string)
	h.Owner, _ = parseValue(value)
	return h, nil
}

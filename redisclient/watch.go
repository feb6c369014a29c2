package redisclient

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// Client is what Dial returns.
type Client = redis.UniversalClient

// Watch is told of a command before it is sent, and calls what it returns with the command's error when it was answered.
// It may put something into the context that the command is sent with. It is called by many at once.
type Watch func(ctx context.Context, command string) (context.Context, func(err error))

// Observe has watch told of every command of client's but those that wait for something to happen, and those with which
// a connection begins. What was pipelined is one command named pipeline; that there was nothing to find is no error.
func Observe(client Client, watch Watch) { client.AddHook(hook{watch}) }

type hook struct{ watch Watch }

func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := cmd.Name()
		switch name {
		case "xread", "hello", "client":
			return next(ctx, cmd)
		}
		ctx, answered := h.watch(ctx, name)
		err := next(ctx, cmd)
		answered(failure(err))
		return err
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, answered := h.watch(ctx, "pipeline")
		err := next(ctx, cmds)
		answered(failure(err))
		return err
	}
}

func failure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

package redisclient

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// Client is what Dial returns.
type Client = redis.UniversalClient

// Observer is called before a command is sent. The function that it returns is called with the command's error when the
// command has been answered. The command is sent with the context that it returns. It must be safe for concurrent use.
type Observer func(ctx context.Context, command string) (context.Context, func(err error))

// Instrument calls observer for each command of client, except for XREAD, which waits for entries, and for the commands that
// open a connection. A pipeline counts as one command with the name "pipeline". A missing key is no error.
func Instrument(client Client, observer Observer) { client.AddHook(hook{observer}) }

type hook struct{ observer Observer }

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := cmd.Name()
		switch name {
		case "xread", "hello", "client":
			return next(ctx, cmd)
		}
		ctx, done := h.observer(ctx, name)
		err := next(ctx, cmd)
		done(failure(err))
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, done := h.observer(ctx, "pipeline")
		err := next(ctx, cmds)
		done(failure(err))
		return err
	}
}

func failure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

package redisclient

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo sends the messages of the Redis library to log, at level debug: each error is also returned, and logged where it is handled.
// Without it the library writes text to stderr. It holds for all clients of the process.
func LogTo(log *slog.Logger) { redis.SetLogger(libraryLog{log}) }

type libraryLog struct{ log *slog.Logger }

// Printf implements the library's interface.
func (l libraryLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "the Redis library reports: "+fmt.Sprintf(format, args...))
}

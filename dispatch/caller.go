package dispatch

import "context"

// Caller is who asks for something, and in which request. It travels with the request's context, and is written down with
// whatever the request changes.
type Caller struct {
	Actor   string // a driver's or a key's identifier
	Request string
	App     string // the version that the driver's app says it is, "" if it does not
}

type callerKey struct{}

// WithCaller returns a context of that caller's request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns whose request the context is of; System's, and no request, if nobody's.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Actor: System}
}

package app

import (
	"context"
	"sync"

	"firsttap/dispatch"
)

// group is a set of background goroutines that are canceled together.
type group struct {
	sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// newGroup returns a group whose work goes on after ctx, until end.
func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

// end cancels the work and waits until it has ended.
func (g *group) end() error {
	g.cancel()
	g.Wait()
	return nil
}

// commits announces what this process has committed to the parts that subscribed. The zero value is ready. Safe for
// concurrent use.
type commits struct {
	mu        sync.RWMutex
	listeners []commitListener
}

type commitListener func(dispatch.Dispatch, []dispatch.Event)

// subscribe registers listener, which is called after every later commit and must not block.
func (c *commits) subscribe(listener commitListener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

func (c *commits) announce(d dispatch.Dispatch, events []dispatch.Event) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, listener := range c.listeners {
		listener(d, events)
	}
}

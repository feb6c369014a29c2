package lock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Strategy, a Watcher and an Admin for names within one process.
type Memory struct {
	mu       sync.Mutex
	held     map[string]*memoryGrant
	fence    int64 // the latest, of all names
	watchers watchers
}

// NewMemory returns a Memory without held names.
func NewMemory() *Memory {
	return &Memory{held: map[string]*memoryGrant{}, watchers: watchers{}}
}

type memoryGrant struct {
	memory *Memory
	name   string
	owner  string
	fence  int64
	end    time.Time
}

// Acquire implements Strategy.
func (m *Memory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if g := m.holder(name, now); g != nil && g.owner != owner {
		return nil, &HeldError{Owner: g.owner, Remaining: g.end.Sub(now)}
	}
	g := &memoryGrant{memory: m, name: name, owner: owner, fence: m.nextFence(now), end: now.Add(ttl)}
	m.held[name] = g
	return g, nil
}

// holder returns the grant that holds name, nil if the name is free.
func (m *Memory) holder(name string, now time.Time) *memoryGrant {
	g := m.held[name]
	if g == nil || g.end.After(now) {
		return g
	}
	delete(m.held, name)
	return nil
}

func (m *Memory) nextFence(now time.Time) int64 {
	m.fence = max(now.UnixMicro(), m.fence+1)
	return m.fence
}

// Watch implements Watcher.
func (m *Memory) Watch(_ context.Context, name string) (<-chan struct{}, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	released, _ := m.watchers.add(name)
	notify(released) // the watch has begun
	return released, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watchers.remove(name, released)
	}, nil
}

func (m *Memory) release(name string) {
	delete(m.held, name)
	m.watchers.notifyAll(name)
}

// List implements Admin.
func (m *Memory) List(context.Context) ([]Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Holder
	for name := range m.held {
		if h := m.lookup(name); h.Owner != "" {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b Holder) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// Show implements Admin.
func (m *Memory) Show(_ context.Context, name string) (Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookup(name), nil
}

func (m *Memory) lookup(name string) Holder {
	now := time.Now()
	h := Holder{Name: name, Fence: m.fence}
	if g := m.holder(name, now); g != nil {
		h.Owner, h.Remaining = g.owner, g.end.Sub(now)
	}
	return h
}

// Break implements Admin.
func (m *Memory) Break(_ context.Context, name string) (Holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.lookup(name)
	h.Fence = m.nextFence(time.Now())
	m.release(name)
	return h, nil
}

// Fence implements Grant.
func (g *memoryGrant) Fence() int64 { return g.fence }

// Extend implements Grant.
func (g *memoryGrant) Extend(_ context.Context, ttl time.Duration) error {
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	now := time.Now()
	if err := g.checkHeld(now); err != nil {
		return err
	}
	g.end = now.Add(ttl)
	return nil
}

// Release implements Grant.
func (g *memoryGrant) Release(_ context.Context, keep time.Duration) error {
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	now := time.Now()
	if err := g.checkHeld(now); err != nil {
		return err
	}
	if keep > 0 {
		g.end = now.Add(keep)
		return nil
	}
	g.memory.release(g.name)
	return nil
}

func (g *memoryGrant) checkHeld(now time.Time) error {
	switch holder := g.memory.holder(g.name, now); holder {
	case g:
		return nil
	case nil:
		return ErrExpired
	}
	return ErrStolen
}

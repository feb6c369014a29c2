package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// Simulated returns a rig for a [lock.Memory] behind a network that can be broken in every way that the suite knows. Run
// runs each of its tests in a bubble of testing/synctest, where nothing is late: there the suite proves, to the
// microsecond, what a Locker and a Leader do with any strategy.
func Simulated() Rig {
	var ways sync.Map // *link by URL
	return Rig{
		simulated: true,
		Open: func(_ testing.TB, url string, _ time.Duration) lock.Strategy {
			way, ok := ways.Load(url)
			if !ok {
				panic("no such server: " + url)
			}
			return way.(*link).client()
		},
		Start: func(testing.TB) Server {
			s := &simulatedServer{memory: lock.NewMemory()}
			open := func() *link {
				l := s.open()
				ways.Store(l.url, l)
				return l
			}
			return Server{
				URL: open().url, Freeze: s.freeze, Thaw: s.thaw, Flush: s.flush, Kill: s.kill, Start: s.start,
				Link: func(testing.TB) Link {
					l := open()
					return Link{
						URL: l.url, Partition: l.partition, Delay: l.setDelay,
						Cut: l.cut, LoseReply: l.loseReply, HoldRequest: l.holdRequest,
					}
				},
			}
		},
		MinTTL:  250 * time.Millisecond,
		Missing: map[string]string{"StartSkewed": "it has the clock of this process"},
	}
}

// errBroken is what a caller gets when its connection closes before the reply arrives.
var errBroken = fmt.Errorf("%w: the connection broke", lock.ErrUnavailable)

// simulatedServer executes requests on a Memory, which survives when the server is killed.
type simulatedServer struct {
	memory *lock.Memory
	links  []*link

	mu     sync.Mutex
	frozen chan struct{} // closed by thaw; nil while the server is not frozen
	dead   bool
}

func (s *simulatedServer) open() *link {
	l := &link{server: s, broken: make(chan struct{})}
	l.url = fmt.Sprintf("%p", l)
	s.links = append(s.links, l)
	return l
}

func (s *simulatedServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = make(chan struct{})
}

func (s *simulatedServer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.frozen)
	s.frozen = nil
}

// flush ends every grant. The fences go on, like those of a server that has a clock.
func (s *simulatedServer) flush() {
	held, _ := s.memory.List(context.Background())
	for _, h := range held {
		_, _ = s.memory.Break(context.Background(), h.Name)
	}
}

func (s *simulatedServer) kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	for _, l := range s.links {
		l.cut()
	}
}

func (s *simulatedServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
}

// answers waits while the server is frozen, and reports whether it is running.
func (s *simulatedServer) answers() bool {
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead
}

// link is the way of one client to the server.
type link struct {
	url    string
	server *simulatedServer

	mu        sync.Mutex
	requests  bool          // requests are dropped
	replies   bool          // replies are dropped
	delay     time.Duration // of each reply
	broken    chan struct{} // closed when the connections are cut
	faults    []*requestFault
	lastHeard time.Time
}

// requestFault waits for one request. It holds the request back until release, or loses its reply.
type requestFault struct {
	name    string
	kind    Request
	reached chan struct{}
	release chan struct{} // nil for a reply that is lost
}

func (l *link) client() lock.Strategy { return simulatedClient{l.server.memory, l} }

// heard returns when the latest request was sent that was answered without an error.
func (l *link) heard() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastHeard
}

func (l *link) partition(on bool) { l.drop(on, on) }

func (l *link) drop(requests, replies bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.replies = requests, replies
}

func (l *link) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.broken)
	l.broken = make(chan struct{})
}

func (l *link) loseReply(name string, kind Request) <-chan struct{} {
	return l.await(&requestFault{name: name, kind: kind}).reached
}

func (l *link) holdRequest(name string, kind Request) (<-chan struct{}, func()) {
	f := l.await(&requestFault{name: name, kind: kind, release: make(chan struct{})})
	return f.reached, sync.OnceFunc(func() { close(f.release) })
}

func (l *link) await(f *requestFault) *requestFault {
	f.reached = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
	return f
}

// fault returns the fault that waits for such a request, or nil.
func (l *link) fault(name string, kind Request) *requestFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.faults {
		if f.name == name && f.kind == kind {
			l.faults = append(l.faults[:i:i], l.faults[i+1:]...)
			return f
		}
	}
	return nil
}

func (l *link) state() (requests, replies bool, delay time.Duration, broken <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, l.replies, l.delay, l.broken
}

// call sends a request and waits for the reply until ctx ends. The server executes a request that reaches it, whether or
// not the caller still waits.
func (l *link) call(ctx context.Context, name string, kind Request, execute func() error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lock.ErrUnavailable, ctx.Err())
	}
	sent, reply := time.Now(), make(chan error, 1)
	_, _, _, broken := l.state()
	go l.deliver(name, kind, execute, reply)
	select {
	case err := <-reply:
		if err == nil {
			l.mu.Lock()
			l.lastHeard = sent
			l.mu.Unlock()
		}
		return err
	case <-broken:
		return errBroken
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lock.ErrUnavailable, ctx.Err())
	}
}

func (l *link) deliver(name string, kind Request, execute func() error, reply chan<- error) {
	if dropped, _, _, _ := l.state(); dropped {
		return
	}
	f := l.fault(name, kind)
	if f != nil && f.release != nil {
		close(f.reached)
		<-f.release
	}
	if !l.server.answers() {
		reply <- errBroken
		return
	}
	err := execute()
	if f != nil && f.release == nil {
		l.cut()
		close(f.reached)
		return
	}
	if _, _, delay, _ := l.state(); delay > 0 {
		<-time.After(delay)
	}
	if _, dropped, _, _ := l.state(); !dropped {
		reply <- err
	}
}

// simulatedClient is a lock.Memory on the other side of a link: Acquire and the methods of its grants go through the link
// and may fail there. Watch, List, Show and Break reach the memory directly, and always succeed.
type simulatedClient struct {
	*lock.Memory
	link *link
}

func (c simulatedClient) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	g := &simulatedGrant{link: c.link, name: name}
	err := c.link.call(ctx, name, Acquire, func() error {
		granted, err := c.Memory.Acquire(context.WithoutCancel(ctx), name, owner, ttl)
		if err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.granted = granted
		}
		return err
	})
	if err != nil && !errors.Is(err, lock.ErrUnavailable) {
		return nil, err
	}
	return g, err
}

// simulatedGrant is what Acquire returns, also when it had no answer. Then nobody knows whether the server has granted the
// name, and the grant's Release has to work in both cases.
type simulatedGrant struct {
	link *link
	name string

	mu      sync.Mutex
	granted lock.Grant // nil before the server has executed the request
}

func (g *simulatedGrant) Fence() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.granted.Fence()
}

func (g *simulatedGrant) Extend(ctx context.Context, ttl time.Duration) error {
	return g.change(ctx, Renew, func() error { return g.granted.Extend(ctx, ttl) })
}

func (g *simulatedGrant) Release(ctx context.Context, keep time.Duration) error {
	return g.change(ctx, Release, func() error { return g.granted.Release(ctx, keep) })
}

func (g *simulatedGrant) change(ctx context.Context, kind Request, change func() error) error {
	return g.link.call(ctx, g.name, kind, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.granted == nil {
			return lock.ErrExpired
		}
		return change()
	})
}

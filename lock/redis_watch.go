package lock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// subscriptions listens for announced releases, on one connection that is open while somebody watches a name.
type subscriptions struct {
	client redis.UniversalClient

	mu       sync.Mutex
	watchers watchers      // by Redis channel
	sub      *redis.PubSub // nil while nobody watches
	ended    chan struct{} // closed when sub's listener has returned
}

// Watch implements Watcher.
func (r *Redis) Watch(ctx context.Context, name string) (<-chan struct{}, func(), error) {
	return r.subscriptions.watch(ctx, r.keys.releaseChannel(name))
}

func (s *subscriptions) watch(ctx context.Context, channel string) (<-chan struct{}, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sub == nil {
		s.watchers = watchers{}
		s.sub, s.ended = s.client.Subscribe(ctx), make(chan struct{})
		go s.listen(s.sub.ChannelWithSubscriptions(), s.ended)
	}
	released, first := s.watchers.add(channel)
	if first {
		// If this fails, sub retries by itself. The confirmed subscription puts the first value into released.
		_ = s.sub.Subscribe(ctx, channel)
	} else {
		notify(released)
	}
	return released, sync.OnceFunc(func() { s.stop(channel, released) }), nil
}

func (s *subscriptions) stop(channel string, released chan struct{}) {
	if ended := s.remove(channel, released); ended != nil {
		<-ended
	}
}

// remove closes the connection with the last watcher. It then returns a channel that is closed when the listener has
// returned.
func (s *subscriptions) remove(channel string, released chan struct{}) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch last := s.watchers.remove(channel, released); {
	case !last:
		return nil
	case len(s.watchers) > 0:
		_ = s.sub.Unsubscribe(context.Background(), channel) // messages that still arrive have no watcher
		return nil
	}
	_ = s.sub.Close()
	s.sub = nil
	return s.ended
}

// listen notifies the watchers until the connection is closed. A confirmed subscription notifies them too, because
// releases went unheard before it: at the start, and while a connection was broken.
func (s *subscriptions) listen(messages <-chan any, ended chan<- struct{}) {
	defer close(ended)
	for message := range messages {
		var channel string
		switch m := message.(type) {
		case *redis.Message:
			channel = m.Channel
		case *redis.Subscription:
			channel = m.Channel
		}
		s.mu.Lock()
		s.watchers.notifyAll(channel)
		s.mu.Unlock()
	}
}

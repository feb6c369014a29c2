package lock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// watches listens for releases, on one connection while anybody waits for one.
type watches struct {
	client redis.UniversalClient

	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by channel
	sub     *redis.PubSub                     // nil while nobody waits
	ended   chan struct{}                     // closed when the one who listens to sub has gone
}

// Watch implements Watcher.
func (r *Redis) Watch(ctx context.Context, name string) (<-chan struct{}, func(), error) {
	return r.watches.watch(ctx, r.keys.releaseChannel(name))
}

func (w *watches) watch(ctx context.Context, channel string) (<-chan struct{}, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub == nil {
		w.waiting = map[string]map[chan struct{}]bool{}
		w.sub, w.ended = w.client.Subscribe(ctx), make(chan struct{})
		go w.listen(w.sub.ChannelWithSubscriptions(), w.ended)
	}
	freed := make(chan struct{}, 1)
	if w.waiting[channel] == nil {
		w.waiting[channel] = map[chan struct{}]bool{}
		// Should it fail, sub tries again by itself; freed has its value when it has got through.
		_ = w.sub.Subscribe(ctx, channel)
	} else {
		wake(freed)
	}
	w.waiting[channel][freed] = true
	return freed, sync.OnceFunc(func() { w.stop(channel, freed) }), nil
}

func (w *watches) stop(channel string, freed chan struct{}) {
	if ended := w.forget(channel, freed); ended != nil {
		<-ended
	}
}

// forget ends the connection with the last watch. Then it returns what tells that nobody listens any more.
func (w *watches) forget(channel string, freed chan struct{}) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.waiting[channel], freed); len(w.waiting[channel]) > 0 {
		return nil
	}
	delete(w.waiting, channel)
	if len(w.waiting) > 0 {
		_ = w.sub.Unsubscribe(context.Background(), channel) // what still comes wakes nobody
		return nil
	}
	_ = w.sub.Close()
	w.sub = nil
	return w.ended
}

// listen passes on what is heard, until the connection is closed. A subscription that is confirmed wakes too: the first
// time, and after a broken connection, during which releases went unheard.
func (w *watches) listen(messages <-chan any, ended chan<- struct{}) {
	defer close(ended)
	for message := range messages {
		var channel string
		switch m := message.(type) {
		case *redis.Message:
			channel = m.Channel
		case *redis.Subscription:
			channel = m.Channel
		}
		w.mu.Lock()
		for freed := range w.waiting[channel] {
			wake(freed)
		}
		w.mu.Unlock()
	}
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisModel is a Redis with the commands that a gate sends, and a replica that may be behind. Safe for concurrent use.
type redisModel struct {
	mu     sync.Mutex
	keys   map[string]entry
	writes []write // of the last few seconds, for promote
}

type entry struct {
	value string // "" for none
	ends  time.Time
}

type write struct {
	at     time.Time
	key    string
	before entry
}

const replicaLag = 3 * time.Second

func newRedisModel() *redisModel { return &redisModel{keys: map[string]entry{}} }

// get needs m.mu.
func (m *redisModel) get(key string) string {
	if e := m.keys[key]; time.Now().Before(e.ends) {
		return e.value
	}
	return ""
}

// set needs m.mu.
func (m *redisModel) set(key, value string, ttl time.Duration) {
	now := time.Now()
	for len(m.writes) > 0 && now.Sub(m.writes[0].at) > replicaLag {
		m.writes = m.writes[1:]
	}
	m.writes = append(m.writes, write{now, key, m.keys[key]})
	if m.keys[key] = (entry{value, now.Add(ttl)}); value == "" {
		delete(m.keys, key)
	}
}

func (m *redisModel) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.keys)
	m.writes = nil
}

// promote undoes the writes of the last lag: those that the replica has not got.
func (m *redisModel) promote(lag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range slices.Backward(m.writes) {
		if time.Since(w.at) <= lag {
			m.keys[w.key] = w.before
		}
	}
	m.writes = nil
}

// hurry makes all keys expire earlier, as a clock that jumps does.
func (m *redisModel) hurry(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, e := range m.keys {
		m.keys[key] = entry{e.value, e.ends.Add(-by)}
	}
}

// run executes a command, and returns its reply: a string, an int64, or nil for none.
func (m *redisModel) run(args []any) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	word := func(i int) string { return fmt.Sprint(args[i]) }
	ms := func(i int) time.Duration {
		var n int64
		_, _ = fmt.Sscan(word(i), &n)
		return time.Duration(n) * time.Millisecond
	}
	switch {
	case word(0) == "ping":
		return "PONG", nil
	case word(0) == "get":
		return orNil(m.get(word(1))), nil
	case word(0) == "SET" && len(args) == 7: // SET name owner NX GET PX ms
		held := m.get(word(1))
		if held == "" {
			m.set(word(1), word(2), ms(6))
		}
		return orNil(held), nil
	case word(0) == "evalsha" && len(args) == 5: // the gate's release: sha 1 name owner
		if m.get(word(3)) != word(4) {
			return int64(0), nil
		}
		m.set(word(3), "", 0)
		return int64(1), nil
	case word(0) == "evalsha" && len(args) == 7: // the gate's replacement: sha 1 name owner other ms
		if m.get(word(3)) != word(4) {
			return int64(0), nil
		}
		m.set(word(3), word(5), ms(6))
		return int64(1), nil
	}
	return nil, fmt.Errorf("the model of redis does not know the command %v", args)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// link is an instance's connection to the model: a hook that executes the commands instead of a server.
type link struct {
	world    *world
	instance *instance
}

var (
	errRefused  = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	errBroken   = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	errReadOnly = serverError("READONLY You can't write against a read only replica.")
)

// serverError is an error that Redis answers. It implements redis.Error.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// client returns a client that sends its commands over the link.
func (l link) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "redis.invalid:6379", MaxRetries: -1, ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	c.AddHook(l)
	return c
}

// DialHook implements redis.Hook.
func (l link) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (l link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (l link) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		reply, err := l.process(ctx, cmd)
		if err == nil && reply == nil {
			err = redis.Nil
		}
		if err != nil {
			return err
		}
		switch cmd := cmd.(type) {
		case *redis.Cmd:
			cmd.SetVal(reply)
		case *redis.StringCmd:
			cmd.SetVal(reply.(string))
		case *redis.StatusCmd:
			cmd.SetVal(reply.(string))
		default:
			return fmt.Errorf("the model of redis does not answer a %T", cmd)
		}
		return nil
	}
}

func (l link) process(ctx context.Context, cmd redis.Cmder) (any, error) {
	w, i := l.world, l.instance
	key := ""
	if len(cmd.Args()) > 1 {
		key = fmt.Sprint(cmd.Args()[1:]...)
	}
	d := w.dice(i.life() + cmd.Name() + w.plain(key))
	i.stand(d)
	if err := wait(ctx, d.between(20*time.Microsecond, 2*time.Millisecond)); err != nil {
		return nil, err
	}
	if w.weather.strikes(redisSlow, i.slot, d, 0.5) {
		if err := wait(ctx, d.between(time.Millisecond, 150*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	switch {
	case i.dead(), w.weather.strikes(redisRefused, i.slot, d, 1):
		return nil, errRefused
	case w.weather.strikes(redisFrozen, i.slot, d, 1), w.weather.strikes(redisPartitioned, i.slot, d, 1):
		<-ctx.Done()
		return nil, ctx.Err()
	case w.weather.strikes(redisRequestLost, i.slot, d, 0.3):
		return nil, errBroken
	case cmd.Name() != "ping" && cmd.Name() != "get" && w.weather.strikes(redisReadOnly, i.slot, d, 1):
		return nil, errReadOnly
	}
	reply, err := w.redis.run(cmd.Args())
	i.stand(d)
	if waiting := wait(ctx, d.between(20*time.Microsecond, 2*time.Millisecond)); waiting != nil {
		return nil, waiting
	}
	if w.weather.strikes(redisReplyLost, i.slot, d, 0.3) {
		return nil, errBroken
	}
	return reply, err
}

// wait waits for d, and returns ctx's error if it ends first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

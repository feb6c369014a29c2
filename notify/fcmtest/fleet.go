package fcmtest

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shards = 64
	// defaultHeld bounds the sum of devices, messages and subscriptions that are kept; each takes 50 to 200 bytes.
	defaultHeld = 4 << 20
)

// fleet holds all phones. A phone is created when its token is first used.
type fleet struct {
	seed   maphash.Seed
	limit  int64 // of held
	held   atomic.Int64
	shards [shards]shard
}

type shard struct {
	mu     sync.Mutex
	phones map[string]*phone
	totals delta
}

// fate is FCM's answer about a token.
type fate int

const (
	isAlive fate = iota
	isDead
	isForeign
)

func (f *fleet) init() {
	f.seed, f.limit = maphash.MakeSeed(), defaultHeld
	for i := range f.shards {
		f.shards[i].phones = map[string]*phone{}
	}
}

func (f *fleet) full() bool { return f.held.Load() >= f.limit }

// with runs do on the phone of a token, with exclusive access.
func (f *fleet) with(token string, do func(*phone) delta) {
	s := f.shard(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.phones[token]
	if p == nil {
		p = &phone{}
		s.phones[token] = p
		f.held.Add(1)
	}
	c := do(p)
	s.totals.add(c)
	f.held.Add(int64(c.held))
}

func (f *fleet) shard(token string) *shard {
	return &f.shards[maphash.String(f.seed, token)%shards]
}

// deliver delivers d to a phone whose token is neither dead nor foreign. With validateOnly it returns the fate only.
func (f *fleet) deliver(token string, d *delivery, validateOnly bool) (of fate) {
	f.with(token, func(p *phone) delta {
		switch {
		case p.dead:
			of = isDead
		case p.foreign:
			of = isForeign
		case !validateOnly:
			return p.deliver(d)
		}
		return delta{}
	})
	return of
}

func (f *fleet) mark(token string, set func(*phone)) {
	f.with(token, func(p *phone) delta {
		set(p)
		return delta{}
	})
}

// Kill makes the token UNREGISTERED, as after the removal of the app.
func (s *Server) Kill(token string) { s.fleet.mark(token, func(p *phone) { p.dead = true }) }

// Revive ends the effect of Kill and SetForeign.
func (s *Server) Revive(token string) {
	s.fleet.mark(token, func(p *phone) { p.dead, p.foreign = false, false })
}

// SetForeign makes the token belong to another project: SENDER_ID_MISMATCH.
func (s *Server) SetForeign(token string) { s.fleet.mark(token, func(p *phone) { p.foreign = true }) }

// SetOffline takes the phone off the network. FCM accepts messages for it and keeps up to 100 until their ttl ends.
func (s *Server) SetOffline(token string) { s.fleet.mark(token, func(p *phone) { p.offline = true }) }

// SetOnline brings the phone back and delivers the messages kept for it.
func (s *Server) SetOnline(token string) {
	s.fleet.with(token, func(p *phone) delta { return p.comeOnline(time.Now()) })
}

// Device returns the phone of a token, the zero Device if nothing was sent to it.
func (s *Server) Device(token string) Device {
	shard := s.fleet.shard(token)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if p := shard.phones[token]; p != nil {
		return p.device()
	}
	return Device{}
}

// Tokens returns the tokens of phones that got a message, sorted.
func (s *Server) Tokens() []string {
	var tokens []string
	for i := range s.fleet.shards {
		shard := &s.fleet.shards[i]
		shard.mu.Lock()
		for token, p := range shard.phones {
			if p.received > 0 {
				tokens = append(tokens, token)
			}
		}
		shard.mu.Unlock()
	}
	slices.Sort(tokens)
	return tokens
}

// Totals returns the sums over all phones: messages that arrived, duplicates among them, visible notifications, and phones
// that got a message.
func (s *Server) Totals() (received, duplicates, visible, devicesTold int) {
	var all delta
	for i := range s.fleet.shards {
		shard := &s.fleet.shards[i]
		shard.mu.Lock()
		all.add(shard.totals)
		shard.mu.Unlock()
	}
	return all.received, all.duplicates, all.visible, all.reached
}

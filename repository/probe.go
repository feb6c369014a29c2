package repository

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// probeInterval is between two questions, and probeTime bounds each.
	probeInterval = time.Second
	probeTimeout  = time.Second
	// maxProbeAge is how old an answer may be: who asks has come to a halt then.
	maxProbeAge = 5 * time.Second
)

// Probe knows whether the database takes writes. It asks in its own time, so that to look at it costs the database nothing.
type Probe struct {
	store    *Store
	lastGood atomic.Pointer[time.Time] // when the database was asked that took writes; nil when the last answer was another
	down     bool                      // it was logged
}

// Probe returns a probe that has asked once. Run has it go on.
func (s *Store) Probe(ctx context.Context) *Probe {
	p := &Probe{store: s}
	p.ask(ctx)
	return p
}

// Up reports whether the database took writes when it was last asked, not long ago.
func (p *Probe) Up() bool {
	good := p.lastGood.Load()
	return good != nil && time.Since(*good) < maxProbeAge
}

// Run asks every second until ctx ends.
func (p *Probe) Run(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.ask(ctx)
		}
	}
}

func (p *Probe) ask(ctx context.Context) {
	asked := time.Now()
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.store.Ping(bounded)
	if ctx.Err() != nil {
		return // the question was not answered, as nobody wants to know any more
	}
	if err != nil {
		p.lastGood.Store(nil)
	} else {
		p.lastGood.Store(&asked)
	}
	switch down := err != nil; {
	case down && !p.down:
		p.store.log.Error("the database takes no writes: this instance is not ready until it does", "error", err)
	case !down && p.down:
		p.store.log.Warn("the database takes writes again: this instance is ready")
	}
	p.down = err != nil
}

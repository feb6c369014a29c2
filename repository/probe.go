package repository

import (
	"context"
	"sync/atomic"
	"time"

	"firsttap/migrations"
)

const (
	// probeInterval is the time between two checks; probeTimeout bounds each.
	probeInterval = time.Second
	probeTimeout  = time.Second
	// maxProbeAge is the age from which a result no longer counts: the checks have stopped.
	maxProbeAge = 5 * time.Second
)

// Probe checks every second whether the database takes writes: by the look that all parts of the process share, or by a question of its
// own if there is no such look. So reading its result costs the database nothing.
type Probe struct {
	store    *Store
	lastGood atomic.Pointer[time.Time] // the time of the last check; nil if that failed
	down     bool                      // the failure was logged
}

// Probe returns a probe that has checked the database once. Run repeats the check.
func (s *Store) Probe(ctx context.Context) *Probe {
	p := &Probe{store: s}
	p.ask(ctx)
	return p
}

// Up reports whether the last check succeeded, less than maxProbeAge ago.
func (p *Probe) Up() bool {
	good := p.lastGood.Load()
	return good != nil && time.Since(*good) < maxProbeAge
}

// Run checks the database every second until ctx ends.
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
	asked, err := time.Now(), error(nil)
	// A look does not tell whether SQLite's file is writable. One that fails or hangs may wait for a table that is being altered.
	if l := p.store.looks.fresh(maxLookAge); l != nil && p.store.dialect.name != migrations.SQLite {
		asked = l.ReadAt
	} else {
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		err = p.store.Ping(bounded)
	}
	if ctx.Err() != nil {
		return // the error says nothing about the database
	}
	if err != nil {
		p.lastGood.Store(nil)
	} else {
		p.lastGood.Store(&asked)
	}
	switch down := err != nil; {
	case down && !p.down:
		p.store.log.Error("the database takes no writes; this instance is not ready until it does", "error", err)
	case !down && p.down:
		p.store.log.Warn("the database takes writes again; this instance is ready")
	}
	p.down = err != nil
}

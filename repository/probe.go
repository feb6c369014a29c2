package repository

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
)

const (
	// probeInterval is the time between two checks, probeWrites that between two that write, and probeTables that between two that look
	// at the tables; probeTimeout bounds each.
	probeInterval = time.Second
	probeWrites   = 2 * time.Second
	probeTables   = 4 * time.Second
	probeTimeout  = 2 * time.Second
	// probeRow is the name of the row that the checks write.
	probeRow = "firsttap:probe"
	// maxProbeAge is the age from which a result no longer counts: the checks have stopped.
	maxProbeAge = 5 * time.Second
)

// Probe checks every second whether the database commits writes: every other time by a write of its own, and in between by the look that all
// parts of the process share, if there is one. With every other write, and with each during an outage, it checks that the tables are there and
// may be written to. Reading its result costs the database nothing.
type Probe struct {
	store     *Store
	lastGood  atomic.Pointer[time.Time] // the time of the last check; nil if that failed
	wroteAt   time.Time                 // of the last check that wrote
	tablesAt  time.Time                 // of the last check of the tables
	downSince time.Time                 // zero while the database is up
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

// Run checks the database every second until ctx ends, and its replica now and then.
func (p *Probe) Run(ctx context.Context) {
	if r := p.store.replica; r != nil {
		var checking sync.WaitGroup
		defer checking.Wait()
		checking.Go(func() {
			tick := time.NewTicker(r.pause)
			defer tick.Stop()
			for {
				_ = p.store.fromReplica(ctx, func(*gorm.DB) error { return nil })
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
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
	// A look that fails or hangs may wait for a table that is being altered.
	if l := p.store.looks.fresh(maxLookAge); l != nil && asked.Sub(p.wroteAt) < probeWrites {
		asked = l.ReadAt
	} else {
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err = p.store.Ping(bounded); err == nil && (!p.downSince.IsZero() || asked.Sub(p.tablesAt) >= probeTables) {
			err, p.tablesAt = unavailable(p.store.dialect.hasTables(bounded)), asked
		}
		if err == nil {
			p.wroteAt = asked
		}
	}
	if ctx.Err() != nil {
		return // the error says nothing about the database
	}
	if err != nil {
		p.lastGood.Store(nil)
	} else {
		p.lastGood.Store(&asked)
	}
	switch down := !p.downSince.IsZero(); {
	case err != nil && !down:
		p.downSince = asked
		p.store.log.Error("the database takes no writes; this instance is not ready until it does", "error", err)
	case err == nil && down:
		p.store.log.Warn("the database takes writes again; this instance is ready", "outage", time.Since(p.downSince))
		p.downSince = time.Time{}
	}
}

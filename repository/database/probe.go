package database

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
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
	// maxAnswerAge is how old an answer that others had may be to count as a check.
	maxAnswerAge = 1200 * time.Millisecond
)

// Probe checks every second whether the database commits writes: every other time by a write of its own, and in between by what was
// recorded with DB.Answered, if that is fresh. With every other write, and with each during an outage, it checks that the tables are there
// and may be written to. Reading its result costs the database nothing.
type Probe struct {
	db        *DB
	lastGood  atomic.Pointer[time.Time] // the time of the last check; nil if that failed
	wroteAt   time.Time                 // of the last check that wrote
	tablesAt  time.Time                 // of the last check of the tables
	downSince time.Time                 // zero while the database is up
}

// Probe returns a probe that has checked the database once. Run repeats the check.
func (d *DB) Probe(ctx context.Context) *Probe {
	p := &Probe{db: d}
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
	if r := p.db.replica; r != nil {
		var checking sync.WaitGroup
		defer checking.Wait()
		checking.Go(func() {
			tick := time.NewTicker(r.pause)
			defer tick.Stop()
			for {
				_ = p.db.fromReplica(ctx, func(Tx) error { return nil })
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
	// A poll that fails or hangs may wait for a table that is being altered.
	if at := p.db.answered.Load(); at != nil && asked.Sub(*at) < maxAnswerAge && asked.Sub(p.wroteAt) < probeWrites {
		asked = *at
	} else {
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err = p.db.Ping(bounded); err == nil && (!p.downSince.IsZero() || asked.Sub(p.tablesAt) >= probeTables) {
			err, p.tablesAt = Unavailable(p.db.hasTables(bounded)), asked
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
		p.db.Log.Error("the database takes no writes; this instance is not ready until it does", "error", err)
	case err == nil && down:
		p.db.Log.Warn("the database takes writes again; this instance is ready", "outage", time.Since(p.downSince))
		p.downSince = time.Time{}
	}
}

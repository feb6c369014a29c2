package database

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// probeInterval is the time between two checks while the database is up. During an outage it is half of that.
	probeInterval = 2 * time.Second
	// probeTimeout bounds a check.
	probeTimeout = 2 * time.Second
	// maxProbeAge is the age from which a result no longer counts: the checks have stopped.
	maxProbeAge = 5 * time.Second
	// probesPerReplica is how many checks of the database there are for one of its replica.
	probesPerReplica = 3
	// probeRow is the name of the row that the checks write.
	probeRow = "firsttap:probe"
)

// Probe checks every two seconds whether the database commits a write. With every other check, and with each during an outage, it also
// checks that the tables are there and may be written to. Reading its result costs the database nothing.
type Probe struct {
	db        *DB
	check     func(ctx context.Context, tables bool) error
	checks    int
	lastGood  atomic.Pointer[time.Time] // when a check has last succeeded; nil if the last one failed
	downSince time.Time                 // zero while the database is up
}

// Probe returns a probe that has checked the database once. Run repeats the check.
func (d *DB) Probe(ctx context.Context) *Probe {
	p := &Probe{db: d, check: d.checkWrites}
	p.ask(ctx)
	return p
}

// Up reports whether the last check succeeded, less than maxProbeAge ago.
func (p *Probe) Up() bool {
	good := p.lastGood.Load()
	return good != nil && time.Since(*good) < maxProbeAge
}

// Run checks the database and its replica until ctx ends.
func (p *Probe) Run(ctx context.Context) {
	for i := 0; ; i++ {
		if p.db.replica != nil && i%probesPerReplica == 0 && p.Up() { // one that nobody reads is checked, too
			// The next check of the database does not wait for it.
			bounded, cancel := context.WithTimeout(ctx, p.db.replica.answer+p.db.replica.lag)
			_ = p.db.askReplica(bounded, func(Tx) error { return nil }) // the log says if it is left
			cancel()
		}
		wait := probeInterval
		if !p.downSince.IsZero() {
			wait /= 2
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			p.ask(ctx)
		}
	}
}

func (p *Probe) ask(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	down := !p.downSince.IsZero()
	err := p.check(bounded, down || p.checks%2 == 0)
	p.checks++
	now := time.Now()
	switch {
	case ctx.Err() != nil: // the error says nothing about the database
		return
	case err != nil && !down:
		p.downSince = now
		p.db.Log.Error("the database takes no writes; this instance is not ready until it does", "error", err)
	case err == nil && down:
		p.db.Log.Warn("the database takes writes again; this instance is ready", "outage", time.Since(p.downSince))
		p.downSince = time.Time{}
	}
	if err != nil {
		p.lastGood.Store(nil)
	} else {
		p.lastGood.Store(&now)
	}
}

// checkWrites returns why the database commits no writes, or refuses to change the tables without which no tap is decided, no dispatch is
// created or no driver sees an offer. It changes none of these, and a table that is locked is no reason. ErrUnavailable.
func (d *DB) checkWrites(ctx context.Context, tables bool) error {
	if err := d.Ping(ctx); err != nil || !tables {
		return err
	}
	// This needs the right to change rows of each table, and locks no row.
	query := `UPDATE dispatches d, claims c, events e, drivers v, taps t, devices p
SET d.round = d.round, c.round = c.round, e.round = e.round, v.version = v.version, t.round = t.round, p.platform = p.platform WHERE 1 = 0`
	if d.SQLite() {
		query = "SELECT 1 FROM dispatches, claims, events, drivers, taps, devices WHERE 0"
	}
	if _, err := d.probe.ExecContext(ctx, query); err != nil && !passes(err) {
		return Unavailable(err)
	}
	return nil // Ping finds out whether the database answers at all
}

// Ping returns nil if the database commits a write: one that answers and commits nothing is away. Its schema must be migrated.
// ErrUnavailable.
//
// It writes one row, which is no lock that is held, and only if no instance has done so in the last 1.5 s: else it waits for such a write
// that is being committed.
func (d *DB) Ping(ctx context.Context) error {
	const values = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('" + probeRow + "', "
	if d.SQLite() {
		const now, past = "strftime('%Y-%m-%d %H:%M:%f', 'now')", "strftime('%Y-%m-%d %H:%M:%f', 'now', '-1.5 seconds')"
		return Unavailable(unlessHeld(ctx, d.probe, func() error {
			_, err := d.probe.ExecContext(ctx, values+now+", "+now+", '')"+
				" ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until WHERE lock_until NOT BETWEEN "+past+" AND "+now)
			return err
		}))
	}
	const now = "UTC_TIMESTAMP(6)"
	_, err := d.probe.ExecContext(ctx, values+now+", "+now+", '') ON DUPLICATE KEY UPDATE lock_until = IF(lock_until BETWEEN "+
		now+" - INTERVAL 1500000 MICROSECOND AND "+now+", lock_until, "+now+")")
	if IsServerError(err, Deadlock) { // instances that insert the row together; the server commits one of them
		return nil
	}
	return Unavailable(err)
}

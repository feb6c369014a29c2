package dispatches

import (
	"context"
	"database/sql"
	"math"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// What the tests see of the package.

func (r *lastKnown) LearnTime(now time.Time, sent time.Time) { r.learnTime(now, sent) }

const MaxClockDelay = maxClockDelay

var NewClaimProcedure = newClaimProcedure
var NewLastKnown = newLastKnown

func (r *Dispatches) ReadClaimSnapshot(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (claimSnapshot, error) {
	return r.readClaimSnapshot(ctx, id, driver)
}

const ReannouncedFor = reannouncedFor

func (r *claimProcedure) Refuse(err error) { r.refuse(err) }

func (r *Dispatches) Resolve(ctx context.Context, d *dispatch.Dispatch, events []dispatch.Event, lost error) error {
	return r.resolve(ctx, d, events, lost)
}

func (r *Dispatches) WriteChange(tx database.Tx, before, d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration) error {
	return r.save(tx, before, d, events, ahead)
}

func (r *claimProcedure) Usable() bool { return r.usable() }

func (s *Dispatches) Procedure() *claimProcedure { return s.procedure }

func (s *Dispatches) LastKnown() *lastKnown { return s.lastKnown }

func (p *claimProcedure) Name() string { return p.name }

func (p *claimProcedure) Pool() *sql.DB { return p.pool }

const UnusablePause = unusablePause

// SetUsable makes the procedure usable, or not for the whole test.
func (p *claimProcedure) SetUsable(usable bool) {
	p.unusableUntil.Store(math.MaxInt64)
	if usable {
		p.unusableUntil.Store(0)
	}
}

// Ahead returns how far the database's clock is ahead, and whether it was read.
func (k *lastKnown) Ahead() (time.Duration, bool) { return k.clock.ahead, k.clock.read }

// SetAhead makes the database's clock so far ahead, by a quick reading.
func (k *lastKnown) SetAhead(ahead time.Duration) { k.clock.ahead, k.clock.quick = ahead, true }

func (k *lastKnown) ForgetDrivers() { k.drivers.Purge() }

func (s *claimSnapshot) Candidate() dispatch.Candidate { return s.candidate }

func (s *claimSnapshot) Now() time.Time { return s.now }

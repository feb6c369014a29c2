package dispatches

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// Dispatches are the dispatches and their claims. It is safe for concurrent use.
type Dispatches struct {
	db       *database.DB
	journal  *journal.Journal
	onCommit func(dispatch.Dispatch, []dispatch.Event) // nil for none
	// procedure and lastKnown make a claim cheap; nil for SQLite, which has no round trips, and for TiDB, which has no procedures.
	procedure *claimProcedure
	lastKnown *lastKnown
}

// New returns the dispatches in a database. OnCommit, nil for none, is called with every change that this process has committed,
// after its COMMIT and before the caller learns of it. It is called by many goroutines at once and must not block.
func New(db *database.DB, j *journal.Journal, onCommit func(dispatch.Dispatch, []dispatch.Event)) *Dispatches {
	s := &Dispatches{db: db, journal: j, onCommit: onCommit}
	if db.Dialect == migrations.MySQL {
		s.procedure, s.lastKnown = newClaimProcedure(db.Pools()["decide"], db.Observer, db.Log), newLastKnown()
	}
	return s
}

// Commit commits what write writes together with the events that it returns, and announces them. Write may be called again after a
// collision. The events' times are ahead of the database's clock by that much: see NotBefore. If write returns no events, nothing is
// announced.
//
// Write's own errors unchanged; ErrUnavailable if nothing was written; ErrUnknown if the COMMIT's reply is missing and the database does
// not say whether the events were written.
func (s *Dispatches) Commit(ctx context.Context,
	write func(tx database.Tx) (d dispatch.Dispatch, events []dispatch.Event, ahead time.Duration, err error),
) (dispatch.Dispatch, error) {
	var d dispatch.Dispatch
	var events []dispatch.Event
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) (err error) {
		var ahead time.Duration
		if d, events, ahead, err = write(tx); err != nil || len(events) == 0 {
			return err
		}
		return database.Unavailable(s.journal.WriteEvents(tx, events, ahead))
	})
	if errors.Is(err, dispatch.ErrUnknown) && len(events) > 0 {
		settling, cancel := s.settling(ctx)
		defer cancel()
		err = s.settle(settling, events[0].ID, err)
	}
	if err == nil {
		s.announce(d, events)
	}
	return d, err
}

// announce remembers what has just been committed, and calls onCommit with it.
func (s *Dispatches) announce(d dispatch.Dispatch, events []dispatch.Event) {
	s.lastKnown.learnDispatch(&d)
	if s.onCommit != nil && len(events) > 0 {
		s.onCommit(d, events)
	}
}

// Learn remembers a dispatch that was just read: a driver may tap next.
func (s *Dispatches) Learn(d *dispatch.Dispatch) { s.lastKnown.learnDispatch(d) }

package dispatches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/repository/primary"
)

// Rule decides about a claim: it changes the dispatch and returns the events of the change, or refuses.
type Rule = func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error)

// Claim calls rule with the dispatch and the driver, and commits the claim that rule makes together with its events. The write applies
// only if, by the database's clock as the write began, the dispatch is still PENDING in the same round and version and within its window,
// the driver is unchanged and not suspended, and the rest of the candidate is as rule was told; otherwise Claim calls rule again. The
// claim gets the time of the write.
//
// Rule may first be called with the dispatch and the driver as this process last knew them, and a time that is estimated.
// What it refuses then, or leaves unchanged, it is asked again with both as they are in the database.
//
// If rule returns no events, nothing is written. Rule's errors are returned unchanged. ErrUnavailable means that nothing
// was written, and never will be; ErrUnknown, that the reply is missing and the database did not answer whether the write
// succeeded.
func (s *Dispatches) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule Rule) (dispatch.Dispatch, error) {
	if !s.procedure.usable() {
		return s.claim(ctx, id, driver, rule, s.transactClaim(opened))
	}
	if snapshot, ok := s.lastKnown.claimSnapshot(id, driver); ok {
		d, tried, err := s.decideOn(ctx, &snapshot, rule, s.callClaim)
		if tried && !errors.Is(err, database.ErrConflict) {
			return d, err
		}
		s.lastKnown.forget(id, driver)
	}
	return s.claim(ctx, id, driver, rule, s.callClaim)
}

// opened is the condition that a dispatch has opened. See NotBefore.
const opened = "(opens_at <= {now} OR opens_at <= updated_at + 3)"

// Assign is Claim for a dispatch that need not be open yet, and at the time that rule names.
func (s *Dispatches) Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule Rule) (dispatch.Dispatch, error) {
	return s.claim(ctx, id, driver, rule, s.transactClaim("1 = 1"))
}

// commitFunc commits the claim that d and its event describe, if what the decision was based on has not changed; otherwise it
// returns database.ErrConflict. It may move the claim to the time of the write. ErrUnavailable means that nothing was written, ErrUnknown
// that the reply is missing.
type commitFunc = func(ctx context.Context, snapshot *claimSnapshot, d *dispatch.Dispatch, events []dispatch.Event) error

// claim decides on what the database says, and commits.
func (s *Dispatches) claim(
	ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule Rule, commit commitFunc,
) (dispatch.Dispatch, error) {
	for range database.MaxTries {
		snapshot, err := s.readClaimSnapshot(ctx, id, driver)
		switch {
		case errors.Is(err, database.ErrStale):
			_ = s.db.Stale()
			continue // with a new connection, to the server that takes writes now
		case errors.Is(err, database.ErrConflict):
			continue
		case err != nil:
			return dispatch.Dispatch{}, err
		}
		switch applied, err := journal.AlreadyApplied(s.db.Serve.With(ctx), journal.KeyProof); {
		case err != nil:
			return dispatch.Dispatch{}, err
		case applied:
			return s.Dispatch(ctx, id) // the snapshot may be older than the change
		}
		d, _, err := s.decideOn(ctx, &snapshot, rule, commit)
		if !errors.Is(err, database.ErrConflict) {
			return d, err
		}
	}
	return dispatch.Dispatch{}, fmt.Errorf("%w: the dispatch, the driver or the database server keeps changing", dispatch.ErrUnavailable)
}

// decideOn calls rule, and commits what it decides. Tried is false if rule has decided nothing that could be written.
func (s *Dispatches) decideOn(
	ctx context.Context, snapshot *claimSnapshot, rule Rule, commit commitFunc,
) (d dispatch.Dispatch, tried bool, err error) {
	d = snapshot.dispatch
	events, err := rule(&d, snapshot.candidate, NotBefore(snapshot.now, d.UpdatedAt))
	if err != nil || len(events) == 0 {
		return d, false, err
	}
	err = commit(ctx, snapshot, &d, events)
	if errors.Is(err, dispatch.ErrUnknown) {
		err = s.resolve(ctx, &d, events, err)
	}
	if err == nil {
		s.announce(d, events)
	}
	return d, true, err
}

// resolve settles a claim whose reply was lost. If the claim is committed, resolve also reads the time that the database gave it.
func (s *Dispatches) resolve(ctx context.Context, d *dispatch.Dispatch, events []dispatch.Event, lost error) error {
	ctx, cancel := s.settling(ctx)
	defer cancel()
	if err := s.settle(ctx, events[0].ID, lost); err != nil {
		return err
	}
	// The claim's time may be read from another server than the one that has it.
	var answer struct {
		AcceptedAt int64
		ReadOnly   bool
	}
	err := s.db.Decide.With(primary.Unchecked(ctx)).Raw(
		"SELECT COALESCE((SELECT accepted_at FROM claims WHERE id = ?), 0) accepted_at, {read_only} read_only", d.Claim.ID,
	).Scan(&answer).Error
	if err != nil {
		return errors.Join(lost, err)
	}
	if answer.ReadOnly || answer.AcceptedAt == 0 {
		_ = s.db.Stale()
		return errors.Join(lost, database.ErrStale)
	}
	setClaimTime(d, events, database.Time(answer.AcceptedAt))
	return nil
}

// settling returns the context in which a lost reply is settled: one row lock and a few round trips. It does not end with ctx.
func (s *Dispatches) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*s.db.Patience)
}

// settle finds out whether a transaction is committed whose reply was lost. The transaction writes the event. settle returns nil if the
// transaction is committed. If it is not, settle bars it, so that it never will be, and returns ErrUnavailable. If the database refuses
// or does not answer, settle returns lost.
//
// That the event is missing proves nothing: the server may execute the transaction later. So settle inserts a row with the event's
// identifier, an event of no dispatch. The INSERT waits until a transaction that has written the event ends, and fails if it is
// committed. A transaction that comes later fails, because the row is there.
func (s *Dispatches) settle(ctx context.Context, event dispatch.EventID, lost error) error {
	ctx = primary.Unchecked(ctx)
	barred, err := s.bar(ctx, event)
	if errors.Is(err, database.ErrDuplicateKey) {
		return nil // settle has inserted nothing yet: the event is the transaction's own
	}
	if err != nil {
		barred, err = s.bar(ctx, event) // what lost the reply may have closed all connections, one after the other
	}
	if err != nil && !errors.Is(err, database.ErrDuplicateKey) {
		return errors.Join(lost, err)
	}
	if !barred { // the event is there, or the row of the first INSERT whose reply was lost, or the server takes no writes
		var row struct {
			Own      *bool
			ReadOnly bool
		}
		err := s.db.Decide.With(ctx).Raw("SELECT (SELECT dispatch_id = '' FROM events WHERE id = ?) own, {read_only} read_only", event).
			Scan(&row).Error
		if err != nil {
			return errors.Join(lost, err)
		}
		if row.ReadOnly || row.Own == nil { // the server that has the row has not answered
			_ = s.db.Stale()
			return errors.Join(lost, database.ErrStale)
		}
		if !*row.Own {
			return nil
		}
	}
	return fmt.Errorf("%w: not committed, after %v", dispatch.ErrUnavailable, lost) //nolint:errorlint // it is known now
}

// bar inserts the row that bars the transaction, and reports whether it did. A server that takes no writes inserts none. The error is
// ErrDuplicateKey if the event or such a row is there.
func (s *Dispatches) bar(ctx context.Context, event dispatch.EventID) (bool, error) {
	done := s.db.Decide.With(ctx).Exec("INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) "+
		"SELECT ?, '', '', 0, '', '', {now} FROM (SELECT 1) one WHERE NOT {read_only}", event)
	return done.RowsAffected == 1, done.Error
}

// setClaimTime sets the time of the claim that was just decided.
func setClaimTime(d *dispatch.Dispatch, events []dispatch.Event, at time.Time) {
	claim := *d.Claim
	claim.AcceptedAt = at
	d.Claim, d.UpdatedAt = &claim, at
	for i := range events {
		events[i].At = at
	}
}

// transactClaim returns a commitFunc that writes in a transaction, with a further SQL condition on the dispatch's row.
func (s *Dispatches) transactClaim(condition string) commitFunc {
	return func(ctx context.Context, snapshot *claimSnapshot, d *dispatch.Dispatch, events []dispatch.Event) error {
		err := s.db.Decide.TransactOnce(
			primary.Unchecked(ctx), func(tx database.Tx) error { return s.writeClaim(tx, snapshot, condition, d, events) },
		)
		if err == nil || errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, database.ErrConflict) {
			return err
		}
		if database.Retryable(err) {
			return database.ErrConflict
		}
		return database.Unavailable(err)
	}
}

func (s *Dispatches) writeClaim(
	tx database.Tx, snapshot *claimSnapshot, condition string, d *dispatch.Dispatch, events []dispatch.Event,
) error {
	won := tx.Exec(
		`UPDATE dispatches {force PRIMARY} SET status = ?, claim_id = ?, accepted_by = ?, accepted_at = ?, version = ?, updated_at = ?
		WHERE id = ? AND status = 'PENDING' AND round = ? AND version = ? AND updated_at = ? AND `+condition+` AND expires_at > {now}
		AND NOT {read_only}
		AND EXISTS (SELECT 1 FROM drivers WHERE id = ? AND version = ? {for_share})`,
		d.Status,
		d.Claim.ID,
		d.Claim.Driver,
		database.Micros(d.Claim.AcceptedAt),
		d.Version,
		database.Micros(d.UpdatedAt),
		d.ID,
		snapshot.dispatch.Round,
		snapshot.dispatch.Version,
		database.Micros(snapshot.dispatch.UpdatedAt),
		snapshot.candidate.ID,
		snapshot.candidate.Version,
	)
	if won.Error != nil {
		return won.Error
	}
	if won.RowsAffected != 1 {
		return database.ErrConflict
	}
	err := tx.Create(&ClaimRow{
		ID: d.Claim.ID, DispatchID: d.ID, Round: d.Round, DriverID: d.Claim.Driver, DriverSeq: snapshot.claims + 1,
		Outcome: dispatch.OutcomeWon, AcceptedAt: database.Micros(d.Claim.AcceptedAt),
	}).Error
	if errors.Is(err, database.ErrDuplicateKey) {
		return database.ErrConflict // another claim of this driver committed first: its working hours count too
	}
	if err != nil {
		return err
	}
	if err := journal.MarkApplied(tx); err != nil {
		return err
	}
	return s.journal.WriteEvents(tx, events, NotBefore(snapshot.now, snapshot.dispatch.UpdatedAt).Sub(snapshot.now))
}

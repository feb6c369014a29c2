package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/primary"
)

// claimRule decides about a claim: it changes the dispatch and returns the events of the change, or refuses.
type claimRule = func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error)

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
func (s *Store) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	// A request with an Idempotency-Key marks the key in the transaction.
	if !s.procedure.usable() || idempotency.SeedFrom(ctx) != "" {
		return s.claim(ctx, id, driver, rule, s.transactClaim(opened))
	}
	if snapshot, ok := s.lastKnown.claimSnapshot(id, driver); ok {
		d, tried, err := s.decideOn(ctx, &snapshot, rule, s.callClaim)
		if tried && !errors.Is(err, errConflict) {
			return d, err
		}
		s.lastKnown.forget(id, driver)
	}
	return s.claim(ctx, id, driver, rule, s.callClaim)
}

// opened is the condition that a dispatch has opened. See notBefore.
const opened = "(opens_at <= {now} OR opens_at <= updated_at + 3)"

// Assign is Claim for a dispatch that need not be open yet, and at the time that rule names.
func (s *Store) Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	return s.claim(ctx, id, driver, rule, s.transactClaim("1 = 1"))
}

// commitFunc commits the claim that d and its event describe, if what the decision was based on has not changed; otherwise it
// returns errConflict. It may move the claim to the time of the write. ErrUnavailable means that nothing was written, ErrUnknown
// that the reply is missing.
type commitFunc = func(ctx context.Context, snapshot *claimSnapshot, d *dispatch.Dispatch, events []dispatch.Event) error

// claim decides on what the database says, and commits.
func (s *Store) claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule, commit commitFunc) (dispatch.Dispatch, error) {
	for range maxTries {
		snapshot, err := s.readClaimSnapshot(ctx, id, driver)
		switch {
		case errors.Is(err, errStaleRead):
			s.dialect.leaveServer()
			continue // with a new connection, to the server that takes writes now
		case errors.Is(err, errConflict):
			continue
		case err != nil:
			return dispatch.Dispatch{}, err
		}
		switch applied, err := alreadyApplied(s.serve.WithContext(ctx), keyProof); {
		case err != nil:
			return dispatch.Dispatch{}, err
		case applied:
			return s.Dispatch(ctx, id) // the snapshot may be older than the change
		}
		d, _, err := s.decideOn(ctx, &snapshot, rule, commit)
		if !errors.Is(err, errConflict) {
			return d, err
		}
	}
	return dispatch.Dispatch{}, fmt.Errorf("%w: the dispatch, the driver or the database server keeps changing", dispatch.ErrUnavailable)
}

// decideOn calls rule, and commits what it decides. Tried is false if rule has decided nothing that could be written.
func (s *Store) decideOn(ctx context.Context, snapshot *claimSnapshot, rule claimRule, commit commitFunc) (d dispatch.Dispatch, tried bool, err error) {
	d = snapshot.dispatch
	events, err := rule(&d, snapshot.candidate, notBefore(snapshot.now, d.UpdatedAt))
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
func (s *Store) resolve(ctx context.Context, d *dispatch.Dispatch, events []dispatch.Event, lost error) error {
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
	err := s.decide.WithContext(primary.Unchecked(ctx)).Raw("SELECT COALESCE((SELECT accepted_at FROM claims WHERE id = ?), 0) accepted_at, {read_only} read_only", d.Claim.ID).
		Scan(&answer).Error
	if err != nil {
		return errors.Join(lost, err)
	}
	if answer.ReadOnly || answer.AcceptedAt == 0 {
		s.dialect.leaveServer()
		return errors.Join(lost, errStaleRead)
	}
	setClaimTime(d, events, fromMicros(answer.AcceptedAt))
	return nil
}

// settling returns the context in which a lost reply is settled: one row lock and two round trips. It does not end with ctx.
func (s *Store) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*s.options.Patience)
}

// settle finds out whether a transaction whose reply was lost is committed. The transaction writes the event. settle returns nil if the
// transaction is committed. Otherwise it makes sure that the transaction is never committed, and returns ErrUnavailable. If the
// database refuses or does not answer, it returns lost.
//
// A missing event proves nothing: the server may still be executing the statement, or receive it later. So settle inserts a row with
// the identifier of the event itself, an event of no dispatch. The INSERT waits for a transaction that has written the event and has not
// ended, and fails if that is committed. A transaction that comes later fails as a whole, because of the row.
func (s *Store) settle(ctx context.Context, event dispatch.EventID, lost error) error {
	barring := s.decide.WithContext(primary.Unchecked(ctx)).Exec("INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) SELECT ?, '', '', 0, '', '', "+
		"{now} FROM (SELECT 1) one WHERE NOT {read_only}", event)
	switch {
	case barring.Error == nil && barring.RowsAffected == 1:
		return fmt.Errorf("%w: not committed, after %v", dispatch.ErrUnavailable, lost) //nolint:errorlint // it is known now
	case barring.Error == nil:
		s.dialect.leaveServer()
		return errors.Join(lost, errStaleRead) // the transaction may be on the other server only
	case !errors.Is(barring.Error, gorm.ErrDuplicatedKey):
		return errors.Join(lost, barring.Error)
	}
	return nil
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
func (s *Store) transactClaim(condition string) commitFunc {
	return func(ctx context.Context, snapshot *claimSnapshot, d *dispatch.Dispatch, events []dispatch.Event) error {
		err := s.transact(primary.Unchecked(ctx), s.decide, func(tx *gorm.DB) error { return s.writeClaim(tx, snapshot, condition, d, events) })
		if err == nil || errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, errConflict) {
			return err
		}
		if retryable(err) {
			return errConflict
		}
		return unavailable(err)
	}
}

func (s *Store) writeClaim(tx *gorm.DB, snapshot *claimSnapshot, condition string, d *dispatch.Dispatch, events []dispatch.Event) error {
	won := tx.Exec(`UPDATE dispatches {force PRIMARY} SET status = ?, claim_id = ?, accepted_by = ?, accepted_at = ?, version = ?, updated_at = ?
		WHERE id = ? AND status = 'PENDING' AND round = ? AND version = ? AND updated_at = ? AND `+condition+` AND expires_at > {now}
		AND NOT {read_only}
		AND EXISTS (SELECT 1 FROM drivers WHERE id = ? AND version = ? {for_share})`,
		d.Status, d.Claim.ID, d.Claim.Driver, micros(d.Claim.AcceptedAt), d.Version, micros(d.UpdatedAt),
		d.ID, snapshot.dispatch.Round, snapshot.dispatch.Version, micros(snapshot.dispatch.UpdatedAt), snapshot.candidate.ID, snapshot.candidate.Version)
	if won.Error != nil {
		return won.Error
	}
	if won.RowsAffected != 1 {
		return errConflict
	}
	err := tx.Create(&claimRow{
		ID: d.Claim.ID, DispatchID: d.ID, Round: d.Round, DriverID: d.Claim.Driver, DriverSeq: snapshot.claims + 1,
		Outcome: dispatch.OutcomeWon, AcceptedAt: micros(d.Claim.AcceptedAt),
	}).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return errConflict // another claim of this driver committed first: its working hours count too
	}
	if err != nil {
		return err
	}
	if err := markApplied(tx); err != nil {
		return err
	}
	return s.writeEvents(tx, events, notBefore(snapshot.now, snapshot.dispatch.UpdatedAt).Sub(snapshot.now))
}

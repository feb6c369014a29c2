package repository

import (
	"context"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

type idempotencyRow struct {
	Caller      string `gorm:"primaryKey"`
	Name        string `gorm:"primaryKey"`
	Fingerprint string
	Seed        idempotency.Seed
	Leased      string
	LeaseEnds   int64
	Answer      []byte
	Changed     bool
	ExpiresAt   int64
}

func (idempotencyRow) TableName() string { return "idempotency_keys" }

// Reserve gives the right to do a request for as long as lease to one who asks, and remembers it for as long as keep; or
// it returns what was answered. Whoever gets a request that another has begun and not ended in time gets its seed.
// ErrKeyReused, ErrKeyInUse; ErrUnavailable; ErrUnknown: it may be reserved until the lease ends.
func (s *Store) Reserve(ctx context.Context, once idempotency.Request, lease, keep time.Duration) (idempotency.Reservation, error) {
	var row idempotencyRow
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		var rows []idempotencyRow
		err := tx.Raw("SELECT * FROM idempotency_keys WHERE caller = ? AND name = ?"+s.dialect.forUpdate, once.Caller, once.Name).
			Scan(&rows).Error
		if err != nil {
			return unavailable(err)
		}
		now, err := s.clock(tx) // now that the row is ours
		if err != nil {
			return err
		}
		fresh := idempotencyRow{
			Caller: once.Caller, Name: once.Name, Fingerprint: once.Fingerprint, Seed: idempotency.NewSeed(now),
			Leased: dispatch.Unique("lse_", now), LeaseEnds: micros(now.Add(lease)), ExpiresAt: micros(now.Add(keep)),
		}
		if len(rows) == 0 {
			row = fresh
			return unavailable(tx.Create(&row).Error) // another's at the same time is a duplicate, and seen then
		}
		row, err = rows[0].next(fresh, now)
		if err != nil || len(row.Answer) > 0 {
			return err
		}
		taken := tx.Model(&idempotencyRow{}).
			Where("caller = ? AND name = ? AND leased = ?", once.Caller, once.Name, rows[0].Leased).
			Select("*").Omit("caller", "name").Updates(&row)
		if taken.Error == nil && taken.RowsAffected != 1 {
			return unavailable(errConflict) // another's by now
		}
		return unavailable(taken.Error)
	})
	return idempotency.Reservation{Request: once, Seed: row.Seed, Lease: row.Leased, Answer: row.Answer}, err
}

// next returns what becomes of the row when a request with its key comes.
func (row idempotencyRow) next(fresh idempotencyRow, now time.Time) (idempotencyRow, error) {
	switch {
	case row.ExpiresAt <= micros(now):
		return fresh, nil
	case row.Fingerprint != fresh.Fingerprint:
		return row, idempotency.ErrKeyReused
	case len(row.Answer) > 0:
		return row, nil
	case row.LeaseEnds > micros(now):
		return row, idempotency.ErrKeyInUse
	}
	row.Leased, row.LeaseEnds = fresh.Leased, fresh.LeaseEnds
	return row, nil
}

// Settle keeps what was answered to the request, or, if that is nil, lets the next one who asks do it again. ErrNotLeased
// if another has it by now.
func (s *Store) Settle(ctx context.Context, r idempotency.Reservation, answer []byte) error {
	if r.Lease == "" {
		return dispatch.ErrNotLeased // what is answered is nobody's
	}
	var kept any // NULL, which not every driver makes of an empty slice
	if len(answer) > 0 {
		kept = answer
	}
	return s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) error {
		return requireOwned(tx.Exec("UPDATE idempotency_keys SET answer = ?, leased = '', lease_ends = 0"+
			" WHERE caller = ? AND name = ? AND leased = ?", kept, r.Caller, r.Name, r.Lease))
	})
}

// proof is the row that shows that a request was carried out: it was committed together with what the request did. A
// request with an Idempotency-Key is carried out again when its first instance died, or when the COMMIT's reply was lost.
type proof struct {
	row string
	key func(ctx context.Context) string
}

var (
	// dispatchProof is the dispatch that the request created.
	dispatchProof = proof{"dispatches WHERE id = ?", func(ctx context.Context) string {
		return string(idempotency.DispatchID(ctx, time.Time{}))
	}}
	// auditProof is the request's audit entry. Of two that look at the same time and find none, the entry's primary key lets
	// one commit, and transactWithRetry has the other look again.
	auditProof = proof{"audit WHERE id = ?", func(ctx context.Context) string {
		return idempotency.AuditID(ctx, time.Time{})
	}}
	// keyProof is the request's key, marked by markApplied: for changes of a dispatch, which leave no row that is named after
	// the request. The dispatch's row is locked, or its version is a condition.
	keyProof = proof{"idempotency_keys WHERE seed = ? AND changed = 1", func(ctx context.Context) string {
		return string(idempotency.SeedOf(ctx))
	}}
)

// alreadyApplied reports whether the request of db's context was carried out before: its caller then returns what it
// finds and changes nothing. Without an Idempotency-Key it sends no statement.
func alreadyApplied(db *gorm.DB, p proof) (bool, error) {
	ctx := db.Statement.Context
	if idempotency.SeedOf(ctx) == "" {
		return false, nil
	}
	var n int64
	err := db.Raw("SELECT COUNT(*) FROM "+p.row, p.key(ctx)).Scan(&n).Error
	return n > 0, unavailable(err)
}

// markApplied writes the keyProof of tx's request, if it has a key.
func markApplied(tx *gorm.DB) error {
	seed := idempotency.SeedOf(tx.Statement.Context)
	if seed == "" {
		return nil
	}
	return unavailable(tx.Exec("UPDATE idempotency_keys SET changed = 1 WHERE seed = ?", seed).Error)
}

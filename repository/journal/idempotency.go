package journal

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/repository/database"
)

// IdempotencyRow is a row of the table idempotency_keys.
type IdempotencyRow struct {
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

// TableName implements gorm.Tabler.
func (IdempotencyRow) TableName() string { return "idempotency_keys" }

// ReserveRequest leases a request to one caller for the time lease, and keeps its key for the time keep. It returns the saved
// answer instead if the request was answered before. If an earlier lease ended without an answer, the reservation has the
// same seed. ErrKeyReused, ErrKeyInUse; ErrUnavailable; ErrUnknown: the request may be leased until the lease ends.
func (s *Journal) ReserveRequest(
	ctx context.Context, once idempotency.Request, lease, keep time.Duration,
) (idempotency.Reservation, error) {
	var row IdempotencyRow
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		var rows []IdempotencyRow
		err := tx.Raw("SELECT * FROM idempotency_keys WHERE caller = ? AND name = ? {for_update}", once.Caller, once.Name).
			Scan(&rows).Error
		if err != nil {
			return database.Unavailable(err)
		}
		now, err := database.Clock(tx) // after the wait for the row's lock
		if err != nil {
			return err
		}
		row = IdempotencyRow{
			Caller: once.Caller, Name: once.Name, Fingerprint: once.Fingerprint, Seed: idempotency.NewSeed(now),
			Leased:    dispatch.NewUniqueID("lse_", now),
			LeaseEnds: database.Micros(now.Add(lease)), ExpiresAt: database.Micros(now.Add(keep)),
		}
		if len(rows) == 0 {
			return database.Unavailable(tx.Create(&row).Error) // a concurrent insert makes this a duplicate, and the next try reads it
		}
		if row, err = rows[0].next(row, now); err != nil || len(row.Answer) > 0 {
			return err
		}
		return database.Unavailable(tx.Select("*").Updates(&row).Error)
	})
	return idempotency.Reservation{Request: once, Seed: row.Seed, Lease: row.Leased, Answer: row.Answer}, err
}

// next returns the row as a request with its key changes it. ErrKeyReused, ErrKeyInUse.
func (row IdempotencyRow) next(fresh IdempotencyRow, now time.Time) (IdempotencyRow, error) {
	switch {
	case row.ExpiresAt <= database.Micros(now):
		return fresh, nil
	case row.Fingerprint != fresh.Fingerprint:
		return row, idempotency.ErrKeyReused
	case len(row.Answer) > 0:
		return row, nil
	case row.LeaseEnds > database.Micros(now):
		return row, idempotency.ErrKeyInUse
	}
	row.Leased, row.LeaseEnds = fresh.Leased, fresh.LeaseEnds
	return row, nil
}

// SaveAnswer saves the answer to the request for keep at most, and ends the lease. A nil answer lets the next caller carry the request out
// again. ErrNotLeased if the lease is another caller's.
func (s *Journal) SaveAnswer(ctx context.Context, r idempotency.Reservation, answer []byte, keep time.Duration) error {
	if r.Lease == "" {
		return dispatch.ErrNotLeased // an answered request has no lease
	}
	var kept any // NULL; not every database driver writes an empty slice as NULL
	if len(answer) > 0 {
		kept = answer
	}
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		return database.RequireOwned(tx.Exec(`UPDATE idempotency_keys SET answer = ?, leased = '', lease_ends = 0,
			expires_at = CASE WHEN expires_at > {now} + ? THEN {now} + ? ELSE expires_at END
			WHERE caller = ? AND name = ? AND leased = ?`, kept, keep.Microseconds(), keep.Microseconds(), r.Caller, r.Name, r.Lease))
	})
}

// ForgetRequest deletes the reservation of a request that was refused before it could change anything. ErrNotLeased as SaveAnswer.
func (s *Journal) ForgetRequest(ctx context.Context, r idempotency.Reservation) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		return database.RequireOwned(
			tx.Exec("DELETE FROM idempotency_keys WHERE caller = ? AND name = ? AND leased = ?", r.Caller, r.Name, r.Lease),
		)
	})
}

// Proof selects the row that proves that a request was carried out: it is committed in the same transaction as the request's
// effect. A request with an Idempotency-Key runs again if the first instance died or the COMMIT's reply was lost.
type Proof string

const (
	// DispatchProof is the dispatch that the request created.
	DispatchProof Proof = "dispatches WHERE id = ?"
	// AuditProof is the request's audit entry. If two transactions look at the same time and find none, the entry's primary key lets only
	// one of them commit; the other one is repeated, and then finds the entry.
	AuditProof Proof = "audit WHERE id = ?"
	// KeyProof is the mark that MarkApplied sets on the request's key, for changes that write no row with an identifier from
	// the request's seed. The dispatch's row lock or version keeps two transactions from applying the change.
	KeyProof Proof = "idempotency_keys WHERE seed = ? AND changed = 1"
)

// AlreadyApplied reports whether the request of db's context was carried out before; then the caller changes nothing and
// returns the current state. For a request without an Idempotency-Key it sends no statement.
func AlreadyApplied(db database.Tx, p Proof) (bool, error) {
	ctx := db.Statement.Context
	id := string(idempotency.SeedFrom(ctx))
	if id == "" {
		return false, nil
	}
	switch p {
	case DispatchProof:
		id = string(idempotency.DispatchID(ctx, time.Time{}))
	case AuditProof:
		id = idempotency.AuditID(ctx, time.Time{})
	}
	var n int64
	err := db.Raw("SELECT COUNT(*) FROM "+string(p), id).Scan(&n).Error
	return n > 0, database.Unavailable(err)
}

// MarkApplied writes the KeyProof of the request of tx's context, if the request has a key.
func MarkApplied(tx database.Tx) error {
	seed := idempotency.SeedFrom(tx.Statement.Context)
	if seed == "" {
		return nil
	}
	return database.Unavailable(tx.Exec("UPDATE idempotency_keys SET changed = 1 WHERE seed = ?", seed).Error)
}

package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Fences rejects writes under stale leases. A lock can't keep a suspended process from writing after another process has
// acquired the name; the database can, because it remembers the largest [Lease.Fence] that was used.
//
// It is safe for concurrent use.
type Fences struct {
	db      *sql.DB
	dialect Dialect
}

// NewFences returns the fences in db's table of that name; see [Dialect.Schema].
func NewFences(db *sql.DB, dialect Dialect) *Fences { return &Fences{db: db, dialect: dialect} }

// Execer is a transaction, or a connection within one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Enforce checks that fence is the largest that was used for name, and records it in tx. It returns ErrFenced if a
// transaction with a larger fence was committed; tx must then be rolled back. It returns ErrUnavailable if the database
// fails.
//
// It costs one statement and locks the row of name until tx ends, so transactions under one name run one after another,
// and a transaction that waited for a larger fence is rejected. Call it before the writes, so that tx sees what the
// transactions before it wrote. A rollback of tx undoes the record.
func (f *Fences) Enforce(ctx context.Context, tx Execer, name string, fence int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("%w: a fence must be positive, not %d", ErrInvalid, fence)
	}
	largest, err := f.recordLargest(ctx, tx, name, fence)
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case largest > fence:
		return ErrFenced
	}
	return nil
}

// Raise makes Enforce reject every smaller fence of name from now on. An operator calls it after [Admin].Break with the
// returned fence, so that the old holder can't write any more. It waits for a transaction that has called Enforce. It
// returns ErrUnavailable if the database fails.
func (f *Fences) Raise(ctx context.Context, name string, fence int64) error {
	err := f.Enforce(ctx, f.db, name, fence)
	if errors.Is(err, ErrFenced) {
		return nil // a larger fence is recorded already
	}
	return err
}

// recordLargest writes fence unless a larger one is recorded, and returns the larger of the two. It starts with an INSERT
// although the row nearly always exists: an UPDATE without a row would lock the gap, and two of those deadlock.
func (f *Fences) recordLargest(ctx context.Context, tx Execer, name string, fence int64) (largest int64, err error) {
	if f.dialect == SQLite {
		return f.recordLargestSQLite(ctx, tx, name, fence)
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO fences (name, fence) VALUES (?, LAST_INSERT_ID(?))
ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, ?))`, name, fence, fence)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (f *Fences) recordLargestSQLite(ctx context.Context, tx Execer, name string, fence int64) (largest int64, err error) {
	result, err := tx.ExecContext(ctx, `INSERT INTO fences (name, fence) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence`, name, fence)
	if err != nil {
		return 0, err
	}
	written, err := result.RowsAffected()
	if written == 0 {
		return fence + 1, err // a larger fence is recorded; Enforce does not need its value
	}
	return fence, err
}

package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Fences refuses writes under leases that have been overtaken. No lock keeps a process that stood still from writing
// after somebody else got the name; what is written to can, by remembering the largest [Lease.Fence] it has seen.
//
// Safe for concurrent use.
type Fences struct {
	db      *sql.DB
	dialect Dialect
}

// NewFences returns the fences that db has in its table of that name; see [Dialect.Schema].
func NewFences(db *sql.DB, dialect Dialect) *Fences { return &Fences{db: db, dialect: dialect} }

// Execer is a transaction, or a connection that is in one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Enforce lets tx, which writes under the lease of name with that fence, go on to its commit. ErrFenced if a transaction
// with a larger fence has been committed: then tx must be rolled back. ErrUnavailable if the database fails.
//
// It costs one statement, and takes the row of name until tx ends: writers under one name come one after another, and
// one that had to wait for a larger fence is refused. Call it before the writes, so that those waited for are seen. What
// tx remembers is rolled back with it.
func (f *Fences) Enforce(ctx context.Context, tx Execer, name string, fence int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("%w: %d is no fence", ErrInvalid, fence)
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

// Raise refuses every write under name with a fence smaller than this one, from now on. It is the operator's part: after
// [Registry].Break, with the fence that it returns, the old holder writes nothing more. ErrUnavailable if the database
// fails. It waits for a writer whose transaction has not ended.
func (f *Fences) Raise(ctx context.Context, name string, fence int64) error {
	err := f.Enforce(ctx, f.db, name, fence)
	if errors.Is(err, ErrFenced) {
		return nil // it is refused already
	}
	return err
}

// recordLargest writes fence unless a larger one is there, and returns the larger of the two. The INSERT comes first although
// the row is nearly always there: an UPDATE that finds none would lock the gap, and two of those deadlock.
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
		return fence + 1, err // how much larger is nobody's concern
	}
	return fence, err
}

package database

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"firsttap/dispatch"
	"firsttap/repository/primary"
)

// TransactOnce runs fn in a transaction. ErrUnknown means that the COMMIT may have been sent and no reply came; after any other
// error nothing was written. A transaction may lose against another one at its COMMIT too: on the nodes of a Galera cluster, or on TiDB.
func (p *Pool) TransactOnce(ctx context.Context, fn func(tx Tx) error) error {
	tx := p.With(ctx).Begin()
	if tx.Error != nil {
		return Unavailable(tx.Error)
	}
	// Error 1205 undoes one statement only and would leave the others to be committed; a panic would leave the rows locked.
	done := false
	defer func() {
		if !done {
			tx.Rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	switch err := tx.Commit().Error; {
	case Retryable(err):
		return Unavailable(err)
	case err != nil:
		return fmt.Errorf("%w: commit: %w", dispatch.ErrUnknown, err)
	}
	return nil
}

// Unavailable wraps a database error in ErrUnavailable, or in ErrInvalidValue if it is about a value, unless it is one of these or
// ErrUnknown already.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) ||
		errors.Is(err, dispatch.ErrInvalidValue) {
		return err
	}
	if IsServerError(err, aboutValues...) {
		return &dispatch.InvalidValueError{Field: fieldIn(err.Error()), Err: err}
	}
	return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
}

// aboutValues are the numbers of a server's errors about a value: too long, out of range, null, in characters that the column or the server
// does not have, no JSON, or against a check.
var aboutValues = []uint16{1048, 1264, 1265, 1267, 1292, 1300, 1366, 1367, 1406, 1690, 1977, 3140, 3141, 3156, 3819, 3854, 3988, 4025}

// columnIn is the column in the text of such an error, as MySQL and MariaDB quote it, with or without database and table.
var columnIn = regexp.MustCompile("(?:[Cc]olumn|CONSTRAINT) ((?:['`][^'`]+['`][.]?)+)")

// fieldIn returns the name of the request's field that is stored in the column of an error, "" if the error names none.
func fieldIn(text string) string {
	found := columnIn.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	names := strings.FieldsFunc(found[1], func(r rune) bool { return strings.ContainsRune("'`.", r) })
	return strings.Replace(names[len(names)-1], "fee_", "fee.", 1)
}

// Transact runs fn in a transaction, and repeats it after a deadlock, a duplicate key or a conflict with a concurrent write. Its errors are
// those of TransactOnce.
func (p *Pool) Transact(ctx context.Context, fn func(tx Tx) error) error {
	return Retry(ctx, func() error { return p.TransactOnce(ctx, fn) })
}

// ErrDuplicateKey is the error of a statement whose row has the key of another one.
var ErrDuplicateKey = gorm.ErrDuplicatedKey

// KeepPresent is a clause of an INSERT: rows that have their key already stay as they are.
var KeepPresent = clause.OnConflict{DoNothing: true}

// ReplacePresent is a clause of an INSERT: rows that have their key already get all the new values.
var ReplacePresent = clause.OnConflict{UpdateAll: true}

// SetPresent is a clause of an INSERT: in rows that have their key already, each column gets the value of its SQL, one after the other.
func SetPresent(columns ...[2]string) clause.OnConflict {
	var set clause.Set
	for _, c := range columns {
		set = append(set, clause.Assignment{Column: clause.Column{Name: c[0]}, Value: clause.Expr{SQL: c[1]}})
	}
	return clause.OnConflict{DoUpdates: set}
}

// Retry calls write, a statement or a transaction, until it collides with no other: after a deadlock, a duplicate key or a conflict
// nothing was written. It returns the last collision after MaxTries, a deadlock as ErrUnavailable.
func Retry(ctx context.Context, write func() error) error {
	for try := 1; ; try++ {
		err := write()
		lost := Retryable(err)
		again := lost || errors.Is(err, ErrConflict) || errors.Is(err, ErrDuplicateKey)
		switch {
		case !again || errors.Is(err, dispatch.ErrUnknown):
			return err
		case try == MaxTries && lost:
			return Unavailable(err)
		case try == MaxTries:
			return err
		}
		// A random pause keeps transactions that collided from colliding again.
		wait := time.NewTimer(rand.N(retryBackoff << min(try, 5)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return Unavailable(err)
		}
	}
}

// retryBackoff bounds the first pause; the bound doubles with each try, five times at most.
const retryBackoff = 4 * time.Millisecond

// MaxTries bounds how often a transaction is repeated. Of several claims that one driver makes at the same time, one commits
// in each try.
const MaxTries = 10

// ErrConflict means that a row has changed since it was read.
var ErrConflict = errors.New("a row was changed concurrently")

// ErrStale means that the server takes no writes any more: its answer may be old.
var ErrStale = fmt.Errorf("%w: the answer may be old", primary.ErrReadOnly)

// RequireOwned returns ErrNotLeased if a statement found no row of the lease's owner.
func RequireOwned(done Tx) error {
	if done.Error != nil {
		return Unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

// Deadlock is the number of a server's error for a transaction that was undone, as another one waited for it.
const Deadlock = 1213

// IsServerError reports whether err is an error of the server, with one of the numbers if there are any.
func IsServerError(err error, numbers ...uint16) bool {
	var e *driver.MySQLError
	return errors.As(err, &e) && (len(numbers) == 0 || slices.Contains(numbers, e.Number))
}

package repository

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// transact runs fn in a transaction. Any error but ErrUnknown means that nothing was written; ErrUnknown, that the
// COMMIT was sent and its reply is missing.
func transact(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	tx := db.WithContext(ctx).Begin()
	if tx.Error != nil {
		return unavailable(tx.Error)
	}
	// Also after 1205, which undoes one statement and leaves the others to be committed, and after a panic, which
	// would leave the rows locked. After a COMMIT it does nothing.
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit().Error; err != nil {
		return fmt.Errorf("%w: commit: %w", dispatch.ErrUnknown, err)
	}
	return nil
}

// unavailable turns an error of the database's into ErrUnavailable, and leaves an error of the domain as it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
}

// transactWithRetry runs fn in a transaction, and again as long as it fails for what may well be gone the next time: a deadlock, or
// a row that another has just written or deleted. Errors as of transact.
func (s *Store) transactWithRetry(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	for try := 1; ; try++ {
		err := transact(ctx, db, fn)
		again := s.dialect.retryable(err) || errors.Is(err, errConflict) || errors.Is(err, gorm.ErrDuplicatedKey)
		if !again || errors.Is(err, dispatch.ErrUnknown) || try == maxTries {
			return err
		}
		// Many who begin again together are in each other's way again.
		wait := time.NewTimer(rand.N(retryBackoff << min(try, 5)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return unavailable(err)
		}
	}
}

// retryBackoff doubles with each try, five times at most.
const retryBackoff = 4 * time.Millisecond

// maxTries bounds how often a claim is decided anew because what it was decided on has moved. Of several claims that
// one driver makes at once, one gets through each time.
const maxTries = 10

// errConflict says that the dispatch or the driver is no longer as it was when the rule decided.
var errConflict = errors.New("moved meanwhile")

// requireOwned is ErrNotLeased where a statement has found nothing of the owner's.
func requireOwned(done *gorm.DB) error {
	if done.Error != nil {
		return unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// serverFiles returns the migrations of a server. TiDB has MySQL's, but for those that the folder tidb has, too: the same versions lead
// to the same schema by statements that TiDB takes.
func serverFiles(dialect Dialect) (all []*file, err error) {
	folders := []Dialect{MySQL}
	if dialect == TiDB {
		folders = append(folders, TiDB)
	}
	for _, d := range folders {
		folder, err := fs.Sub(files, string(d))
		if err != nil {
			return nil, err
		}
		read, err := readFiles(folder)
		if err != nil {
			return nil, err
		}
		all = append(all, read...) // of two files of a version the later one counts
	}
	return all, nil
}

// onTiDB adapts the journal to TiDB. A transaction there sees only the tables that existed when it began. Every FirstTap that migrated a TiDB
// had a journal.
func (j *journal) onTiDB() {
	j.first, j.lastUnjournaled = true, 0
}

const (
	unknownError = 1105
	lockRetry    = 100 * time.Millisecond
)

// tidbLock is [namedLock] on TiDB. Its GET_LOCK fails when many sessions wait for the lock that one of them gets: then it asks again, until wait
// has passed.
func tidbLock(ctx context.Context, db *sql.DB, wait time.Duration, untilHeartbeat func(context.Context) error) (held context.Context, release func() error, err error) {
	for end := time.Now().Add(wait); ; {
		held, release, err = namedLock(ctx, db, max(0, time.Until(end)), untilHeartbeat)
		if !isError(err, unknownError) || !strings.Contains(err.Error(), "pessimistic lock retry limit") {
			return held, release, err
		}
		if time.Now().After(end) {
			return nil, nil, fmt.Errorf("%w: %w", ErrBusy, err)
		}
		if err := sleep(ctx, lockRetry); err != nil {
			return nil, nil, err
		}
	}
}

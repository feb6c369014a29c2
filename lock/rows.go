package lock

import (
	"context"
	"database/sql"
	"time"
)

// Rows is a Strategy and an Admin that uses row locks: a transaction holds the lock on a name's row, which other sessions
// skip (SELECT ... FOR UPDATE SKIP LOCKED). An acquisition and a release cost three statements each, a refusal two, an extension
// one; a refusal while another session is acquiring the name costs more. A name with the sessions' own TTL costs one less to acquire and to
// release.
//
// While a name is held, DDL on the tables lock_rows and lock_sessions waits. List, Show and Break briefly lock the rows of
// names whose holder has died; an attempt to acquire such a name in that moment is refused as held.
type Rows struct{ sessions *Sessions }

// Rows returns the strategy that holds names by transactions in these sessions.
func (s *Sessions) Rows() *Rows { return &Rows{sessions: s} }

const (
	// rowLockSQL selects whether the name has a row, the id of this session, the owner of the name, 1 if this session has
	// locked the row, and whether the server accepts writes.
	rowLockSQL = "SELECT (SELECT COUNT(*) FROM lock_rows WHERE name = ?), CONNECTION_ID(), " +
		"(SELECT locked_by FROM lock_sessions WHERE strategy = 'rows' AND name = ? AND session_id IS NOT NULL), " +
		"(SELECT 1 FROM lock_rows WHERE name = ? FOR UPDATE SKIP LOCKED), " + holdsNames
	rowUnlockSQL  = "UPDATE lock_sessions SET session_id = NULL WHERE strategy = 'rows' AND name = ? AND session_id = CONNECTION_ID()"
	rowHoldersSQL = "SELECT s.name, IF(s.session_id IS NULL, NULL, " +
		"IF((SELECT 1 FROM lock_rows r WHERE r.name = s.name FOR UPDATE SKIP LOCKED) IS NULL, s.session_id, NULL)), " +
		"s.session_id, s.locked_by, s.fence FROM lock_sessions s WHERE s.strategy = 'rows'"
)

// Acquire implements Strategy.
func (r *Rows) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	return r.sessions.acquire(ctx, r, name, owner, ttl)
}

// List implements Admin.
func (r *Rows) List(ctx context.Context) ([]Holder, error) { return r.sessions.list(ctx, r) }

// Show implements Admin.
func (r *Rows) Show(ctx context.Context, name string) (Holder, error) {
	return r.sessions.show(ctx, r, name)
}

// Break implements Admin. It kills the holder's session, which requires the same database user or an administrator.
func (r *Rows) Break(ctx context.Context, name string) (Holder, error) {
	return r.sessions.breakSession(ctx, r, name)
}

func (r *Rows) strategy() string     { return "rows" }
func (r *Rows) pool() *sql.DB        { return r.sessions.rows }
func (r *Rows) holdersQuery() string { return rowHoldersSQL }

const (
	// rowsTries and rowsPause apply to a locked row without a recorded owner: another session has just locked it and is
	// about to record its owner, or it only checks whether the row is locked.
	rowsTries = 4
	rowsPause = 2 * time.Millisecond
)

// tryLock tries to lock the row without checking first. A check would have to lock the row for a moment, and if several
// sessions checked at the same time, none would get it.
func (r *Rows) tryLock(ctx context.Context, conn *sql.Conn, name string) (id int64, err error) {
	for try := 1; ; try++ {
		found, err := r.lockRow(ctx, conn, name)
		switch {
		case err != nil:
			return 0, err
		case found.mine.Valid:
			return found.id, nil
		case found.rows == 0:
			err = r.createRow(ctx, conn, name)
		case found.owner.Valid || try == rowsTries:
			return 0, &HeldError{Owner: found.owner.String}
		default:
			err = sleep(ctx, rowsPause)
		}
		if err != nil {
			return 0, err
		}
	}
}

// rowLockResult is a result of rowLockSQL.
type rowLockResult struct {
	rows  int
	id    int64
	owner sql.NullString
	mine  sql.NullInt64
}

func (r *Rows) lockRow(ctx context.Context, conn *sql.Conn, name string) (found rowLockResult, err error) {
	var writes bool
	err = conn.QueryRowContext(ctx, rowLockSQL, name, name, name).Scan(&found.rows, &found.id, &found.owner, &found.mine, &writes)
	if err == nil && !writes {
		return found, errHoldsNoNames
	}
	if err == nil && !found.mine.Valid {
		// The session is not in autocommit mode, so the SELECT began a transaction.
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	return found, err
}

// createRow creates the name's row. An INSERT of an existing row would wait for its holder, so the statements first lock the name's
// row in lock_sessions, which serializes concurrent calls, and then check again. They go to the server in one packet: if they were
// sent one by one, a slow caller would keep the others waiting between two of them.
func (r *Rows) createRow(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, `INSERT INTO lock_sessions (strategy, name, fence) VALUES ('rows', ?, 0)
ON DUPLICATE KEY UPDATE fence = fence;
INSERT INTO lock_rows (name) SELECT ? FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM lock_rows WHERE name = ?);
COMMIT`, name, name, name)
	return err
}

// verify does not look at the row: the transaction lasts as long as the session.
func (r *Rows) verify(ctx context.Context, conn *sql.Conn, _ string) error {
	return expectOne(ctx, conn, "SELECT "+holdsNames)
}

func (r *Rows) unlock(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, rowUnlockSQL, name)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	return err
}

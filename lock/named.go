package lock

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Named is a Strategy and an Admin that uses GET_LOCK. An acquisition costs three statements, a release two, a refusal and an extension one
// each; a name with the sessions' own TTL costs one less to acquire and to release.
//
// GET_LOCK's names are server-wide, limited in length and case-insensitive, so the lock's name is a hash of the database
// and the name. For a moment after a name was acquired, refusals have a HeldError without an Owner.
type Named struct{ sessions *Sessions }

// Named returns the strategy that holds names by GET_LOCK in these sessions.
func (s *Sessions) Named() *Named { return &Named{sessions: s} }

// lockName and lockNameEnd enclose the SQL of a name and form the SQL of its lock's name on the server.
const (
	lockName    = "CONCAT('firsttap:', LEFT(SHA2(CONCAT(DATABASE(), '/', "
	lockNameEnd = "), 256), 48))"
)

const (
	namedLockSQL = "SELECT GET_LOCK(" + lockName + "?" + lockNameEnd + ", 0), CONNECTION_ID(), " +
		"(SELECT locked_by FROM lock_sessions WHERE strategy = 'named' AND name = ? " +
		"AND session_id = IS_USED_LOCK(" + lockName + "?" + lockNameEnd + ")), " + holdsNames
	namedVerifySQL  = "SELECT COALESCE(IS_USED_LOCK(" + lockName + "?" + lockNameEnd + ") = CONNECTION_ID(), 0) AND " + holdsNames
	namedUnlockSQL  = "SELECT COALESCE(RELEASE_LOCK(" + lockName + "?" + lockNameEnd + "), 0)"
	namedHoldersSQL = "SELECT s.name, IS_USED_LOCK(" + lockName + "s.name" + lockNameEnd + "), s.session_id, s.locked_by, s.fence " +
		"FROM lock_sessions s WHERE s.strategy = 'named'"
)

// Acquire implements Strategy.
func (n *Named) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	return n.sessions.acquire(ctx, n, name, owner, ttl)
}

// List implements Admin.
func (n *Named) List(ctx context.Context) ([]Holder, error) { return n.sessions.list(ctx, n) }

// Show implements Admin.
func (n *Named) Show(ctx context.Context, name string) (Holder, error) {
	return n.sessions.show(ctx, n, name)
}

// Break implements Admin. It kills the holder's session, which requires the same database user or an administrator.
func (n *Named) Break(ctx context.Context, name string) (Holder, error) {
	return n.sessions.breakSession(ctx, n, name)
}

func (n *Named) strategy() string     { return "named" }
func (n *Named) pool() *sql.DB        { return n.sessions.named }
func (n *Named) holdersQuery() string { return namedHoldersSQL }

func (n *Named) tryLock(ctx context.Context, conn *sql.Conn, name string) (id int64, err error) {
	var got sql.NullInt64
	var owner sql.NullString
	var writes bool
	if err := conn.QueryRowContext(ctx, namedLockSQL, name, name, name).Scan(&got, &id, &owner, &writes); err != nil {
		return 0, err
	}
	switch {
	case !writes:
		return 0, errHoldsNoNames
	case !got.Valid:
		return 0, errors.New("GET_LOCK failed on the server")
	case got.Int64 == 0:
		return 0, &HeldError{Owner: owner.String}
	}
	return id, nil
}

func (n *Named) verify(ctx context.Context, conn *sql.Conn, name string) error {
	return expectOne(ctx, conn, namedVerifySQL, name)
}

func (n *Named) unlock(ctx context.Context, conn *sql.Conn, name string) error {
	return expectOne(ctx, conn, namedUnlockSQL, name)
}

var errNotHeld = errors.New("the session does not hold the name")

// expectOne returns an error unless the query's result is 1.
func expectOne(ctx context.Context, conn *sql.Conn, query string, args ...any) error {
	var yes int
	err := conn.QueryRowContext(ctx, query, args...).Scan(&yes)
	if err == nil && yes != 1 {
		err = errNotHeld
	}
	return err
}

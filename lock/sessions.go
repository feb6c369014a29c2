package lock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Sessions are connections to a MySQL or MariaDB server whose sessions hold names, by [Named] or [Rows]. The server frees a
// name when its session ends: at once if the holder's process dies, and one to two seconds after the name's TTL (the
// session's wait_timeout) if the holder is cut off from the server. If it is cut off in the moment between the name's acquisition and the
// next statement, which sets that time, the server frees the name after the sessions' TTL.
//
// A server that becomes read-only, for example because it was demoted to a replica, holds no names: Acquire fails there,
// and Extend returns ErrLost.
//
// Sessions do not work through a proxy that shares sessions between connections, or with Galera, whose nodes have separate
// sessions. A TiDB holds no names either, as it ignores SKIP LOCKED.
//
// They are safe for concurrent use.
type Sessions struct {
	ttl     time.Duration // the longest of a name
	timeout time.Duration // of a call without a deadline
	shared  *sql.DB       // for statements that need no session of their own; never two connections at a time
	named   *sql.DB
	rows    *sql.DB

	mu     sync.Mutex
	grants map[*sessionGrant]bool // nil once closed
}

const (
	// sessionTimeout bounds each exchange with the server, even if the caller's context has no deadline.
	sessionTimeout = 2 * time.Second
	sharedConns    = 4
	// sharedAge is the maximum age of a shared connection: a demoted server that keeps its connections open is asked no longer.
	sharedAge = time.Minute
)

// holdsNames is the SQL condition that names may be held on the server. A demoted server keeps its sessions, while other
// processes acquire the same names on the new primary. The variables are compared as text because some servers return words.
const holdsNames = "(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF') AND CONCAT(@@GLOBAL.innodb_read_only) IN ('0', 'OFF') " +
	"AND VERSION() NOT LIKE '%TiDB%')"

var errHoldsNoNames = errors.New("the server is read-only, or a TiDB, and holds no names")

// OpenSessions returns sessions for names whose TTL is at most ttl. Each held name uses a connection of its own,
// and a strategy opens at most as many connections as the argument names says. An Acquire beyond that waits for a free connection until its
// context ends, and for at most 2 s.
//
// It does not connect, and it copies config. It returns an error if config or an argument is not valid.
func OpenSessions(config *mysql.Config, ttl time.Duration, names int) (*Sessions, error) {
	return openSessions(config, ttl, names, sessionTimeout)
}

// openSessions is OpenSessions with a timeout of each exchange with the server, and of the wait for a free connection.
func openSessions(config *mysql.Config, ttl time.Duration, names int, timeout time.Duration) (*Sessions, error) {
	if ttl < minTTL || names < 1 {
		return nil, fmt.Errorf("%w: sessions need at least one name and a TTL of %s, not %d and %s", ErrInvalid, minTTL, names, ttl)
	}
	config = config.Clone()
	config.InterpolateParams = true // one round trip per statement instead of three
	config.Logger = &mysql.NopLogger{}
	config.RejectReadOnly = true
	config.Timeout, config.ReadTimeout, config.WriteTimeout = timeout, timeout, timeout
	config.Params = withParams(config.Params, ownParams)
	named := config.Clone()
	named.Params = withParams(config.Params, map[string]string{"wait_timeout": strconv.Itoa(silence(ttl))})
	rows := named.Clone()
	rows.Params = withParams(named.Params, map[string]string{"autocommit": "0"})
	rows.MultiStatements = true // see createRow
	var pools [3]*sql.DB
	for i, c := range []*mysql.Config{config, named, rows} {
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, err
		}
		pools[i] = sql.OpenDB(connector)
	}
	s := &Sessions{
		ttl: ttl, timeout: timeout, shared: pools[0], named: pools[1], rows: pools[2], grants: map[*sessionGrant]bool{},
	}
	s.shared.SetMaxOpenConns(sharedConns)
	s.shared.SetMaxIdleConns(sharedConns)
	s.shared.SetConnMaxIdleTime(time.Minute)
	s.shared.SetConnMaxLifetime(sharedAge)
	for _, pool := range []*sql.DB{s.named, s.rows} {
		pool.SetMaxOpenConns(names)
		pool.SetMaxIdleConns(names)
		pool.SetConnMaxIdleTime(ttl / 2) // before the server ends it
	}
	return s, nil
}

// ownParams are what each session sets, whatever the server's configuration and the caller's config say. A server executes only the
// comments that are meant for it: /*M! is for MariaDB, /*!80000 for MySQL.
var ownParams = map[string]string{
	"autocommit": "1", "completion_type": "0", "/*M! tx_read_only *//*!80000 transaction_read_only */": "0",
	// With a stricter level, a transaction that holds a row would keep a snapshot, and the server could not purge old row versions of
	// any table.
	"/*M! tx_isolation *//*!80000 transaction_isolation */": "'READ-COMMITTED'",
	// A transaction that holds a row is idle.
	"/*M! idle_transaction_timeout = 0, idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, */ unique_checks": "1",
}

func withParams(params, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, params)
	maps.Copy(all, more)
	return all
}

// Close ends all sessions. The names that they hold are lost.
func (s *Sessions) Close() error {
	s.mu.Lock()
	grants := s.grants
	s.grants = nil
	s.mu.Unlock()
	for g := range grants {
		g.close()
	}
	return errors.Join(s.named.Close(), s.rows.Close(), s.shared.Close())
}

// sessionLock is a kind of lock that a session can hold: Named or Rows.
type sessionLock interface {
	// strategy is the value of lock_sessions.strategy.
	strategy() string
	pool() *sql.DB
	// tryLock acquires name for conn's session and returns the session's id. After ErrHeld, the connection is still usable.
	tryLock(ctx context.Context, conn *sql.Conn, name string) (id int64, err error)
	// verify returns nil if conn's session holds name. As any statement, it restarts the server's wait_timeout.
	verify(ctx context.Context, conn *sql.Conn, name string) error
	unlock(ctx context.Context, conn *sql.Conn, name string) error
	// holdersQuery selects the columns of sessionRow. It ends with a WHERE clause, so that conditions can be appended.
	holdersQuery() string
}

func (s *Sessions) acquire(ctx context.Context, k sessionLock, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkNameAndOwner(name, owner); err != nil {
		return nil, err
	}
	if ttl > s.ttl {
		return nil, s.tooLong(ttl)
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := k.pool().Conn(bounded)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	g := &sessionGrant{sessions: s, lock: k, name: name, owner: owner, conn: conn, silence: silence(s.ttl)}
	end := time.Now().Add(ttl) // the server counts from later
	g.id, err = k.tryLock(bounded, conn, name)
	if errors.Is(err, ErrHeld) {
		_ = conn.Close() // returns it to the pool
		return nil, err
	}
	if err == nil {
		err = g.allowSilence(bounded, ttl)
	}
	if err == nil {
		g.fence, err = s.assignFence(bounded, k, name, owner, g.id)
	}
	if err != nil {
		hangUp(conn)
		return nil, unavailable(ctx, err)
	}
	if !g.activate(end) {
		return nil, fmt.Errorf("%w: the sessions are closed", ErrUnavailable)
	}
	return g, nil
}

func (s *Sessions) tooLong(ttl time.Duration) error {
	return fmt.Errorf("%w: a name in a session has a TTL of at most %s, not %s", ErrInvalid, s.ttl, ttl)
}

// silence returns the wait_timeout, in seconds, of a session that holds a name with that TTL. A second more keeps the session until its
// holder's own timer has ended the grant.
func silence(ttl time.Duration) int { return int((ttl+time.Second-1)/time.Second) + 1 }

// hangUp closes the connection, which ends the session and frees its names. If a statement is still running, the server
// ends the session after it.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

const mysqlNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// assignFence returns the fence of the session that holds name, and records the session's owner. It commits on a shared
// connection, so that no fence is assigned twice even if the session ends.
func (s *Sessions) assignFence(ctx context.Context, k sessionLock, name, owner string, id int64) (int64, error) {
	return MySQL.execNumber(ctx, s.shared, `INSERT INTO lock_sessions (strategy, name, fence, locked_by, session_id, locked_at)
VALUES (?, ?, LAST_INSERT_ID(`+mysqlNow+`), ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE
	fence = LAST_INSERT_ID(GREATEST(fence + 1, `+mysqlNow+`)), locked_by = ?, session_id = ?, locked_at = UTC_TIMESTAMP(6)`,
		k.strategy(), name, owner, id, owner, id)
}

// raiseFence raises the fence without changing the owner.
func (s *Sessions) raiseFence(ctx context.Context, k sessionLock, name string) (int64, error) {
	return MySQL.execNumber(ctx, s.shared, `INSERT INTO lock_sessions (strategy, name, fence)
VALUES (?, ?, LAST_INSERT_ID(`+mysqlNow+`)) ON DUPLICATE KEY UPDATE
	fence = LAST_INSERT_ID(GREATEST(fence + 1, `+mysqlNow+`))`, k.strategy(), name)
}

// sessionRow is a row of sessionLock.holdersQuery.
type sessionRow struct {
	name       string
	heldBy     sql.NullInt64 // the id of the session that holds the name
	recordedBy sql.NullInt64 // the id of the session that was assigned the latest fence
	owner      sql.NullString
	fence      int64
}

// currentOwner returns the owner of the name, "" if the name is free. A session that has not recorded its owner yet is
// named by its id.
func (k *sessionRow) currentOwner() string {
	switch {
	case !k.heldBy.Valid:
		return ""
	case k.heldBy == k.recordedBy && k.owner.Valid:
		return k.owner.String
	}
	return fmt.Sprintf("session %d", k.heldBy.Int64)
}

func (k *sessionRow) holder() Holder {
	return Holder{Name: k.name, Owner: k.currentOwner(), Fence: k.fence}
}

// query runs holdersQuery with a condition.
func (s *Sessions) query(ctx context.Context, k sessionLock, condition string, args ...any) (found []sessionRow, err error) {
	rows, err := s.shared.QueryContext(ctx, k.holdersQuery()+condition, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var row sessionRow
		if err := rows.Scan(&row.name, &row.heldBy, &row.recordedBy, &row.owner, &row.fence); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

func (s *Sessions) find(ctx context.Context, k sessionLock, name string) (sessionRow, error) {
	found, err := s.query(ctx, k, " AND s.name = ?", name)
	if err != nil || len(found) == 0 {
		return sessionRow{name: name}, err
	}
	return found[0], nil
}

func (s *Sessions) list(ctx context.Context, k sessionLock) (held []Holder, err error) {
	found, err := s.query(ctx, k, " ORDER BY s.name")
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	for _, row := range found {
		if row.heldBy.Valid {
			held = append(held, row.holder())
		}
	}
	return held, nil
}

func (s *Sessions) show(ctx context.Context, k sessionLock, name string) (Holder, error) {
	row, err := s.find(ctx, k, name)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	return row.holder(), nil
}

func (s *Sessions) breakSession(ctx context.Context, k sessionLock, name string) (Holder, error) {
	if err := checkName(name); err != nil {
		return Holder{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	fence, err := s.raiseFence(bounded, k, name)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	row, err := s.find(bounded, k, name)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	row.fence = fence
	if row.heldBy.Valid {
		err = s.kill(bounded, k, row)
	}
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	return row.holder(), nil
}

// killPause is the interval between checks whether a killed session has ended.
const killPause = 2 * time.Millisecond

// kill ends the session that holds a name, and returns when it does not hold the name any more.
func (s *Sessions) kill(ctx context.Context, k sessionLock, row sessionRow) error {
	_, err := s.shared.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", row.heldBy.Int64))
	if err != nil && !isMySQL(err, noSuchThread) {
		return err
	}
	for {
		now, err := s.find(ctx, k, row.name)
		if err != nil {
			return err
		}
		if now.heldBy != row.heldBy {
			return s.forget(ctx, k, row)
		}
		if err := sleep(ctx, killPause); err != nil {
			return err
		}
	}
}

// forget removes the record of a session that has ended. While it is recorded, List and Show of [Rows] lock the name's row
// to find out whether the session lives, and an acquisition in that moment would be refused.
func (s *Sessions) forget(ctx context.Context, k sessionLock, row sessionRow) error {
	_, err := s.shared.ExecContext(ctx, "UPDATE lock_sessions SET session_id = NULL WHERE strategy = ? AND name = ? AND session_id = ?",
		k.strategy(), row.name, row.heldBy.Int64)
	return err
}

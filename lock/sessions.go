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

// Sessions are connections to a MySQL or MariaDB server whose sessions hold names, by [Named] or [Rows]: the server frees
// a name when it sees its session end. It ends a session that it has heard nothing of for the TTL (its wait_timeout), so a
// holder that was cut off loses its names by itself; a holder whose process dies, at once.
//
// A server that becomes read-only, as one does that is a replica from then on, holds no names: Acquire fails there, and
// Extend finds them lost.
//
// Not for servers behind a proxy that shares sessions between connections, nor for Galera, where each node has its own.
//
// Safe for concurrent use.
type Sessions struct {
	ttl    time.Duration
	shared *sql.DB // for what needs no session of its own; nobody who has one of these connections waits for another
	named  *sql.DB
	rows   *sql.DB

	mu     sync.Mutex
	grants map[*sessionGrant]bool // nil once closed
}

const (
	// sessionPatience bounds each conversation with the server, also when the caller's context does not.
	sessionPatience = 2 * time.Second
	sharedConns     = 4
	// sharedAge is how long what is listed may be that of a server that was demoted and keeps its connections.
	sharedAge = time.Minute
)

// isWritable is the SQL for whether the server is one that names may be held on. A server that was demoted keeps its
// sessions, and others hold the same names on the server that took its place. The variables are compared as text: some
// servers have words for them.
const isWritable = "(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF') AND CONCAT(@@GLOBAL.innodb_read_only) IN ('0', 'OFF'))"

var errReadOnly = errors.New("the server is read-only")

// OpenSessions returns sessions that end ttl after they were last heard of, rounded up to a second: the longest that a
// name can be acquired for. A strategy has as many connections as names; whoever finds all of them taken waits, as
// long as his context allows, and at most 2 s.
//
// No connection is opened yet, and config is not kept. An error says that it makes no sense.
func OpenSessions(config *mysql.Config, ttl time.Duration, names int) (*Sessions, error) {
	if ttl < minTTL || names < 1 {
		return nil, fmt.Errorf("%w: sessions for %d names and %s", ErrInvalid, names, ttl)
	}
	config = config.Clone()
	config.InterpolateParams = true // one round trip a statement instead of three
	config.Logger = &mysql.NopLogger{}
	config.RejectReadOnly = true
	config.Timeout, config.ReadTimeout, config.WriteTimeout = sessionPatience, sessionPatience, sessionPatience
	shared, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	named, rows := config.Clone(), config.Clone()
	seconds := strconv.Itoa(int((ttl + time.Second - 1) / time.Second))
	named.Params = withParam(config.Params, "wait_timeout", seconds)
	rows.Params = withParam(named.Params, "autocommit", "0")
	namedConnector, err := mysql.NewConnector(named)
	if err != nil {
		return nil, err
	}
	rowsConnector, err := mysql.NewConnector(rows)
	if err != nil {
		return nil, err
	}
	s := &Sessions{
		ttl: ttl, shared: sql.OpenDB(shared), named: sql.OpenDB(namedConnector), rows: sql.OpenDB(readCommitted{rowsConnector}),
		grants: map[*sessionGrant]bool{},
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

func withParam(params map[string]string, name, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, params)
	all[name] = value
	return all
}

// readCommitted makes sessions see what is committed when a statement begins. Otherwise a transaction that holds a row would
// keep the server from purging whatever changes meanwhile, in any table.
type readCommitted struct{ driver.Connector }

func (c readCommitted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", nil)
	if err != nil {
		_ = conn.Close() // it was no use anyway
		return nil, err
	}
	return conn, nil
}

// Close ends all sessions: what they hold is lost.
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

// sessionLock is a way of having a session keep a name: Named, or Rows.
type sessionLock interface {
	// strategy is what lock_sessions calls it.
	strategy() string
	pool() *sql.DB
	// tryLock makes conn's session keep name, and returns the session's id. An ErrHeld leaves the connection usable.
	tryLock(ctx context.Context, conn *sql.Conn, name string) (id int64, err error)
	// verify is nil if conn's session keeps name. It makes the server's wait_timeout begin anew.
	verify(ctx context.Context, conn *sql.Conn, name string) error
	// unlock makes conn's session keep name no longer.
	unlock(ctx context.Context, conn *sql.Conn, name string) error
	// holdersQuery selects what lock_sessions has of each name: the name, the id of the session that keeps it or NULL, and, of
	// the latest that acquired it, its session_id, its locked_by, and its fence. It ends in a WHERE to be gone on with.
	holdersQuery() string
}

func (s *Sessions) acquire(ctx context.Context, k sessionLock, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkNameAndOwner(name, owner); err != nil {
		return nil, err
	}
	if ttl > s.ttl {
		return nil, fmt.Errorf("%w: the sessions end after %s, before %s", ErrInvalid, s.ttl, ttl)
	}
	bounded, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	conn, err := k.pool().Conn(bounded)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	g := &sessionGrant{sessions: s, lock: k, name: name, owner: owner, conn: conn}
	g.id, err = k.tryLock(bounded, conn, name)
	if errors.Is(err, ErrHeld) {
		_ = conn.Close() // back to the pool, which fails for no reason
		return nil, err
	}
	taken := time.Now()
	if err == nil {
		g.fence, err = s.assignFence(bounded, k, name, owner, g.id)
	}
	if err != nil {
		hangUp(conn)
		return nil, unavailable(ctx, err)
	}
	if !g.activate(taken.Add(ttl)) {
		return nil, fmt.Errorf("%w: the sessions are closed", ErrUnavailable)
	}
	return g, nil
}

// hangUp ends the session, and with it whatever it keeps or may yet come to keep: the server executes what it was sent,
// and finds then that nobody is there.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

const mysqlNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// assignFence gives the session that keeps name its fence, and says in the table whose it is. It is committed at once, on a
// connection of its own: whatever becomes of the session, no number is given twice.
func (s *Sessions) assignFence(ctx context.Context, k sessionLock, name, owner string, id int64) (int64, error) {
	return MySQL.execNumber(ctx, s.shared, `INSERT INTO lock_sessions (strategy, name, fence, locked_by, session_id, locked_at)
VALUES (?, ?, LAST_INSERT_ID(`+mysqlNow+`), ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE
	fence = LAST_INSERT_ID(GREATEST(fence + 1, `+mysqlNow+`)), locked_by = ?, session_id = ?, locked_at = UTC_TIMESTAMP(6)`,
		k.strategy(), name, owner, id, owner, id)
}

// raiseFence moves the fence, and leaves alone whose the name is.
func (s *Sessions) raiseFence(ctx context.Context, k sessionLock, name string) (int64, error) {
	return MySQL.execNumber(ctx, s.shared, `INSERT INTO lock_sessions (strategy, name, fence)
VALUES (?, ?, LAST_INSERT_ID(`+mysqlNow+`)) ON DUPLICATE KEY UPDATE
	fence = LAST_INSERT_ID(GREATEST(fence + 1, `+mysqlNow+`))`, k.strategy(), name)
}

// sessionRow is a row of keeper.kept.
type sessionRow struct {
	name       string
	heldBy     sql.NullInt64 // the session that keeps the name
	recordedBy sql.NullInt64 // the latest that was given a fence
	owner      sql.NullString
	fence      int64
}

// currentOwner is the owner of the name, "" if nobody keeps it. Between taking a name and saying so, a session has no owner yet.
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

// query asks for what is kept, each name or the one.
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
	bounded, cancel := context.WithTimeout(ctx, sessionPatience)
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

// killPause is between two looks at whether a session that was killed has gone.
const killPause = 2 * time.Millisecond

// kill ends the session that keeps a name, and returns when it does so no longer.
func (s *Sessions) kill(ctx context.Context, k sessionLock, row sessionRow) error {
	_, err := s.shared.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", row.heldBy.Int64))
	if err != nil && !isMySQL(err, noSuchThread) {
		return err
	}
	for {
		now, err := s.find(ctx, k, row.name)
		if err != nil || now.heldBy != row.heldBy {
			return err
		}
		if err := sleep(ctx, killPause); err != nil {
			return err
		}
	}
}

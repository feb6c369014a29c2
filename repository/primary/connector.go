// Package primary connects to the server at an address as long as that takes writes.
//
// Behind the address another server may take over at any time. The old one, a replica from then on, keeps its connections and goes on
// answering from old data, so a pool of this connector checks a connection when it takes it, and a pool's connections are all closed when
// the server is found to be read-only or does not answer. A server also never has more connections of a pool than the pool may have,
// although it goes on with statements whose answers were given up.
package primary

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// MaxConnAge bounds how long a connection is used: its address may no longer lead to its server, which may still take writes. Each is
	// closed at a random age from minConnAge on, so that a pool does not lose all connections at once.
	MaxConnAge = 5 * time.Minute
	minConnAge = 3 * time.Minute
	// redialPause is how long Connect fails at once after a dial has led to a server that can't be used.
	redialPause = 100 * time.Millisecond
	// suspectPause is the least time between two suspicions: a slow server loses its connections at most that often.
	suspectPause = time.Second
	// doubtFor is for how long after a suspicion the address may still lead to the old server. One that is cut off from the others takes
	// connections and answers from old data: a new connection is used for doubtedAge at most. One that stood still may have taken a dial
	// before another took over: a dial that takes longer than quickDial is repeated.
	doubtFor   = 15 * time.Second
	doubtedAge = 500 * time.Millisecond
	quickDial  = 50 * time.Millisecond
)

// ErrReadOnly means that the server at the database's address takes no writes: it is a replica, or is becoming one, and its
// answers may be old.
var ErrReadOnly = errors.New("the database server is read-only")

// Server is the server at the database's address, as all pools of a process know it: another one may take over there. It is safe for
// concurrent use.
type Server struct {
	// generation counts how often another server may have taken over: the one in use was read-only, or did not answer. Connections of an
	// earlier generation are closed.
	generation atomic.Int64
	// suspectedAt is when the server last did not answer.
	suspectedAt atomic.Pointer[time.Time]
}

// Leave makes the pools close every connection that they have now.
func (s *Server) Leave() { s.generation.Add(1) }

// suspect is Leave for a server that did not answer, at most once in suspectPause. A server that stood still may go on without knowing
// that another has taken over, and then takes writes and answers from old data.
func (s *Server) suspect() {
	last, now := s.suspectedAt.Load(), time.Now()
	if (last == nil || now.Sub(*last) >= suspectPause) && s.suspectedAt.CompareAndSwap(last, &now) {
		s.Leave()
	}
}

// suspectedSince reports whether the server was suspected after that time.
func (s *Server) suspectedSince(at time.Time) bool {
	last := s.suspectedAt.Load()
	return last != nil && last.After(at)
}

// Connector connects only to servers that take writes. A demoted server keeps its connections and goes on answering
// from old data, so the pool checks a connection again when it takes it.
//
// Read-only errors are not enough: reads get none, nor do accounts with the privilege to write to a read-only server.
type Connector struct {
	driver.Connector
	// recheckAfter is how old the last check may be when a connection is taken from the pool: 0 checks each time. See Unchecked.
	recheckAfter time.Duration
	// checkTimeout bounds the check whether the server takes writes: a frozen server must not delay a caller, for each connection
	// that is tried, more than a dial does.
	checkTimeout time.Duration
	server       *Server
	// refused is what a dial last found out that keeps the server from being used.
	refused atomic.Pointer[refusal]
	pool    poolLimit
}

type refusal struct {
	at  time.Time
	err error
}

type uncheckedKey struct{}

// Unchecked returns a context for statements that contain the check themselves, by ReadOnlySQL: a connection that is taken with it is used
// as it is.
func Unchecked(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncheckedKey{}, true)
}

func unchecked(ctx context.Context) bool { return ctx.Value(uncheckedKey{}) != nil }

// ReadOnlySQL is the SQL for whether a server takes no writes: a replica, or one of Aurora's readers. The variables are
// compared as text: MariaDB 12 has words instead of 0 and 1, and a word compared with a number counts as 0.
const ReadOnlySQL = "(CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') OR CONCAT(@@GLOBAL.innodb_read_only) NOT IN ('0', 'OFF'))"

// NewConnector returns a connector to the server at config's address, for a pool of so many connections. It does not connect.
func NewConnector(config *mysql.Config, conns int, every time.Duration, s *Server) (*Connector, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return &Connector{
		Connector: connector, server: s, recheckAfter: every, checkTimeout: config.Timeout / 2, pool: poolLimit{conns: conns},
	}, nil
}

// Connect implements driver.Connector. It returns ErrReadOnly if the server takes no writes, and errGivenUp if it still executes statements
// that were given up, so that with this connection it would have more of this pool than the pool may have. If the server is suspected and
// the dial is slow, it dials once more: the first dial may have waited for a server that has been replaced meanwhile.
func (p *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	began := time.Now()
	c, err := p.dial(ctx)
	took := time.Since(began)
	switch {
	case err != nil && took >= p.checkTimeout:
		p.server.suspect()
	case err == nil && took > quickDial && p.server.suspectedSince(began.Add(-doubtFor)):
		_ = c.Close() // it has executed nothing but reads of variables
		c, err = p.dial(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Connector) dial(ctx context.Context) (*conn, error) {
	if refused := p.refused.Load(); refused != nil && time.Since(refused.at) < redialPause {
		return nil, refused.err
	}
	if p.pool.full() {
		if !p.pool.asking.TryLock() {
			return nil, errGivenUp
		}
		defer p.pool.asking.Unlock()
	}
	generation := p.server.generation.Load()
	dialed, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := dialed.(driverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks a method", dialed), dialed.Close())
	}
	now := time.Now()
	age := minConnAge + rand.N(MaxConnAge-minConnAge)
	if p.server.suspectedSince(now.Add(-doubtFor)) {
		age = doubtedAge/2 + rand.N(doubtedAge/2)
	}
	c := &conn{driverConn: whole, connector: p, generation: generation, checkedAt: now, expiresAt: now.Add(age)}
	p.pool.opened()
	err = c.askReadOnly(ctx)
	if err == nil {
		err = p.pool.admit(ctx, c)
	}
	if errors.Is(err, ErrReadOnly) || errors.Is(err, errGivenUp) {
		p.refused.Store(&refusal{now, err})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// driverConn are the interfaces of the driver's connections that database/sql looks for.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// conn is a connection to a server that took writes when it was checked.
type conn struct {
	driverConn
	connector  *Connector
	generation int64
	checkedAt  time.Time
	expiresAt  time.Time
	session    string // the server, and its number for the connection
	taken      bool   // the pool has taken it, so that it was checked then
	broken     bool   // the driver can't read what the server sends
	unanswered bool   // the server may still be executing a statement
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	c.connector.pool.closed(c)
	return c.driverConn.Close()
}

// ResetSession implements driver.SessionResetter: the pool calls it when it takes the connection, but not for the first time. Only after
// ErrBadConn does the pool close the connection and take or dial another.
func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.driverConn.ResetSession(ctx); err != nil {
		return err
	}
	c.taken = true
	return c.check(ctx)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Rows, err error) {
	if err := c.checkFirst(ctx); err != nil {
		return nil, err
	}
	asked := time.Now()
	if !unchecked(ctx) { // the connection has been checked, and a read may be slow
		asked = time.Time{}
	}
	defer c.answered(asked, &err)
	return c.driverConn.QueryContext(ctx, query, args)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Result, err error) {
	if err := c.checkFirst(ctx); err != nil {
		return nil, err
	}
	defer c.answered(time.Now(), &err)
	return c.driverConn.ExecContext(ctx, query, args)
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (_ driver.Tx, err error) {
	if err := c.checkFirst(ctx); err != nil {
		return nil, err
	}
	defer c.answered(time.Now(), &err)
	begun, err := c.driverConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return tx{begun, c}, nil
}

type tx struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx.
func (t tx) Commit() (err error) {
	defer t.conn.answered(time.Now(), &err)
	return t.Tx.Commit()
}

// NotPrepared is the error number of a Galera server without the majority.
const NotPrepared = 1047

// answered is deferred by what waits for the server's answer since asked; zero means that it may take any time. It suspects a server that
// gave no answer in time, or that is without the majority of its cluster: a group's primary that is cut off from the others answers reads,
// and commits nothing. It does not suspect a server that sent another error. Nor does it if the
// caller canceled the call, or if the connection was dialed before the last suspicion.
//
// It also turns a panic of the driver into a lost reply: the driver panics on some malformed answers, as a MariaDB of a Galera cluster
// gives when another server's change aborts a procedure. With the panic, database/sql would wait for ever for the connection's lock.
func (c *conn) answered(asked time.Time, err *error) {
	if why := recover(); why != nil {
		c.broken = true
		*err = fmt.Errorf("%w: the answer can't be read: %v", mysql.ErrInvalidConn, why)
		return
	}
	message := (*mysql.MySQLError)(nil)
	c.unanswered = *err != nil && !errors.As(*err, &message) && !errors.Is(*err, driver.ErrBadConn)
	late := c.unanswered && !errors.Is(*err, context.Canceled) && !asked.IsZero() && time.Since(asked) >= c.connector.checkTimeout
	if (late || message != nil && message.Number == NotPrepared) && c.generation == c.connector.server.generation.Load() {
		c.connector.server.suspect()
	}
}

// checkFirst checks a connection before its first use. The pool calls ResetSession only from the second use on, and a connection may wait
// in the pool before the first: the pool had given its caller another one meanwhile.
func (c *conn) checkFirst(ctx context.Context) error {
	if c.taken {
		return nil
	}
	c.taken = true
	if !c.isOld() && time.Since(c.checkedAt) < redialPause {
		return nil
	}
	return c.check(ctx)
}

// check returns ErrBadConn unless the server takes writes, as far as the last check is not too old.
func (c *conn) check(ctx context.Context) error {
	if c.isOld() {
		return driver.ErrBadConn
	}
	if unchecked(ctx) || time.Since(c.checkedAt) < c.connector.recheckAfter {
		return nil
	}
	asked := time.Now()
	switch err := c.askReadOnly(ctx); {
	case errors.Is(err, ErrReadOnly):
		c.connector.server.Leave()
		return driver.ErrBadConn
	case err != nil:
		if time.Since(asked) >= c.connector.checkTimeout {
			c.connector.server.suspect()
		}
		return driver.ErrBadConn
	}
	c.checkedAt = asked
	return nil
}

// IsValid implements driver.Validator: the pool calls it when the connection is returned.
func (c *conn) IsValid() bool {
	return !c.broken && c.driverConn.IsValid() && !c.isOld()
}

// isOld reports whether the connection is not to be used any more: another server may have taken over since it was dialed.
func (c *conn) isOld() bool {
	return c.generation != c.connector.server.generation.Load() || !time.Now().Before(c.expiresAt)
}

// askReadOnly returns ErrReadOnly if the server takes no writes.
func (c *conn) askReadOnly(ctx context.Context) error {
	answer, err := c.ask(ctx, "SELECT "+ReadOnlySQL)
	switch {
	case err != nil:
		return err
	case slices.Equal(answer, []string{"0"}):
		return nil
	case slices.Equal(answer, []string{"1"}):
		return ErrReadOnly
	}
	return fmt.Errorf("the server answered %q to the query whether it is read-only", answer)
}

// ask returns the first column of a query's result. A caller whose context ends meanwhile would cost the pool a good connection, so it has
// checkTimeout instead.
func (c *conn) ask(ctx context.Context, query string) (column []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.connector.checkTimeout)
	defer cancel()
	rows, err := c.driverConn.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, fmt.Errorf("the check of the server: %w", err)
	}
	row := make([]driver.Value, len(rows.Columns()))
	for err = rows.Next(row); err == nil; err = rows.Next(row) {
		if text, ok := row[0].([]byte); ok {
			row[0] = string(text)
		}
		column = append(column, fmt.Sprint(row[0]))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return column, errors.Join(err, rows.Close())
}

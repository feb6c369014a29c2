package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// A connection is closed at a random age between these, so that a pool does not lose all connections at once. The
	// maximum bounds how long an instance uses a server that its address no longer leads to and that still takes writes.
	minConnAge, maxConnAge = 3 * time.Minute, 5 * time.Minute
	// redialPause is how long Connect fails at once after a dial has led to a read-only server.
	redialPause = 100 * time.Millisecond
)

// errReadOnly means that the server at the database's address takes no writes: it is a replica, or is becoming one, and its
// answers may be old.
var errReadOnly = errors.New("the database server is read-only")

// primaryConnector connects only to servers that take writes. A demoted server keeps its connections and goes on answering
// from old data, so the pool checks a connection again when it takes it.
//
// Read-only errors are not enough: reads get none, nor do accounts with the privilege to write to a read-only server.
type primaryConnector struct {
	driver.Connector
	// recheckAfter is how old the last check may be when a connection is taken from the pool: 0 checks each time, a negative
	// value never, for statements that contain the check.
	recheckAfter time.Duration
	// checkTimeout bounds the check whether the server takes writes: a frozen server must not delay a caller, for each connection
	// that is tried, more than a dial does.
	checkTimeout time.Duration
	// demotions counts how often a server was found to be read-only. Connections dialed before the last time are closed.
	demotions atomic.Int64
	// refusedAt is when a dial last led to a read-only server.
	refusedAt atomic.Pointer[time.Time]
}

const neverRecheck = -1 * time.Second

// readOnlySQL is the SQL for whether a server takes no writes: a replica, or one of Aurora's readers. The variables are
// compared as text: MariaDB 12 has words instead of 0 and 1, and a word compared with a number counts as 0.
const readOnlySQL = "(CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') OR CONCAT(@@GLOBAL.innodb_read_only) NOT IN ('0', 'OFF'))"

// newPrimary returns a connector for config. It does not connect.
func newPrimary(config *mysql.Config, every time.Duration) (*primaryConnector, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return &primaryConnector{Connector: connector, recheckAfter: every, checkTimeout: config.Timeout / 2}, nil
}

// invalidate makes the pool close every connection that it has now.
func (p *primaryConnector) invalidate() { p.demotions.Add(1) }

// Connect implements driver.Connector. errReadOnly.
func (p *primaryConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if refused := p.refusedAt.Load(); refused != nil && time.Since(*refused) < redialPause {
		return nil, errReadOnly
	}
	demotions := p.demotions.Load()
	dialed, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := dialed.(conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks a method", dialed), dialed.Close())
	}
	now := time.Now()
	c := &primaryConn{
		conn: whole, primary: p, demotions: demotions, checkedAt: now,
		expiresAt: now.Add(minConnAge + rand.N(maxConnAge-minConnAge)),
	}
	switch readOnly, err := c.isReadOnly(ctx); {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("the query whether the server takes writes: %w", err), c.Close())
	case readOnly:
		p.refusedAt.Store(&now)
		return nil, errors.Join(errReadOnly, c.Close())
	}
	return c, nil
}

// conn are the interfaces of the driver's connections that database/sql looks for.
type conn interface {
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

// primaryConn is a connection to a server that took writes when it was checked.
type primaryConn struct {
	conn
	primary   *primaryConnector
	demotions int64
	checkedAt time.Time
	expiresAt time.Time
}

// ResetSession implements driver.SessionResetter: the pool calls it when it takes the connection. Only after ErrBadConn does
// the pool close the connection and take or dial another.
func (c *primaryConn) ResetSession(ctx context.Context) error {
	if err := c.conn.ResetSession(ctx); err != nil {
		return err
	}
	if c.demotions != c.primary.demotions.Load() {
		return driver.ErrBadConn
	}
	if c.primary.recheckAfter < 0 || time.Since(c.checkedAt) < c.primary.recheckAfter {
		return nil
	}
	asked := time.Now()
	switch readOnly, err := c.isReadOnly(ctx); {
	case err != nil:
		return driver.ErrBadConn
	case readOnly:
		c.primary.invalidate()
		return driver.ErrBadConn
	}
	c.checkedAt = asked
	return nil
}

// IsValid implements driver.Validator: the pool calls it when the connection is returned.
func (c *primaryConn) IsValid() bool {
	return c.conn.IsValid() && c.demotions == c.primary.demotions.Load() && time.Now().Before(c.expiresAt)
}

// isReadOnly asks the server whether it takes no writes.
func (c *primaryConn) isReadOnly(ctx context.Context) (readOnly bool, err error) {
	// A caller whose context ends during the check would cost the pool a good connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.primary.checkTimeout)
	defer cancel()
	rows, err := c.QueryContext(ctx, "SELECT "+readOnlySQL, nil)
	if err != nil {
		return false, err
	}
	answer := make([]driver.Value, 1)
	err = errors.Join(rows.Next(answer), rows.Close())
	switch answer[0] {
	case int64(0):
		return false, err
	case int64(1):
		return true, err
	}
	return false, errors.Join(err, fmt.Errorf("the server answered %v to the query whether it is read-only", answer[0]))
}

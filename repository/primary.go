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
	// readOnlyCheckTimeout bounds the question whether a server can be written to: a server that stands still must not cost a caller
	// more, for each connection that is tried, than a dial does.
	readOnlyCheckTimeout = time.Second
	// A connection is given up at an age between these, each at its own, so that a pool does not lose all of them at once.
	// It is how long an instance stays at most on a server that its address leads to no longer, and that takes writes.
	minConnAge, maxConnAge = 3 * time.Minute, 5 * time.Minute
	// redialPause is for which no connection is dialed after one has led to a read-only server: those who ask meanwhile
	// are refused at once.
	redialPause = 100 * time.Millisecond
)

// errReadOnly says that the server at the database's address takes no writes: it is a replica, or is about to be one, and
// what it would answer may be old.
var errReadOnly = errors.New("the database server is read-only")

// primaryConnector dials servers that can be written to, and no others. A server that was demoted keeps its connections, and
// answers from what it has, so that its connections are asked again, by the pool that has them.
//
// Read-only errors alone would not do: reads get none, nor do accounts that may write to a read-only server.
type primaryConnector struct {
	driver.Connector
	// recheckAfter is how old the answer may be when a connection is taken from the pool: 0 asks each time, less than that never,
	// where the statements ask for themselves.
	recheckAfter time.Duration
	// demotions is how often a connection's server was found to be read-only: those that were dialed before are given up.
	demotions atomic.Int64
	// refusedAt is when a dial last led to a read-only server.
	refusedAt atomic.Pointer[time.Time]
}

const neverRecheck = -1 * time.Second

// readOnlySQL is the SQL for whether a server takes no writes: a replica, or one of Aurora's readers. The variables are
// compared as text: MariaDB 12 has words where others have 0 and 1, and a word that is compared with a number counts as 0.
const readOnlySQL = "(CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') OR CONCAT(@@GLOBAL.innodb_read_only) NOT IN ('0', 'OFF'))"

// newPrimary returns a connector by config. It does not connect.
func newPrimary(config *mysql.Config, every time.Duration) (*primaryConnector, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return &primaryConnector{Connector: connector, recheckAfter: every}, nil
}

// invalidate has the pool give up every connection that it has by now.
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
		return nil, errors.Join(err, c.Close())
	case readOnly:
		p.refusedAt.Store(&now)
		return nil, errors.Join(errReadOnly, c.Close())
	}
	return c, nil
}

// conn is what the driver's connections implement, all of which database/sql looks for.
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

// primaryConn is a connection to a server that could be written to when it was asked.
type primaryConn struct {
	conn
	primary   *primaryConnector
	demotions int64
	checkedAt time.Time
	expiresAt time.Time
}

// ResetSession implements driver.SessionResetter: it is called when the connection is taken from the pool. For ErrBadConn,
// and for no other error, the pool closes the connection and takes another, or dials one.
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

// IsValid implements driver.Validator: it is called when the connection is to go back to the pool.
func (c *primaryConn) IsValid() bool {
	return c.conn.IsValid() && c.demotions == c.primary.demotions.Load() && time.Now().Before(c.expiresAt)
}

func (c *primaryConn) isReadOnly(ctx context.Context) (readOnly bool, err error) {
	// A caller who gives up in the middle would cost the pool a good connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readOnlyCheckTimeout)
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
	return false, errors.Join(err, fmt.Errorf("the server answers %v when it is asked whether it is read-only", answer[0]))
}

//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package primary

import (
	"context"
	"database/sql/driver"
	"io"
	"time"
)

// slowServer is a driver.Connector to a server that answers as late as it is told. It is no server's stand-in: what is tested is when the
// pool's connections are given up, and not what a server says.
type slowServer struct {
	driver.Connector
	handshake, answer time.Duration
	fails, panics     bool
	says              error // to a statement
	dialed            []*slowConn
}

func (s *slowServer) Connect(ctx context.Context) (driver.Conn, error) {
	if err := wait(ctx, s.handshake); err != nil {
		return nil, err
	}
	if s.fails {
		return nil, io.ErrUnexpectedEOF
	}
	c := &slowConn{server: s}
	s.dialed = append(s.dialed, c)
	return c, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

type slowConn struct {
	driverConn
	server *slowServer
	closed bool
}

func (c *slowConn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := wait(ctx, c.server.answer); err != nil {
		return nil, err
	}
	switch query {
	case "SHOW PROCESSLIST": // the server executes nothing that was given up
		return &answer{}, nil
	case "SELECT " + ReadOnlySQL:
		return &answer{rows: []string{"0"}}, nil
	}
	if c.server.panics {
		_ = make([]byte, 0)[c.server.handshake:1] // as a driver that reads beyond a packet's end
	}
	return &answer{rows: []string{"host 3306 1 7"}}, nil
}

func (c *slowConn) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	if err := wait(ctx, c.server.answer); err != nil {
		return nil, err
	}
	return nil, c.server.says
}

func (c *slowConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return slowTx{c}, nil
}

// slowTx is a transaction of a connection that waits for a second at most.
type slowTx struct{ *slowConn }

func (t slowTx) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := t.ExecContext(ctx, "COMMIT", nil)
	return err
}

func (slowTx) Rollback() error { return nil }

func (c *slowConn) ResetSession(context.Context) error { return nil }
func (c *slowConn) IsValid() bool                      { return true }
func (c *slowConn) Close() error                       { c.closed = true; return nil }

// answer is the answer to a query for one column.
type answer struct{ rows []string }

func (*answer) Columns() []string { return []string{"Id"} }
func (*answer) Close() error      { return nil }

func (a *answer) Next(values []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	values[0], a.rows = []byte(a.rows[0]), a.rows[1:]
	return nil
}

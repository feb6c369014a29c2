package primary

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
)

// errGivenUp means that the server still executes so many statements whose answers were given up that it can have no more connections of
// the pool. It takes up to all of them when nothing commits, as while it waits for a replica.
var errGivenUp = errors.New("the database server still executes statements that were given up, and they take all connections of the pool")

// session is a connection as the server knows it.
type session struct {
	server string
	id     uint64
}

// poolLimit keeps a server from having more connections of a pool than the pool may have. A server does not notice that its client has
// closed a connection while it executes a statement, so such a connection counts until the server has no session for it any more.
type poolLimit struct {
	conns int

	mu      sync.Mutex
	open    int
	givenUp []session
	asking  bool // one connection beyond the limit asks the server for its sessions
}

// enter returns nil if a connection may be dialed, which ends with done.
func (l *poolLimit) enter() (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.givenUp) == 0 || l.open+len(l.givenUp) < l.conns {
		return func() {}, nil
	}
	if l.asking {
		return nil, errGivenUp
	}
	l.asking = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asking = false
	}, nil
}

func (l *poolLimit) opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
}

func (l *poolLimit) closed(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if c.unanswered {
		l.givenUp = append(l.givenUp, c.session)
	}
}

// check forgets the sessions that the server of c does not have any more. unusable is errGivenUp if the others leave no room for c.
func (l *poolLimit) check(ctx context.Context, c *conn) (unusable, err error) {
	l.mu.Lock()
	asked := slices.Clone(l.givenUp)
	l.mu.Unlock()
	if len(asked) == 0 {
		return nil, nil
	}
	found, err := c.sessions(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// What was given up meanwhile was not asked for, and another dial may have forgotten some. Another server does not execute what this one
	// was sent.
	l.givenUp = slices.DeleteFunc(l.givenUp, func(s session) bool {
		return slices.Contains(asked, s) && (s.server != c.session.server || !found[s.id])
	})
	if l.open+len(l.givenUp) > l.conns {
		return fmt.Errorf("%w (%d of %d)", errGivenUp, len(l.givenUp), l.conns), nil
	}
	return nil, nil
}

// sessions returns those of the account.
func (c *conn) sessions(ctx context.Context) (found map[uint64]bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.connector.checkTimeout)
	defer cancel()
	rows, err := c.driverConn.QueryContext(ctx, "SHOW PROCESSLIST", nil)
	if err != nil {
		return nil, err
	}
	found = map[uint64]bool{}
	row := make([]driver.Value, len(rows.Columns()))
	for err = rows.Next(row); err == nil; err = rows.Next(row) {
		id, err := strconv.ParseUint(asText(row[0]), 10, 64)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		found[id] = true
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return found, errors.Join(err, rows.Close())
}

// asText is a value as the driver reads it from a server's answer.
func asText(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

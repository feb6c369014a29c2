package primary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// errGivenUp means that the server still executes so many statements whose answers were given up that it can have no more connections of
// the pool. It takes up to all of them when nothing commits, as while it waits for a replica.
var errGivenUp = errors.New("the database server still executes statements that were given up, and they take all connections of the pool")

// poolLimit keeps a server from having more connections of a pool than the pool may have. A server does not notice that its client has
// closed a connection while it executes a statement, so such a connection counts until the server has no session for it any more.
type poolLimit struct {
	conns  int
	asking sync.Mutex // held by the one connection beyond the limit, which asks the server for its sessions

	mu      sync.Mutex
	open    int
	givenUp []string // sessions, by server and number
}

// full reports whether a connection would be one beyond the limit.
func (l *poolLimit) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.givenUp) > 0 && l.open+len(l.givenUp) >= l.conns
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

// admit returns errGivenUp if the sessions that were given up leave no room for c. It forgets those that the server of c does not have any
// more: another server does not execute what this one was sent.
func (l *poolLimit) admit(ctx context.Context, c *conn) error {
	own, err := c.ask(ctx, "SELECT CONCAT_WS(' ', @@hostname, @@port, @@server_id, CONNECTION_ID())")
	if err != nil {
		return err
	}
	c.session = strings.Join(own, "")
	l.mu.Lock()
	asked := slices.Clone(l.givenUp)
	l.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	ids, err := c.ask(ctx, "SHOW PROCESSLIST") // the account's
	if err != nil {
		return err
	}
	server := c.session[:strings.LastIndex(c.session, " ")+1]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = slices.DeleteFunc(l.givenUp, func(s string) bool {
		id, here := strings.CutPrefix(s, server)
		ended := !here || !slices.Contains(ids, id)
		return ended && slices.Contains(asked, s) // what was given up meanwhile was not asked for
	})
	if l.open+len(l.givenUp) > l.conns {
		return fmt.Errorf("%w (%d of %d)", errGivenUp, len(l.givenUp), l.conns)
	}
	return nil
}

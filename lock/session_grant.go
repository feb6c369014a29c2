package lock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// sessionGrant is a name that a session keeps. A session ends with its connection, and the driver closes a connection
// whose statement was given up: an Extend without an answer is the end of the grant.
type sessionGrant struct {
	sessions *Sessions
	lock     sessionLock
	name     string
	owner    string
	id       int64 // of the session
	fence    int64

	mu        sync.Mutex // for the timer and Close, besides the one goroutine that uses the grant
	conn      *sql.Conn  // nil once the session does not keep the name for the grant any more
	unlocked  bool       // a release was confirmed
	lingering bool       // released, but for the time that it is kept
	end       time.Time
	timer     *time.Timer
}

// activate makes the grant end at that time, whatever becomes of its holder; false if the sessions are closed. The server
// alone would end a session later, if the TTL of the sessions is longer or another's clock slower.
func (g *sessionGrant) activate(end time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end = end
	g.timer = time.AfterFunc(time.Until(end), g.onTimer)
	s := g.sessions
	s.mu.Lock()
	open := s.grants != nil
	if open {
		s.grants[g] = true
	}
	s.mu.Unlock()
	if !open {
		g.hangUp()
	}
	return open
}

// Fence implements Grant.
func (g *sessionGrant) Fence() int64 { return g.fence }

// Extend implements Grant. There is no ErrUnavailable after something was sent: a session that did not answer has been
// given up, and the name is lost.
func (g *sessionGrant) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl > g.sessions.ttl {
		return fmt.Errorf("%w: the sessions end after %s, before %s", ErrInvalid, g.sessions.ttl, ttl)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lingering {
		return ErrExpired
	}
	if err := g.verify(ctx); err != nil {
		return err
	}
	g.setEnd(ttl)
	return nil
}

// verify is ErrLost unless the session keeps the name; ErrUnavailable if ctx ended before anything was sent.
func (g *sessionGrant) verify(ctx context.Context) error {
	if g.conn == nil {
		return ErrExpired
	}
	if err := ctx.Err(); err != nil {
		return unavailable(ctx, err)
	}
	bounded, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	if err := g.lock.verify(bounded, g.conn, g.name); err != nil {
		g.hangUp()
		return fmt.Errorf("%w: the session is gone: %w", ErrExpired, err)
	}
	return nil
}

func (g *sessionGrant) setEnd(d time.Duration) {
	g.end = time.Now().Add(d)
	g.resetTimer()
}

// resetTimer sets the timer for the end, or, for a name that is kept longer than the server waits for a word, for the next one.
func (g *sessionGrant) resetTimer() {
	d := time.Until(g.end)
	if g.lingering {
		d = min(d, g.sessions.ttl/3)
	}
	g.timer.Reset(d)
}

func (g *sessionGrant) onTimer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.conn == nil:
	case !time.Now().Before(g.end):
		g.hangUp()
	case g.lingering && g.verify(context.Background()) != nil:
	default:
		g.resetTimer()
	}
}

// Release implements Grant. What is kept ends earlier if the process does.
//
// A session that did not answer is hung up on, which frees the name as soon as the server sees it; the next Release makes
// sure of that, by ending the session from another connection if it is still there.
func (g *sessionGrant) Release(ctx context.Context, keep time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.unlocked:
		return ErrExpired
	case g.conn == nil:
		return g.killSession(ctx)
	case keep > 0:
		if err := g.verify(ctx); err != nil {
			return err
		}
		g.lingering = true
		g.setEnd(keep)
		return nil
	}
	return g.unlock(ctx)
}

func (g *sessionGrant) unlock(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	if err := g.lock.unlock(bounded, g.conn, g.name); err != nil {
		g.hangUp()
		return unavailable(ctx, err)
	}
	conn := g.conn
	g.detach()
	g.unlocked = true
	_ = conn.Close() // back to the pool, which fails for no reason
	return nil
}

// killSession ends a session that the server may not have seen end. The number alone does not tell whose a session is: a
// server that was started again counts from the beginning.
func (g *sessionGrant) killSession(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	row, err := g.sessions.find(bounded, g.lock, g.name)
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case !row.heldBy.Valid:
		return ErrExpired
	case row.heldBy.Int64 != g.id || row.currentOwner() != g.owner:
		return ErrStolen
	}
	if err := g.sessions.kill(bounded, g.lock, row); err != nil {
		return unavailable(ctx, err)
	}
	g.unlocked = true
	return nil
}

// close ends the grant, with all that its Sessions have.
func (g *sessionGrant) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		g.hangUp()
	}
}

func (g *sessionGrant) hangUp() {
	hangUp(g.conn)
	g.detach()
}

// detach gives up the connection, which was hung up on or is about to go back to the pool.
func (g *sessionGrant) detach() {
	g.conn = nil
	g.timer.Stop()
	g.sessions.mu.Lock()
	delete(g.sessions.grants, g)
	g.sessions.mu.Unlock()
}

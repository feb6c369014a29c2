package lock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// sessionGrant is a name that a session holds. A session ends with its connection, and the driver closes a connection if a
// statement is canceled, so an Extend without an answer ends the grant.
type sessionGrant struct {
	sessions *Sessions
	lock     sessionLock
	name     string
	owner    string
	id       int64 // of the session
	fence    int64

	mu        sync.Mutex // the timer and Close run concurrently with the holder
	conn      *sql.Conn  // nil once the grant has ended
	unlocked  bool       // the server confirmed a release
	lingering bool       // released, and kept until end
	silence   int        // the session's wait_timeout
	end       time.Time
	timer     *time.Timer
}

// activate sets the time at which the grant ends, even if its holder does nothing. The server alone would end the session
// later. It reports false if the sessions are closed.
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

// Extend implements Grant. Once something was sent, it does not return ErrUnavailable: a session that does not answer is
// closed, and the name is lost.
func (g *sessionGrant) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl > g.sessions.ttl {
		return g.sessions.tooLong(ttl)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lingering {
		return ErrExpired
	}
	end := time.Now().Add(ttl) // the server counts from later
	if err := g.verify(ctx, ttl); err != nil {
		return err
	}
	g.setEnd(end)
	return nil
}

// verify lets the session be silent for ttl from now on. It returns ErrLost if the session does not hold the name, and ErrUnavailable if
// ctx ended before anything was sent.
func (g *sessionGrant) verify(ctx context.Context, ttl time.Duration) error {
	if g.conn == nil {
		return ErrExpired
	}
	if err := ctx.Err(); err != nil {
		return unavailable(ctx, err)
	}
	if err := g.ask(ctx, ttl); err != nil {
		return fmt.Errorf("%w: the session has ended: %w", ErrExpired, err)
	}
	return nil
}

// ask lets the session be silent for ttl and asks whether it holds the name. With an error the session is closed.
func (g *sessionGrant) ask(ctx context.Context, ttl time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, g.sessions.timeout)
	defer cancel()
	err := g.allowSilence(bounded, ttl)
	if err == nil {
		err = g.lock.verify(bounded, g.conn, g.name)
	}
	if err != nil {
		g.hangUp()
	}
	return err
}

// allowSilence has the server end the session if it is silent for longer than ttl.
func (g *sessionGrant) allowSilence(ctx context.Context, ttl time.Duration) error {
	seconds := silence(ttl)
	if seconds == g.silence {
		return nil
	}
	_, err := g.conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", seconds))
	if err == nil {
		g.silence = seconds
	}
	return err
}

func (g *sessionGrant) setEnd(end time.Time) {
	g.end = end
	g.resetTimer()
}

// resetTimer sets the timer to the end or, for a name that is kept after its release for longer than a session may be silent, to the next
// check that keeps the session alive.
func (g *sessionGrant) resetTimer() {
	d := time.Until(g.end)
	if g.lingering && d > g.sessions.ttl {
		d = g.sessions.ttl / 3
	}
	g.timer.Reset(d)
}

// keepSession lets the session of a kept name be silent until its end, or for as long as a session may be.
func (g *sessionGrant) keepSession(ctx context.Context, end time.Time) error {
	return g.verify(ctx, min(time.Until(end), g.sessions.ttl))
}

func (g *sessionGrant) onTimer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.conn == nil:
	case !time.Now().Before(g.end):
		g.hangUp()
	case g.lingering && g.keepSession(context.Background(), g.end) != nil:
	default:
		g.resetTimer()
	}
}

// Release implements Grant. A name that is kept ends earlier if the process ends.
//
// If the session does not answer, its connection is closed, which frees the name when the server notices. The next Release
// ends the session from another connection if it still exists.
func (g *sessionGrant) Release(ctx context.Context, keep time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.unlocked:
		return ErrExpired
	case g.conn == nil:
		return g.killSession(ctx)
	case keep > 0:
		end := time.Now().Add(keep)
		if err := g.ask(ctx, min(keep, g.sessions.ttl)); err != nil {
			return unavailable(ctx, err)
		}
		g.lingering = true
		g.setEnd(end)
		return nil
	}
	return g.unlock(ctx)
}

func (g *sessionGrant) unlock(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, g.sessions.timeout)
	defer cancel()
	if err := g.lock.unlock(bounded, g.conn, g.name); err != nil {
		g.hangUp()
		return unavailable(ctx, err)
	}
	g.unlocked = true
	if err := g.allowSilence(bounded, g.sessions.ttl); err != nil { // as the pool's other connections
		g.hangUp()
		return nil
	}
	conn := g.conn
	g.detach()
	_ = conn.Close() // returns it to the pool
	return nil
}

// killSession ends a session that may still exist on the server. It checks the owner too, because a restarted server
// assigns the same session ids again.
func (g *sessionGrant) killSession(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, g.sessions.timeout)
	defer cancel()
	row, err := g.sessions.find(bounded, g.lock, g.name)
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case !row.heldBy.Valid && row.fence == g.fence:
		return ErrExpired
	case !row.heldBy.Valid || row.heldBy.Int64 != g.id || row.currentOwner() != g.owner:
		return ErrStolen
	}
	if err := g.sessions.kill(bounded, g.lock, row); err != nil {
		return unavailable(ctx, err)
	}
	g.unlocked = true
	return nil
}

// close ends the grant when its Sessions are closed.
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

// detach removes the connection, which was closed or is about to be returned to the pool.
func (g *sessionGrant) detach() {
	g.conn = nil
	g.timer.Stop()
	g.sessions.mu.Lock()
	delete(g.sessions.grants, g)
	g.sessions.mu.Unlock()
}

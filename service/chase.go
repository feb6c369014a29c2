package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"firsttap/dispatch"
)

const (
	chaseEvery = time.Second
	// chaseQuiet keeps a driver whose taps fail from having everybody told again and again.
	chaseQuiet = 10 * time.Second
	// chaseFor is how long a database that is away is asked again. An offer is over by then.
	chaseFor  = dispatch.DefaultWindow
	chaseMost = 10_000
	chaseTick = 200 * time.Millisecond
	// chaseLast bounds what is still followed up when the process ends.
	chaseLast = 3 * time.Second
)

// chaser makes good on "another driver's claim is being decided". Each process follows up on the drivers it has
// turned away itself: when the claim came to nothing, or its instance died, it has them told that the dispatch is
// open.
type chaser struct {
	claims Claims
	locks  Locks
	log    *slog.Logger
	mu     sync.Mutex
	open   map[dispatch.ID]chase
}

type chase struct {
	round      int
	due, since time.Time
}

func newChaser(claims Claims, locks Locks, log *slog.Logger) *chaser {
	return &chaser{claims: claims, locks: locks, log: log, open: map[dispatch.ID]chase{}}
}

// chase looks after the dispatch when wait has passed. Of several calls the earliest counts.
func (c *chaser) chase(tap Tap, wait time.Duration) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	next := chase{round: tap.Round, due: now.Add(wait), since: now}
	if old, ok := c.open[tap.Dispatch]; ok {
		// The newest round is what drivers still wait for; of two calls on it, the earlier counts.
		next.round, next.since = max(old.round, tap.Round), old.since
		if old.due.Before(next.due) {
			next.due = old.due
		}
	} else if !ok && len(c.open) >= chaseMost {
		c.log.Error("too many claims to follow up, drivers may have been turned away in vain", "dispatch", tap.Dispatch)
		return
	}
	c.open[tap.Dispatch] = next
}

// settle says that the dispatch is somebody's in that round.
func (c *chaser) settle(id dispatch.ID, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.open[id]; ok && ch.round <= round {
		delete(c.open, id)
	}
}

func (c *chaser) run(ctx context.Context) {
	tick := time.NewTicker(chaseTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			// Nobody else knows whom this process has turned away.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), chaseLast)
			defer cancel()
			c.followAll(last, time.Now().Add(chaseFor))
			return
		case now := <-tick.C:
			c.followAll(ctx, now)
		}
	}
}

// followAll follows up on what is due at now.
func (c *chaser) followAll(ctx context.Context, now time.Time) {
	for id, ch := range c.due(now) {
		c.follow(ctx, id, ch)
	}
}

func (c *chaser) due(now time.Time) map[dispatch.ID]chase {
	c.mu.Lock()
	defer c.mu.Unlock()
	var due map[dispatch.ID]chase
	for id, ch := range c.open {
		if now.Before(ch.due) {
			continue
		}
		if due == nil {
			due = map[dispatch.ID]chase{}
		}
		due[id] = ch
		delete(c.open, id)
	}
	return due
}

func (c *chaser) follow(ctx context.Context, id dispatch.ID, ch chase) {
	switch c.lockSays(ctx, id, ch.round) {
	case lockTaken:
		return
	case lockClaimed:
		c.again(id, ch)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	switch told, err := c.claims.Reannounce(ctx, id, ch.round, chaseQuiet); {
	case errors.Is(err, dispatch.ErrNotFound):
	case err != nil && time.Since(ch.since) < chaseFor:
		c.again(id, ch)
	case err != nil:
		c.log.Error("drivers were turned away in vain and not told", "dispatch", id, "error", err)
	case told:
		c.log.Info("a claim came to nothing, the dispatch is announced again", "dispatch", id, "round", ch.round)
	}
}

// again puts a chase back, unless a newer one has begun.
func (c *chaser) again(id dispatch.ID, ch chase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[id]; !ok {
		ch.due = time.Now().Add(chaseEvery)
		c.open[id] = ch
	}
}

type lockState int

const (
	lockSilent lockState = iota // nobody's, or Redis can't tell: the database has to be asked
	lockClaimed
	lockTaken
)

func (c *chaser) lockSays(ctx context.Context, id dispatch.ID, round int) lockState {
	if c.locks == nil {
		return lockSilent
	}
	owner, err := c.locks.Owner(ctx, lockName(id))
	m, ok := parseMarker(owner)
	switch {
	case err != nil || !ok || m.committed && m.round < round:
		return lockSilent
	case m.committed:
		return lockTaken
	}
	return lockClaimed
}

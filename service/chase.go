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
	// chaseQuiet keeps drivers whose taps fail from having everybody told again and again. It doubles each time.
	chaseQuiet = 10 * time.Second
	// chaseFor is how long a database that is away is asked again. An offer is over by then.
	chaseFor  = dispatch.DefaultWindow
	chaseMost = 10_000
	// chaseMine is how many rounds are followed up for one driver, who can make dispatches and rounds up.
	chaseMine = 64
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
	open   map[dispatch.ID]map[int]chase // by round
	size   int
	mine   map[dispatch.DriverID]int // how many are open for each driver
}

// chase is one round of a dispatch that is followed up, for one of the drivers who were turned away.
type chase struct {
	dispatch   dispatch.ID
	round      int
	driver     dispatch.DriverID
	due, since time.Time
	latest     time.Time // when somebody was last turned away
}

func newChaser(claims Claims, locks Locks, log *slog.Logger) *chaser {
	return &chaser{
		claims: claims, locks: locks, log: log,
		open: map[dispatch.ID]map[int]chase{}, mine: map[dispatch.DriverID]int{},
	}
}

// chase looks after the tap's round when wait has passed, for the drivers who were turned away: the tap's own unless
// others are named. Of several calls on one round the earliest counts. Rounds are kept apart: the driver may have made
// one up.
func (c *chaser) chase(tap Tap, wait time.Duration, turnedAway ...dispatch.DriverID) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.open[tap.Dispatch][tap.Round]; ok {
		if due := now.Add(wait); due.Before(old.due) {
			old.due = due
		}
		old.latest = now
		c.open[tap.Dispatch][tap.Round] = old
		return
	}
	if len(turnedAway) == 0 {
		turnedAway = []dispatch.DriverID{tap.Driver}
	}
	for _, v := range turnedAway {
		if c.size < chaseMost && c.mine[v] < chaseMine {
			c.add(chase{dispatch: tap.Dispatch, round: tap.Round, driver: v, due: now.Add(wait), since: now, latest: now})
			return
		}
	}
	c.log.Error("too many claims to follow up, drivers may have been turned away in vain", "dispatch", tap.Dispatch,
		"round", tap.Round, "open", c.size)
}

// add and remove keep the counts. c.mu is held.
func (c *chaser) add(ch chase) {
	if c.open[ch.dispatch] == nil {
		c.open[ch.dispatch] = map[int]chase{}
	}
	c.open[ch.dispatch][ch.round] = ch
	c.size++
	c.mine[ch.driver]++
}

func (c *chaser) remove(ch chase) {
	delete(c.open[ch.dispatch], ch.round)
	if len(c.open[ch.dispatch]) == 0 {
		delete(c.open, ch.dispatch)
	}
	c.size--
	if c.mine[ch.driver]--; c.mine[ch.driver] == 0 {
		delete(c.mine, ch.driver)
	}
}

// settle says that the dispatch is somebody's in that round.
func (c *chaser) settle(id dispatch.ID, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.open[id] {
		if ch.round <= round {
			c.remove(ch)
		}
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
	for _, ch := range c.due(now) {
		c.follow(ctx, ch)
	}
}

func (c *chaser) due(now time.Time) (due []chase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rounds := range c.open {
		for _, ch := range rounds {
			if !now.Before(ch.due) {
				due = append(due, ch)
			}
		}
	}
	for _, ch := range due {
		c.remove(ch)
	}
	return due
}

func (c *chaser) follow(ctx context.Context, ch chase) {
	switch c.lockSays(ctx, ch.dispatch, ch.round) {
	case lockTaken:
		return
	case lockClaimed:
		c.again(ch, chaseEvery)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	asked := time.Now()
	var quiet *dispatch.QuietError
	switch told, err := c.claims.Reannounce(ctx, ch.dispatch, ch.round, chaseQuiet); {
	case errors.Is(err, dispatch.ErrNotFound):
	case errors.As(err, &quiet) && quiet.Ago < asked.Sub(ch.latest): // another instance has told them since
	case errors.As(err, &quiet):
		c.again(ch, quiet.For)
	case err != nil && time.Since(ch.since) < chaseFor:
		c.again(ch, chaseEvery)
	case err != nil:
		c.log.Error("drivers were turned away in vain and not told", "dispatch", ch.dispatch, "error", err)
	case told:
		c.log.Info("a claim came to nothing, the dispatch is announced again", "dispatch", ch.dispatch, "round", ch.round)
	}
}

// again puts a chase back, unless the round is followed up anew.
func (c *chaser) again(ch chase, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[ch.dispatch][ch.round]; !ok {
		ch.due = time.Now().Add(wait)
		c.add(ch)
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

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
	followUpRetry = time.Second
	// reannounceInterval keeps drivers whose taps fail from having everybody told again and again. It doubles each time.
	reannounceInterval = 10 * time.Second
	// followUpFor is how long a database that is away is asked again. An offer is over by then.
	followUpFor  = dispatch.DefaultWindow
	maxFollowUps = 10_000
	// maxFollowUpsPerDriver is how many rounds are followed up for one driver, who can make dispatches and rounds up.
	maxFollowUpsPerDriver = 64
	followUpTick          = 200 * time.Millisecond
	// followUpDrain bounds what is still followed up when the process ends.
	followUpDrain = 3 * time.Second
)

// reannouncer makes good on "another driver's claim is being decided". Each process follows up on the drivers it has
// turned away itself: when the claim came to nothing, or its instance died, it has them told that the dispatch is
// open.
type reannouncer struct {
	claims    Claims
	locks     Locks
	log       *slog.Logger
	mu        sync.Mutex
	open      map[dispatch.ID]map[int]followUp // by round
	size      int
	perDriver map[dispatch.DriverID]int // how many are open for each driver
}

// followUp is one round of a dispatch that is followed up, for one of the drivers who were turned away.
type followUp struct {
	dispatch   dispatch.ID
	round      int
	driver     dispatch.DriverID
	due, since time.Time
	latest     time.Time // when somebody was last turned away
}

func newReannouncer(claims Claims, locks Locks, log *slog.Logger) *reannouncer {
	return &reannouncer{
		claims: claims, locks: locks, log: log,
		open: map[dispatch.ID]map[int]followUp{}, perDriver: map[dispatch.DriverID]int{},
	}
}

// schedule looks after the tap's round when wait has passed, for the drivers who were turned away: the tap's own unless
// others are named. Of several calls on one round the earliest counts. Rounds are kept apart: the driver may have made
// one up.
func (c *reannouncer) schedule(tap Tap, wait time.Duration, turnedAway ...dispatch.DriverID) {
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
		if c.size < maxFollowUps && c.perDriver[v] < maxFollowUpsPerDriver {
			c.add(followUp{dispatch: tap.Dispatch, round: tap.Round, driver: v, due: now.Add(wait), since: now, latest: now})
			return
		}
	}
	c.log.Error("too many claims to follow up, drivers may have been turned away in vain", "dispatch", tap.Dispatch,
		"round", tap.Round, "open", c.size)
}

// add and remove keep the counts. c.mu is held.
func (c *reannouncer) add(ch followUp) {
	if c.open[ch.dispatch] == nil {
		c.open[ch.dispatch] = map[int]followUp{}
	}
	c.open[ch.dispatch][ch.round] = ch
	c.size++
	c.perDriver[ch.driver]++
}

func (c *reannouncer) remove(ch followUp) {
	delete(c.open[ch.dispatch], ch.round)
	if len(c.open[ch.dispatch]) == 0 {
		delete(c.open, ch.dispatch)
	}
	c.size--
	if c.perDriver[ch.driver]--; c.perDriver[ch.driver] == 0 {
		delete(c.perDriver, ch.driver)
	}
}

// resolve says that the dispatch is somebody's in that round.
func (c *reannouncer) resolve(id dispatch.ID, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.open[id] {
		if ch.round <= round {
			c.remove(ch)
		}
	}
}

func (c *reannouncer) run(ctx context.Context) {
	tick := time.NewTicker(followUpTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			// Nobody else knows whom this process has turned away.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), followUpDrain)
			defer cancel()
			c.checkDue(last, time.Now().Add(followUpFor))
			return
		case now := <-tick.C:
			c.checkDue(ctx, now)
		}
	}
}

// checkDue follows up on what is due at now.
func (c *reannouncer) checkDue(ctx context.Context, now time.Time) {
	for _, ch := range c.due(now) {
		c.check(ctx, ch)
	}
}

func (c *reannouncer) due(now time.Time) (due []followUp) {
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

func (c *reannouncer) check(ctx context.Context, ch followUp) {
	switch c.lockState(ctx, ch.dispatch, ch.round) {
	case lockTaken:
		return
	case lockClaimed:
		c.reschedule(ch, followUpRetry)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	asked := time.Now()
	var quiet *dispatch.QuietError
	switch told, err := c.claims.Reannounce(ctx, ch.dispatch, ch.round, reannounceInterval); {
	case errors.Is(err, dispatch.ErrNotFound):
	case errors.As(err, &quiet) && quiet.Ago < asked.Sub(ch.latest): // another instance has told them since
	case errors.As(err, &quiet):
		c.reschedule(ch, quiet.For)
	case err != nil && time.Since(ch.since) < followUpFor:
		c.reschedule(ch, followUpRetry)
	case err != nil:
		c.log.Error("drivers were turned away in vain and not told", "dispatch", ch.dispatch, "error", err)
	case told:
		c.log.Info("a claim came to nothing, the dispatch is announced again", "dispatch", ch.dispatch, "round", ch.round)
	}
}

// reschedule puts a chase back, unless the round is followed up anew.
func (c *reannouncer) reschedule(ch followUp, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[ch.dispatch][ch.round]; !ok {
		ch.due = time.Now().Add(wait)
		c.add(ch)
	}
}

type lockState int

const (
	lockUnknown lockState = iota // nobody's, or Redis can't tell: the database has to be asked
	lockClaimed
	lockTaken
)

func (c *reannouncer) lockState(ctx context.Context, id dispatch.ID, round int) lockState {
	if c.locks == nil {
		return lockUnknown
	}
	owner, err := c.locks.Owner(ctx, lockName(id))
	m, ok := parseMarker(owner)
	switch {
	case err != nil || !ok || m.committed && m.round < round:
		return lockUnknown
	case m.committed:
		return lockTaken
	}
	return lockClaimed
}

package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
)

const (
	followUpRetry = time.Second
	// followUpLook is how often an opening is looked at, because it may be brought forward.
	followUpLook = time.Minute
	// reannounceInterval bounds how often taps that fail have a dispatch announced again. It doubles each time.
	reannounceInterval = 10 * time.Second
	// followUpFor is how long a database that is unavailable is retried after the last refusal. Most offers are over by then.
	followUpFor  = dispatch.DefaultWindow
	maxFollowUps = 10_000
	// maxFollowUpsPerDriver bounds what one driver can cause by invented dispatches and rounds.
	maxFollowUpsPerDriver = 64
	followUpTick          = 200 * time.Millisecond
	// followUpDrain bounds the last follow-ups when the process ends.
	followUpDrain = 3 * time.Second
)

// reannouncer follows up on the drivers that this process refused because another driver's claim was being decided. If that
// claim failed, or its instance died, it announces the dispatch again; if the dispatch is not open yet, at its opening.
type reannouncer struct {
	claims    ClaimStore
	gate      Gate
	verify    *verifyQueue
	timeout   time.Duration // of one announcement
	log       *slog.Logger
	mu        sync.Mutex
	open      map[dispatch.ID]map[int]followUp // by round
	size      int
	perDriver map[dispatch.DriverID]int
}

// followUp is one round of a dispatch that is to be checked, for one of the drivers who were refused.
type followUp struct {
	dispatch dispatch.ID
	round    int
	driver   dispatch.DriverID
	due      time.Time
	since    time.Time // when its time to be retried began
	latest   time.Time // when a driver was last refused
}

func newReannouncer(claims ClaimStore, gate Gate, verify *verifyQueue, timeout time.Duration, log *slog.Logger) *reannouncer {
	return &reannouncer{
		claims: claims, gate: gate, verify: verify, timeout: timeout, log: log,
		open: map[dispatch.ID]map[int]followUp{}, perDriver: map[dispatch.DriverID]int{},
	}
}

// schedule makes run check the tap's round after wait, for the drivers in refused, or for the tap's driver if refused is empty.
// Of several calls for one round, the earliest counts. Rounds are checked separately, because a driver can invent a round.
func (r *reannouncer) schedule(tap Tap, wait time.Duration, refused ...dispatch.DriverID) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.open[tap.Dispatch][tap.Round]; ok {
		if due := now.Add(wait); due.Before(old.due) {
			old.due = due
		}
		old.since, old.latest = now, now
		r.open[tap.Dispatch][tap.Round] = old
		return
	}
	if len(refused) == 0 {
		refused = []dispatch.DriverID{tap.Driver}
	}
	for _, v := range refused {
		if r.size < maxFollowUps && r.perDriver[v] < maxFollowUpsPerDriver {
			r.add(followUp{dispatch: tap.Dispatch, round: tap.Round, driver: v, due: now.Add(wait), since: now, latest: now})
			return
		}
	}
	r.log.Error("too many rounds to follow up; the drivers refused here will not be notified if this claim fails", "dispatch", tap.Dispatch,
		"round", tap.Round, "follow_ups", r.size)
}

// add needs r.mu.
func (r *reannouncer) add(f followUp) {
	if r.open[f.dispatch] == nil {
		r.open[f.dispatch] = map[int]followUp{}
	}
	r.open[f.dispatch][f.round] = f
	r.size++
	r.perDriver[f.driver]++
}

// remove needs r.mu.
func (r *reannouncer) remove(f followUp) {
	delete(r.open[f.dispatch], f.round)
	if len(r.open[f.dispatch]) == 0 {
		delete(r.open, f.dispatch)
	}
	r.size--
	if r.perDriver[f.driver]--; r.perDriver[f.driver] == 0 {
		delete(r.perDriver, f.driver)
	}
}

// resolve drops the follow-ups of rounds up to round, which a driver has.
func (r *reannouncer) resolve(id dispatch.ID, round int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.open[id] {
		if f.round <= round {
			r.remove(f)
		}
	}
}

func (r *reannouncer) run(ctx context.Context) {
	tick := time.NewTicker(followUpTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-tick.C:
			r.checkDue(ctx, now)
		}
	}
	// No other process knows which drivers this one has refused.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), followUpDrain)
	defer cancel()
	r.checkDue(last, time.Now().Add(followUpFor))
	if left := r.left(); left > 0 {
		r.log.Warn("the process ends with refused taps that it has not followed up; their drivers will not be notified", "rounds", left)
	}
}

// left is how many rounds are still to be followed up.
func (r *reannouncer) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size
}

func (r *reannouncer) checkDue(ctx context.Context, now time.Time) {
	for _, f := range r.due(now) {
		if ctx.Err() == nil {
			r.check(ctx, f)
		} else {
			r.reschedule(f, 0)
		}
	}
}

func (r *reannouncer) due(now time.Time) (due []followUp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rounds := range r.open {
		for _, f := range rounds {
			if !now.Before(f.due) {
				due = append(due, f)
			}
		}
	}
	for _, f := range due {
		r.remove(f)
	}
	slices.SortFunc(due, func(a, b followUp) int { return a.due.Compare(b.due) })
	return due
}

func (r *reannouncer) check(ctx context.Context, f followUp) {
	switch m, state := r.lockState(ctx, f.dispatch, f.round); state {
	case lockTaken:
		if f.round == 0 { // the marker may be of an earlier round, and then the verification announces the current one
			r.verify.add(f.dispatch, m.holder, time.Now())
		}
		return
	case lockClaimed:
		r.reschedule(f, followUpRetry)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	asked := time.Now()
	var quiet *dispatch.AnnouncedRecentlyError
	var early *dispatch.NotOpenYetError
	switch announced, err := r.claims.Reannounce(ctx, f.dispatch, f.round, reannounceInterval); {
	case errors.Is(err, dispatch.ErrNotFound):
	case errors.As(err, &early): // the refused drivers have not been told when it opens: only the driver of the claim has
		f.since = asked
		r.reschedule(f, min(max(early.OpensAt.Sub(asked), followUpRetry), followUpLook))
	case errors.As(err, &quiet) && quiet.Ago < asked.Sub(f.latest): // another instance has announced it since
	case errors.As(err, &quiet):
		r.reschedule(f, quiet.Wait)
	case err != nil && time.Since(f.since) < followUpFor:
		r.reschedule(f, followUpRetry)
	case err != nil:
		r.log.Error("dispatch not announced again after a claim failed; the refused drivers will not be notified",
			"dispatch", f.dispatch, "error", err)
	case announced:
		r.log.Info("dispatch announced again after a claim failed", "dispatch", f.dispatch, "round", f.round)
	}
}

// reschedule puts f back, unless the round was scheduled again meanwhile.
func (r *reannouncer) reschedule(f followUp, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.open[f.dispatch][f.round]; !ok {
		f.due = time.Now().Add(wait)
		r.add(f)
	}
}

type lockState int

const (
	lockUnknown lockState = iota // free, or Redis is unavailable: the database has to be asked
	lockClaimed
	lockTaken
)

func (r *reannouncer) lockState(ctx context.Context, id dispatch.ID, round int) (marker, lockState) {
	owner, err := r.gate.Owner(ctx, lockName(id))
	m, ok := parseMarker(owner)
	switch {
	case err != nil || !ok || m.committed && m.round < round:
		return m, lockUnknown
	case m.committed:
		return m, lockTaken
	}
	return m, lockClaimed
}

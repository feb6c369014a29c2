package sim

import (
	"context"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/service"
)

// admin is a user of the backoffice.
type admin struct {
	*dice
	world *world
	name  string
	made  int
}

const openJobs = 6

func (a *admin) run() {
	if slices.Contains(a.world.idle, a.name) {
		return
	}
	for a.world.rest(a.between(100*time.Millisecond, 1500*time.Millisecond)) {
		j, open := a.choose()
		if open < openJobs || j == nil {
			a.create()
			continue
		}
		a.alter(j)
	}
}

// choose returns one of the newest dispatches, and how many are open.
func (a *admin) choose() (chosen *job, open int) {
	w := a.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.board {
		if j.open {
			open++
		}
	}
	if n := len(w.board); n > 0 {
		j := *w.board[n-1-a.IntN(min(n, 12))]
		chosen = &j
	}
	return chosen, open
}

// terms returns the terms of a job. Many jobs overlap.
func (a *admin) terms() dispatch.Terms {
	start := a.world.began.Add(24 * time.Hour).Truncate(time.Hour).Add(time.Duration(a.IntN(12)) * time.Hour)
	region := busyRegion
	if a.chance(0.4) {
		region = quietRegion
	}
	return dispatch.Terms{
		Region: region, VehicleClass: "45m", Site: dispatch.Site{Address: "Mapo-daero 1"}, WorkStartsAt: start, WorkEndsAt: start.Add(90 * time.Minute),
		Fee: dispatch.Money{Amount: 100_000 + int64(a.IntN(1000)), Currency: "KRW"},
	}
}

func (a *admin) create() {
	a.made++
	opens := time.Now()
	if a.chance(0.2) {
		opens = opens.Add(a.between(0, 5*time.Second))
	}
	expires := opens.Add(a.between(3*time.Second, 40*time.Second))
	switch n := a.IntN(10); {
	case n < 2:
		expires = opens.Add(a.between(time.Minute, 8*time.Minute))
	case n < 5:
		expires = opens.Add(a.between(200*time.Millisecond, 2*time.Second))
	}
	terms := a.terms()
	a.world.call(a.dice, op{actor: a.name, kind: "create"}, 10*time.Second, func(ctx context.Context, i *instance, o *op) error {
		d, err := i.backoffice.Create(ctx, service.DispatchRequest{Terms: terms, OpensAt: &opens, ExpiresAt: &expires}, a.name)
		o.dispatch = a.world.plain(string(d.ID))
		return err
	})
}

// alter reads the dispatch, and changes it a little later.
func (a *admin) alter(j *job) {
	read := op{actor: a.name, kind: "read", dispatch: j.name}
	answered := a.world.call(a.dice, read, 10*time.Second, func(ctx context.Context, i *instance, o *op) (err error) {
		o.found, err = i.database.Dispatch(ctx, j.id)
		return err
	})
	d := &answered.found
	thinks := a.between(time.Millisecond, 400*time.Millisecond)
	if a.chance(0.2) {
		thinks = a.between(400*time.Millisecond, 3*time.Second)
	}
	if answered.result != success || !a.world.rest(thinks) {
		return
	}
	kind, do := a.change(d)
	a.world.call(a.dice, op{actor: a.name, kind: kind, dispatch: j.name, version: d.Version}, 10*time.Second, func(ctx context.Context, i *instance, o *op) error {
		after, err := do(ctx, i)
		if err == nil && kind == "assign" && after.Claim != nil {
			o.won, o.holder = after.Claim.Round, a.world.plain(string(after.Claim.Driver))
		}
		return err
	})
}

// change returns a change that the dispatch may be ready for.
func (a *admin) change(d *dispatch.Dispatch) (string, func(context.Context, *instance) (dispatch.Dispatch, error)) {
	id, version := d.ID, d.Version
	what, terms, until := a.IntN(10), a.terms(), time.Now().Add(a.between(5*time.Second, 30*time.Second))
	fit := a.world.driversIn(d.Region)
	v := fit[a.IntN(len(fit))].id
	switch {
	case what == 0:
		return "cancel", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Cancel(ctx, id, version, a.name, "RAIN")
		}
	case d.Status == dispatch.Expired:
		return "reopen", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.database.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Reopen(version, nil, &until, a.name, now)
			})
		}
	case d.Status == dispatch.Accepted:
		return "unassign", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Unassign(ctx, id, version, a.name, "ILL")
		}
	case what < 4:
		return "assign", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Assign(ctx, id, version, v, a.name)
		}
	case what < 7:
		window := dispatch.Window{OpensAt: d.OpensAt, ExpiresAt: until}
		return "update", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.database.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Update(version, terms, window, a.name, now)
			})
		}
	}
	return "extend", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
		return i.database.Update(ctx, id, func(now *dispatch.Dispatch, at time.Time) ([]dispatch.Event, error) {
			return now.Extend(version, d.ExpiresAt.Add(10*time.Second), a.name, at)
		})
	}
}

//go:build soak

package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
)

// database is an instance's way to the database. Each call is executed at one instant, as the transaction of a serializable database
// is; what lies before and after it is slow and may fail.
type database struct {
	*repository.Store
	world    *world
	instance *instance
}

// Of what a rule decides, these are the two kinds of rules that the repository calls.
type (
	claimRule  = func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)
	changeRule = func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)
)

var (
	errLater   = errors.New("the write arrives later")
	errChanged = errors.New("the dispatch has changed since the decision")
)

// request is a call on its way to the database.
type request struct {
	*database
	dice *dice
	kind string
}

// send waits until the call arrives. ErrUnavailable if it never does.
func (d *database) send(ctx context.Context, kind, about string) (request, error) {
	r := request{d, d.world.dice(d.instance.life() + kind + " " + about), kind}
	w, slot := d.world, d.instance.slot
	d.instance.stand()
	if err := wait(ctx, r.dice.between(100*time.Microsecond, 3*time.Millisecond)); err != nil {
		return r, unavailable(err)
	}
	if w.weather.strikes(databaseSlow, slot, r.dice, 0.5) {
		if err := wait(ctx, r.dice.between(10*time.Millisecond, 1500*time.Millisecond)); err != nil {
			return r, unavailable(err)
		}
	}
	switch {
	case d.instance.dead(), w.weather.strikes(databaseRefused, slot, r.dice, 1), w.weather.strikes(databasePartitioned, slot, r.dice, 1):
		return r, unavailable(errRefused)
	case w.weather.strikes(databaseHangs, slot, r.dice, 0.5):
		<-ctx.Done()
		return r, unavailable(ctx.Err())
	case w.weather.strikes(databaseRequestLost, slot, r.dice, 0.3):
		return r, unavailable(errBroken)
	}
	return r, nil
}

// receive waits for the reply to a call that ended with err. wrote says that it has committed something.
func (r request) receive(ctx context.Context, wrote bool, err error) error {
	lost := unavailable
	if wrote {
		lost = func(err error) error { return fmt.Errorf("%w: %w", dispatch.ErrUnknown, err) }
	}
	r.instance.stand()
	if waiting := wait(ctx, r.dice.between(100*time.Microsecond, 3*time.Millisecond)); waiting != nil {
		return lost(waiting)
	}
	if wrote && r.world.weather.strikes(databaseReplyLost, r.instance.slot, r.dice, 0.4) && r.dice.chance(0.7) { // else the repository finds out
		return lost(errBroken)
	}
	return err
}

// readOnly reports whether the database takes no writes now.
func (r request) readOnly() bool {
	return r.world.weather.strikes(databaseReadOnly, r.instance.slot, r.dice, 1)
}

// late reports whether a write arrives only after its caller has been told that its outcome is unknown.
func (r request) late() bool {
	return r.world.weather.strikes(databaseCommitsLate, r.instance.slot, r.dice, 0.4)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err) }

// do executes a read, or a write whose result no driver or admin hears.
func (d *database) do(ctx context.Context, kind, about string, execute func(context.Context) error) error {
	r, err := d.send(ctx, kind, about)
	if err != nil {
		return err
	}
	return r.receive(ctx, false, execute(context.WithoutCancel(ctx)))
}

// change executes a write: store calls the rule with the dispatch, and commits what it decides. decide calls the caller's rule.
func (d *database) change(ctx context.Context, kind, about string, decide changeRule,
	store func(context.Context, changeRule) (dispatch.Dispatch, error),
) (dispatch.Dispatch, error) {
	r, err := d.send(ctx, kind, about)
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	lasting := context.WithoutCancel(ctx)
	if r.readOnly() {
		return dispatch.Dispatch{}, r.receive(ctx, false, unavailable(errors.New("the server takes no writes")))
	}
	if r.late() {
		return r.changeLater(lasting, decide, store)
	}
	wrote := false
	changed, err := store(lasting, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		events, err := decide(d, now)
		wrote = err == nil && len(events) > 0
		return events, err
	})
	wrote = wrote && err == nil
	return changed, r.receive(ctx, wrote, err)
}

// changeLater decides now and commits later, if the dispatch has not changed by then.
func (r request) changeLater(ctx context.Context, decide changeRule, store func(context.Context, changeRule) (dispatch.Dispatch, error)) (dispatch.Dispatch, error) {
	var before int
	var after dispatch.Dispatch
	var events []dispatch.Event
	read, err := store(ctx, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		before = d.Version
		decided, err := decide(d, now)
		after, events = *d, decided
		if err == nil && len(events) > 0 {
			err = errLater
		}
		return nil, err
	})
	if !errors.Is(err, errLater) {
		return read, err
	}
	pause := r.dice.between(10*time.Millisecond, 5*time.Second)
	r.world.later(pause, func() {
		_, _ = store(ctx, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			if d.Version != before || now.Before(d.UpdatedAt) {
				return nil, errChanged
			}
			*d = after
			return events, nil
		})
	})
	return after, fmt.Errorf("%w: %w", dispatch.ErrUnknown, errBroken)
}

// Claim implements service.ClaimStore.
func (d *database) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	return d.claim(ctx, "claim", id, driver, rule, d.Store.Claim)
}

// Assign implements service.DispatchStore.
func (d *database) Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	return d.claim(ctx, "assign", id, driver, rule, d.Store.Assign)
}

func (d *database) claim(ctx context.Context, kind string, id dispatch.ID, driver dispatch.DriverID, rule claimRule,
	store func(context.Context, dispatch.ID, dispatch.DriverID, claimRule) (dispatch.Dispatch, error),
) (dispatch.Dispatch, error) {
	var candidate dispatch.Candidate // in the call that is under way
	decide := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) { return rule(d, candidate, now) }
	return d.change(ctx, kind, d.world.plain(string(id)+" "+string(driver)), decide, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return store(ctx, id, driver, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
			candidate = c
			return change(d, now)
		})
	})
}

// Update implements service.DispatchStore and service.DriverServiceStore.
func (d *database) Update(ctx context.Context, id dispatch.ID, rule changeRule) (dispatch.Dispatch, error) {
	return d.change(ctx, "update", d.world.plain(string(id))+" "+actorOf(ctx), rule, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return d.Store.Update(ctx, id, change)
	})
}

// UpdateByDriver implements service.DriverServiceStore.
func (d *database) UpdateByDriver(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Driver, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	var v dispatch.Driver
	decide := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) { return rule(d, v, now) }
	return d.change(ctx, "update", d.world.plain(string(id)+" "+string(driver)), decide, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return d.Store.UpdateByDriver(ctx, id, driver, func(d *dispatch.Dispatch, found dispatch.Driver, now time.Time) ([]dispatch.Event, error) {
			v = found
			return change(d, now)
		})
	})
}

// Withdraw implements service.DriverServiceStore.
func (d *database) Withdraw(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Withdrawals, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	var past dispatch.Withdrawals
	decide := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) { return rule(d, past, now) }
	return d.change(ctx, "withdraw", d.world.plain(string(id)+" "+string(driver)), decide, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return d.Store.Withdraw(ctx, id, driver, func(d *dispatch.Dispatch, found dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
			past = found
			return change(d, now)
		})
	})
}

// Create implements service.DispatchStore.
func (d *database) Create(ctx context.Context, build func(time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (made dispatch.Dispatch, err error) {
	r, err := d.send(ctx, "create", actorOf(ctx))
	if err != nil {
		return made, err
	}
	made, err = d.Store.Create(context.WithoutCancel(ctx), build)
	return made, r.receive(ctx, err == nil, err)
}

// Reannounce implements service.ClaimStore.
func (d *database) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (announced bool, err error) {
	r, err := d.send(ctx, "reannounce", d.world.plain(string(id))+fmt.Sprint(round))
	if err != nil {
		return false, err
	}
	if r.readOnly() {
		return false, unavailable(errors.New("the server takes no writes"))
	}
	announced, err = d.Store.Reannounce(context.WithoutCancel(ctx), id, round, quiet)
	return announced, r.receive(ctx, announced, err)
}

// Holders implements service.ClaimStore.
func (d *database) Holders(ctx context.Context, ids []dispatch.ID) (found map[dispatch.ID]dispatch.CurrentHolder, err error) {
	err = d.do(ctx, "holders", "", func(ctx context.Context) error {
		found, err = d.Store.Holders(ctx, ids)
		return err
	})
	return found, err
}

// AddAttempts implements service.AttemptStore.
func (d *database) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	return d.do(ctx, "attempts", "", func(ctx context.Context) error { return d.Store.AddAttempts(ctx, taps) })
}

// OfferTo implements service.DriverServiceStore.
func (d *database) OfferTo(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (o dispatch.Offered, err error) {
	err = d.do(ctx, "offer", d.world.plain(string(id)+" "+string(driver)), func(ctx context.Context) error {
		o, err = d.Store.OfferTo(ctx, id, driver)
		return err
	})
	return o, err
}

// Dispatch reads a dispatch, for an admin.
func (d *database) Dispatch(ctx context.Context, id dispatch.ID) (found dispatch.Dispatch, err error) {
	err = d.do(ctx, "read", d.world.plain(string(id))+" "+actorOf(ctx), func(ctx context.Context) error {
		found, err = d.Store.Dispatch(ctx, id)
		return err
	})
	return found, err
}

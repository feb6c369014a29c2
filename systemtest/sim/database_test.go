//nolint:forbidigo // the simulation is in a bubble of testing/synctest
package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/repository"
	"firsttap/repository/offers"
)

// database is an instance's way to the database. Each read and each write is executed at one instant, as the transaction of a
// serializable database is; what lies before, between and after them is slow and may fail.
type database struct {
	*repository.Store
	*offers.Offers // what the simulation does not ask for goes straight to the database
	world          *world
	instance       *instance
}

// The repository calls two kinds of rules.
type (
	claimRule  = func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error)
	changeRule = func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)
)

var (
	errLater       = errors.New("the write arrives later")
	errChanged     = errors.New("the dispatch has changed since the decision")
	errNoWrites    = unavailable(errors.New("the server takes no writes"))
	errOutcomeLost = fmt.Errorf("%w: %w", dispatch.ErrUnknown, errBroken)
)

// request is a call on its way to the database.
type request struct {
	*database
	dice *dice
	kind string
}

// send waits until the call arrives. ErrUnavailable if it never does.
func (d *database) send(ctx context.Context, kind, about string) (request, error) {
	r := request{d, d.world.dice(d.instance.life() + kind + " " + about + requestOf(ctx)), kind}
	w, slot := d.world, d.instance.slot
	d.instance.stand(r.dice)
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
	r.instance.stand(r.dice)
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

// lateness is how long a late write takes.
func (r request) lateness() time.Duration { return r.dice.between(10*time.Millisecond, 5*time.Second) }

func unavailable(err error) error { return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err) }

// do executes a read, or a write of the ledger.
func (d *database) do(ctx context.Context, kind, about string, execute func(context.Context) error) error {
	r, err := d.send(ctx, kind, about)
	if err != nil {
		return err
	}
	return r.receive(ctx, false, execute(context.WithoutCancel(ctx)))
}

// change executes a transaction: store calls decide with the dispatch, and commits what it decides, at the same instant.
func (d *database) change(ctx context.Context, kind, about string, decide changeRule,
	store func(context.Context, changeRule) (dispatch.Dispatch, error),
) (dispatch.Dispatch, error) {
	r, err := d.send(ctx, kind, about)
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	lasting := context.WithoutCancel(ctx)
	if r.readOnly() {
		return dispatch.Dispatch{}, r.receive(ctx, false, errNoWrites)
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
	return changed, r.receive(ctx, wrote && err == nil, err)
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
	r.world.later(r.lateness(), func() {
		_, _ = store(ctx, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			if d.Version != before || now.Before(d.UpdatedAt) {
				return nil, errChanged
			}
			*d = after
			return events, nil
		})
	})
	return after, errOutcomeLost
}

// Claim implements service.ClaimStore.
func (d *database) Claim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	return d.claim(ctx, "claim", id, driver, rule, d.Dispatches.Claim)
}

// Assign implements service.DispatchStore.
func (d *database) Assign(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, rule claimRule) (dispatch.Dispatch, error) {
	return d.claim(ctx, "assign", id, driver, rule, d.Dispatches.Assign)
}

// claim executes a read, on which rule decides, and later a write, which itself must refuse what has changed meanwhile.
func (d *database) claim(ctx context.Context, kind string, id dispatch.ID, driver dispatch.DriverID, rule claimRule,
	store func(context.Context, dispatch.ID, dispatch.DriverID, claimRule) (dispatch.Dispatch, error),
) (dispatch.Dispatch, error) {
	r, err := d.send(ctx, kind, d.world.plain(string(id)+" "+string(driver)))
	if err != nil {
		return dispatch.Dispatch{}, err
	}
	lasting := context.WithoutCancel(ctx)
	if r.readOnly() {
		return dispatch.Dispatch{}, r.receive(ctx, false, errNoWrites)
	}
	if r.late() {
		return r.claimLater(func(pause func()) (dispatch.Dispatch, error) {
			tried := false
			return store(lasting, id, driver, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
				if tried { // whoever would decide again has given up
					return nil, errChanged
				}
				events, err := rule(d, c, now)
				if tried = err == nil && len(events) > 0; tried {
					pause()
				}
				return events, err
			})
		})
	}
	wrote := false
	won, err := store(lasting, id, driver, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		if r.instance.dead() { // what has been sent is executed, but nobody decides anew
			return nil, errChanged
		}
		events, err := rule(d, c, now)
		if wrote = err == nil && len(events) > 0; wrote {
			r.hesitate()
		}
		return events, err
	})
	return won, r.receive(ctx, wrote && err == nil, err)
}

// hesitate is the time between a decision and its write.
func (r request) hesitate() {
	pause := r.dice.between(100*time.Microsecond, 20*time.Millisecond)
	if r.dice.chance(0.1) {
		pause = r.dice.between(20*time.Millisecond, 1500*time.Millisecond)
	}
	time.Sleep(pause)
	r.instance.stand(r.dice)
}

// claimLater executes a claim whose write arrives after its caller has been told that the outcome is unknown. claim calls pause between
// the decision and the write.
func (r request) claimLater(claim func(pause func()) (dispatch.Dispatch, error)) (dispatch.Dispatch, error) {
	type result struct {
		d   dispatch.Dispatch
		err error
	}
	answer := make(chan result, 2)
	r.world.writes.Add(1)
	go func() {
		defer r.world.writes.Done()
		d, err := claim(func() {
			answer <- result{err: errOutcomeLost}
			time.Sleep(r.lateness())
		})
		answer <- result{d, err}
	}()
	first := <-answer
	return first.d, first.err
}

// Update implements service.DispatchStore and service.DriverServiceStore.
func (d *database) Update(ctx context.Context, id dispatch.ID, rule changeRule) (dispatch.Dispatch, error) {
	return d.change(ctx, "update", d.world.plain(string(id)), rule, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return d.Dispatches.Update(ctx, id, change)
	})
}

// UpdateByDriver implements service.DriverServiceStore.
func (d *database) UpdateByDriver(ctx context.Context, id dispatch.ID, driver dispatch.DriverID,
	rule func(*dispatch.Dispatch, dispatch.Driver, time.Time) ([]dispatch.Event, error),
) (dispatch.Dispatch, error) {
	var v dispatch.Driver
	decide := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) { return rule(d, v, now) }
	return d.change(ctx, "update", d.world.plain(string(id)+" "+string(driver)), decide, func(ctx context.Context, change changeRule) (dispatch.Dispatch, error) {
		return d.Dispatches.UpdateByDriver(ctx, id, driver, func(d *dispatch.Dispatch, found dispatch.Driver, now time.Time) ([]dispatch.Event, error) {
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
		return d.Dispatches.Withdraw(ctx, id, driver, func(d *dispatch.Dispatch, found dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
			past = found
			return change(d, now)
		})
	})
}

// Create implements service.DispatchStore.
func (d *database) Create(ctx context.Context, build func(time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (made dispatch.Dispatch, err error) {
	r, err := d.send(ctx, "create", "")
	if err != nil {
		return made, err
	}
	if r.readOnly() {
		return made, errNoWrites
	}
	made, err = d.Dispatches.Create(context.WithoutCancel(ctx), build)
	return made, r.receive(ctx, err == nil, err)
}

// Reannounce implements service.ClaimStore.
func (d *database) Reannounce(ctx context.Context, id dispatch.ID, round int, quiet time.Duration) (announced bool, err error) {
	r, err := d.send(ctx, "reannounce", d.world.plain(string(id))+fmt.Sprint(round))
	if err != nil {
		return false, err
	}
	if r.readOnly() {
		return false, errNoWrites
	}
	announced, err = d.Dispatches.Reannounce(context.WithoutCancel(ctx), id, round, quiet)
	return announced, r.receive(ctx, announced, err)
}

// Holders implements service.ClaimStore.
func (d *database) Holders(ctx context.Context, ids []dispatch.ID) (found map[dispatch.ID]dispatch.CurrentHolder, err error) {
	err = d.do(ctx, "holders", "", func(ctx context.Context) error {
		found, err = d.Dispatches.Holders(ctx, ids)
		return err
	})
	return found, err
}

// Driver implements service.DriverServiceStore.
func (d *database) Driver(ctx context.Context, id dispatch.DriverID) (v dispatch.Driver, err error) {
	err = d.do(ctx, "driver", d.world.plain(string(id)), func(ctx context.Context) error {
		v, err = d.Drivers.Driver(ctx, id)
		return err
	})
	return v, err
}

// ClaimOf implements service.DriverServiceStore.
func (d *database) ClaimOf(ctx context.Context, id dispatch.ID, driver dispatch.DriverID, round int) (c *dispatch.PastClaim, err error) {
	err = d.do(ctx, "past", d.world.plain(string(id)+" "+string(driver)), func(ctx context.Context) error {
		c, err = d.Dispatches.ClaimOf(ctx, id, driver, round)
		return err
	})
	return c, err
}

// AddAttempts implements service.AttemptStore.
func (d *database) AddAttempts(ctx context.Context, taps []dispatch.Attempt) error {
	return d.do(ctx, "attempts", "", func(ctx context.Context) error { return d.Store.Offers.AddAttempts(ctx, taps) })
}

// OfferTo implements service.DriverServiceStore.
func (d *database) OfferTo(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (o dispatch.Offered, err error) {
	err = d.do(ctx, "offer", d.world.plain(string(id)+" "+string(driver)), func(ctx context.Context) error {
		o, err = d.Store.Offers.OfferTo(ctx, id, driver)
		return err
	})
	return o, err
}

// Dispatch reads a dispatch, for an admin.
func (d *database) Dispatch(ctx context.Context, id dispatch.ID) (found dispatch.Dispatch, err error) {
	err = d.do(ctx, "read", d.world.plain(string(id)), func(ctx context.Context) error {
		found, err = d.Dispatches.Dispatch(ctx, id)
		return err
	})
	return found, err
}

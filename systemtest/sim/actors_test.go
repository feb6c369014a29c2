//nolint:forbidigo // the simulation is in a bubble of testing/synctest
package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/service"
)

// The results of calls that got no answer, beside the API's codes. REFUSED did not reach an instance.
const (
	success     = "SUCCESS"
	taken       = "ALREADY_TAKEN"
	unknown     = "CLAIM_UNKNOWN"
	impossible  = "CLAIM_UNAVAILABLE"
	noAnswer    = "NO ANSWER"
	notReached  = "REFUSED"
	hungUp      = "HUNG UP"
	callTimeout = 5 * time.Second // of a request, as the API has it
)

// codes are the results of errors.
var codes = []struct {
	err  error
	code string
}{
	{dispatch.ErrAlreadyTaken, taken}, {dispatch.ErrOfferStale, "OFFER_STALE"}, {dispatch.ErrDriverBusy, "DRIVER_BUSY"},
	{dispatch.ErrNotOpenYet, "NOT_OPEN_YET"}, {dispatch.ErrNotEligible, "NOT_ELIGIBLE"}, {dispatch.ErrExpired, "DISPATCH_EXPIRED"},
	{dispatch.ErrCanceled, "DISPATCH_CANCELED"}, {dispatch.ErrNotHolder, "FORBIDDEN"}, {dispatch.ErrVersionConflict, "VERSION_MOVED"},
	{dispatch.ErrTooManyWithdrawals, "RATE_LIMITED"}, {dispatch.ErrInvalidState, "INVALID_STATE"},
	{dispatch.ErrWindow, "VALIDATION_FAILED"}, {dispatch.ErrNotFound, "DISPATCH_NOT_FOUND"}, {dispatch.ErrUnknown, unknown},
	{dispatch.ErrUnavailable, impossible},
}

func codeOf(err error) string {
	if err == nil {
		return success
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "ERROR " + err.Error()
}

type requestKey struct{}

// requestOf returns the name of the request of ctx, "" for none: two calls for one actor at the same instant need dice of their own.
func requestOf(ctx context.Context) string {
	name, _ := ctx.Value(requestKey{}).(string)
	return name
}

// call sends a request of the actor to an instance, as its proxy chooses it, and records it. do is what the instance does; it returns
// what the call's result adds to o.
func (w *world) call(d *dice, o op, patience time.Duration, do func(context.Context, *instance, *op) error) op {
	slot := 1 + d.IntN(w.instances)
	o.from, o.instance = time.Since(w.began), fmt.Sprint("i", slot)
	o = w.answer(d, o, slot, patience, do)
	o.to = time.Since(w.began)
	w.history.add(o)
	return o
}

func (w *world) answer(d *dice, o op, slot int, patience time.Duration, do func(context.Context, *instance, *op) error) op {
	time.Sleep(d.between(200*time.Microsecond, 8*time.Millisecond))
	if w.weather.strikes(networkSlow, slot, d, 0.7) {
		time.Sleep(d.between(10*time.Millisecond, 2*time.Second))
	}
	i := w.instance(slot)
	if i == nil || w.weather.strikes(requestLost, slot, d, 0.3) {
		o.result = notReached
		return o
	}
	if w.weather.strikes(requestTwice, slot, d, 0.5) {
		o.twice = true
		again, other := o, 1+d.IntN(w.instances)
		w.later(d.between(time.Microsecond, 30*time.Millisecond), func() {
			if i := w.instance(other); i != nil {
				<-i.serve(again, do)
			}
		})
	}
	if w.weather.strikes(hangUp, slot, d, 0.3) {
		patience = d.between(time.Millisecond, 40*time.Millisecond)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case answered := <-i.serve(o, do):
		time.Sleep(d.between(200*time.Microsecond, 8*time.Millisecond))
		if w.weather.strikes(replyLost, slot, d, 0.3) || i.dead() {
			o.result = noAnswer
			return o
		}
		return answered
	case <-i.killed:
		o.result = noAnswer
	case <-timer.C:
		o.result = hungUp
	}
	return o
}

// serve executes the request of o on the instance, and sends o with its result.
func (i *instance) serve(o op, do func(context.Context, *instance, *op) error) <-chan op {
	answers := make(chan op, 1)
	i.serving.Add(1)
	go func() {
		defer i.serving.Done()
		d := i.world.dice(i.life() + "serve " + o.actor)
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), requestKey{}, fmt.Sprint(" for ", o.actor, d.nth)), callTimeout)
		defer cancel()
		began := time.Now()
		i.stand(d)
		err := do(ctx, i, &o)
		if took := time.Since(began); took > callTimeout+100*time.Millisecond && !i.hasStood(began) {
			i.world.history.report(nothingHangs, o.dispatch, o, " took ", took)
		}
		var why *dispatch.TakenError
		o.final = errors.As(err, &why) && why.Final
		o.result = codeOf(err)
		answers <- o
	}()
	return answers
}

// driver is a driver with a phone.
type driver struct {
	*dice
	world   *world
	name    string
	id      dispatch.DriverID
	regions []string
	inbox   chan message
	past    []message // offers that were answered
}

// message is a push: an offer of a round.
type message struct {
	id    dispatch.ID
	name  string
	round int
}

func (v *driver) run() {
	if slices.Contains(v.world.idle, v.name) {
		return
	}
	for !v.world.isQuiet() {
		timer := time.NewTimer(v.between(time.Second, 20*time.Second))
		select {
		case <-v.world.quiet:
		case m := <-v.inbox:
			v.react(m)
		case <-timer.C:
			if len(v.past) > 0 && v.chance(0.5) { // an old screen
				v.react(v.past[v.IntN(len(v.past))])
			}
		}
		timer.Stop()
	}
}

// react taps Accept, and taps again until there is an answer that says something.
func (v *driver) react(m message) {
	if v.past = append(v.past, m); len(v.past) > 20 {
		v.past = v.past[1:]
	}
	time.Sleep(v.between(time.Millisecond, 150*time.Millisecond))
	round := m.round
	switch n := v.IntN(100); {
	case n < 6:
		round = 0
	case n < 9:
		round = max(round-1, 1)
	case n < 10:
		round++
	}
	v.useSecondPhone()
	for range 1 + v.IntN(5) {
		if v.chance(0.15) {
			twin := v.world.dice("twin of " + v.name)
			v.world.later(v.between(time.Microsecond, 20*time.Millisecond), func() { v.tap(twin, m, round) })
		}
		switch o := v.tap(v.dice, m, round); {
		case o.result == success:
			v.work(m, o.won)
			return
		case o.result == taken && !o.final && v.chance(0.5):
		case o.result == unknown, o.result == impossible, o.result == noAnswer, o.result == notReached, o.result == hungUp:
		default:
			if v.chance(0.2) {
				v.askForReceipt(m)
			}
			return
		}
		if !v.world.rest(v.between(30*time.Millisecond, 900*time.Millisecond)) {
			return
		}
	}
	v.askForReceipt(m)
}

// useSecondPhone accepts another offer at the same time, if there is one.
func (v *driver) useSecondPhone() {
	if !v.chance(0.3) {
		return
	}
	select {
	case m := <-v.inbox:
		d := v.world.dice("second phone of " + v.name)
		v.world.later(d.between(time.Microsecond, 20*time.Millisecond), func() { v.tap(d, m, m.round) })
	default:
	}
}

func (v *driver) tap(d *dice, m message, round int) op {
	o := op{actor: v.name, kind: "accept", dispatch: m.name, round: round}
	return v.world.call(d, o, 10*time.Second, func(ctx context.Context, i *instance, o *op) error {
		won, err := i.acceptor.Accept(ctx, service.Tap{Dispatch: m.id, Driver: v.id, Round: round})
		if err == nil {
			o.won = won.Dispatch.Claim.Round
		}
		return err
	})
}

// work does the job, or gives it back.
func (v *driver) work(m message, round int) {
	if !v.world.rest(v.between(50*time.Millisecond, 4*time.Second)) {
		return
	}
	what := v.IntN(10)
	if what < 4 {
		v.withdraw(m, round)
		return
	}
	if what < 8 {
		v.repeat(op{actor: v.name, kind: "start", dispatch: m.name}, func(ctx context.Context, i *instance) error {
			_, err := i.work.Start(ctx, v.id, m.id, 0)
			return err
		})
		v.repeat(op{actor: v.name, kind: "complete", dispatch: m.name}, func(ctx context.Context, i *instance) error {
			_, err := i.work.Complete(ctx, v.id, m.id, 0)
			return err
		})
	}
	v.askForReceipt(m)
}

// withdraw gives the job back. A phone that was out of reach may send the tap or the withdrawal again, much later.
func (v *driver) withdraw(m message, round int) {
	o := op{actor: v.name, kind: "withdraw", dispatch: m.name, round: round}
	do := func(ctx context.Context, i *instance) error {
		_, err := i.work.Withdraw(ctx, v.id, m.id, round, "")
		return err
	}
	v.repeat(o, do)
	late := v.world.dice("late " + v.name)
	switch n := late.IntN(10); {
	case n < 3:
		v.world.later(late.between(50*time.Millisecond, 8*time.Second), func() {
			v.world.call(late, o, 10*time.Second, func(ctx context.Context, i *instance, _ *op) error { return do(ctx, i) })
		})
	case n < 6:
		v.world.later(late.between(50*time.Millisecond, 8*time.Second), func() { v.tap(late, m, 0) })
	}
}

// repeat sends the request until it is answered, a few times at most.
func (v *driver) repeat(o op, do func(context.Context, *instance) error) {
	for range 4 {
		answered := v.world.call(v.dice, o, 10*time.Second, func(ctx context.Context, i *instance, _ *op) error { return do(ctx, i) })
		switch answered.result {
		case unknown, impossible, noAnswer, notReached, hungUp:
		default:
			return
		}
		if !v.world.rest(v.between(100*time.Millisecond, time.Second)) {
			return
		}
	}
}

func (v *driver) askForReceipt(m message) {
	o := op{actor: v.name, kind: "receipt", dispatch: m.name}
	v.world.call(v.dice, o, 10*time.Second, func(ctx context.Context, i *instance, o *op) error {
		r, err := i.work.Receipt(ctx, v.id, m.id)
		o.won, o.outcome = r.Round, r.Outcome
		return err
	})
}

//go:build soak

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
	{dispatch.ErrTooManyWithdrawals, "RATE_LIMITED"}, {dispatch.ErrInvalidState, "INVALID_STATE"}, {dispatch.ErrExpiryNotLater, "VALIDATION_FAILED"},
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

type actorKey struct{}

// actorOf returns the name of the actor that sent the request of ctx.
func actorOf(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
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
		if other := w.instance(1 + d.IntN(w.instances)); other != nil {
			again := o
			w.later(d.between(time.Microsecond, 30*time.Millisecond), func() { <-other.serve(again, do) })
		}
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
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), actorKey{}, o.actor), callTimeout)
		defer cancel()
		i.stand()
		err := do(ctx, i, &o)
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
	world *world
	name  string
	id    dispatch.DriverID
	inbox chan message
	past  []message // offers that were answered
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
			if len(v.past) > 0 { // an old screen
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
		v.repeat(op{actor: v.name, kind: "withdraw", dispatch: m.name, round: round}, func(ctx context.Context, i *instance) error {
			_, err := i.work.Withdraw(ctx, v.id, m.id, round, "")
			return err
		})
		return
	}
	if what < 8 {
		v.repeat(op{actor: v.name, kind: "start", dispatch: m.name}, func(ctx context.Context, i *instance) error {
			_, err := i.work.Start(ctx, v.id, m.id)
			return err
		})
		v.repeat(op{actor: v.name, kind: "complete", dispatch: m.name}, func(ctx context.Context, i *instance) error {
			_, err := i.work.Complete(ctx, v.id, m.id)
			return err
		})
	}
	v.askForReceipt(m)
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

// admin is a user of the backoffice.
type admin struct {
	*dice
	world *world
	name  string
	made  int
}

const openJobs = 4

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

// hour is when work may start: jobs at the same hour overlap.
func (a *admin) terms() dispatch.Terms {
	start := a.world.began.Add(24 * time.Hour).Truncate(time.Hour).Add(time.Duration(a.IntN(24)) * time.Hour)
	return dispatch.Terms{
		Region: "seoul", VehicleClass: "45m", Site: dispatch.Site{Address: "Mapo-daero 1"}, WorkStartsAt: start, WorkEndsAt: start.Add(90 * time.Minute),
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
	var d dispatch.Dispatch
	answered := a.world.call(a.dice, read, 10*time.Second, func(ctx context.Context, i *instance, _ *op) error {
		found, err := i.database.Dispatch(ctx, j.id)
		if err == nil {
			d = found
		}
		return err
	})
	if answered.result != success || !a.world.rest(a.between(time.Millisecond, 400*time.Millisecond)) {
		return
	}
	kind, do := a.change(&d)
	a.world.call(a.dice, op{actor: a.name, kind: kind, dispatch: j.name}, 10*time.Second, func(ctx context.Context, i *instance, o *op) error {
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
	v := a.world.drivers[a.IntN(len(a.world.drivers))].id
	switch {
	case what == 0:
		return "cancel", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Cancel(ctx, id, version, a.name, "RAIN")
		}
	case d.Status == dispatch.Expired:
		return "reopen", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Reopen(ctx, id, version, nil, &until, a.name)
		}
	case d.Status == dispatch.Accepted:
		return "unassign", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Unassign(ctx, id, version, a.name, "ILL")
		}
	case what < 3:
		return "assign", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Assign(ctx, id, version, v, a.name)
		}
	case what < 6:
		window := dispatch.Window{OpensAt: d.OpensAt, ExpiresAt: until}
		return "update", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
			return i.backoffice.Update(ctx, id, version, terms, window, a.name)
		}
	}
	return "extend", func(ctx context.Context, i *instance) (dispatch.Dispatch, error) {
		return i.backoffice.Extend(ctx, id, version, d.ExpiresAt.Add(10*time.Second), a.name)
	}
}

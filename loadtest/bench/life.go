package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"firsttap/notify/fcmtest"
)

const (
	lifeDrivers    = 30
	lifeDispatches = 100
	warmLives      = 20 // before the measurement: caches, pools and statistics fill
)

// The steps of a dispatch's life, and the race of the simple flow, which has no others.
const (
	stepOffered   = "created, expanded to 30 phones and pushed"
	stepClaimed   = "30 taps: won, stored, and 30 phones told"
	stepStarted   = "started"
	stepCompleted = "completed"
	stepSimple    = "the simple flow: 30 taps, nobody told"
)

var lifeSteps = []string{stepOffered, stepClaimed, stepStarted, stepCompleted, stepSimple}

// life measures what each step of a dispatch's life costs FirstTap, whose 30 drivers have a phone each, and what a race of 30 costs the
// simple flow.
type life struct {
	stack      *stack
	product    *product
	simple     comparison
	fcm        *fcmtest.Server
	dispatches int // of each round
	tokens     []string
	taps       int // of the product's drivers
	// cost is what a dispatch took in each round, in microseconds of processor time: server, Redis and the database.
	cost map[string][][3]float64
}

// newLife prepares a database for the product, whose pushes go to a push service in this process. The caller closes it.
func newLife(ctx context.Context, s *stack, binary string, dispatches int) (*life, error) {
	fcm, err := fcmtest.Listen()
	if err != nil {
		return nil, err
	}
	fcm.KeepSends(0)
	p, err := newProduct(ctx, s, "life", binary, "FIRSTTAP_FIREBASE_PROJECT=bench", "FIRSTTAP_FCM_ENDPOINT="+fcm.URL()+"/v1")
	if err != nil {
		fcm.Close()
		return nil, err
	}
	return &life{
		stack:      s,
		product:    p,
		simple:     comparison{stack: s, way: waySimple},
		fcm:        fcm,
		dispatches: dispatches,
		cost:       map[string][][3]float64{},
	}, nil
}

func (l *life) close() { l.fcm.Close() }

// turn measures one round.
func (l *life) turn(ctx context.Context) error {
	for _, side := range []struct {
		entrant entrant
		live    func(context.Context, *lifeTurn) error
	}{{l.simple, l.race}, {l.product, l.live}} {
		if err := l.serve(ctx, side.entrant, side.live); err != nil {
			return err
		}
	}
	return nil
}

// lifeTurn is one server's turn.
type lifeTurn struct {
	server  *process
	address string
	wires   []*wire
	n       int // dispatches
	// step does one step with all dispatches.
	step func(ctx context.Context, name string, do func() error) error
}

func (l *life) serve(ctx context.Context, e entrant, live func(context.Context, *lifeTurn) error) error {
	server, address, err := e.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	c := contest{stack: l.stack, entrant: e, racers: lifeDrivers}
	wires, err := c.dial(ctx, address)
	if err != nil {
		return err
	}
	defer hangUp(wires)
	warm := func(_ context.Context, _ string, do func() error) error { return do() }
	measured := func(ctx context.Context, name string, do func() error) error { return l.measure(ctx, server, name, do) }
	if err := live(ctx, &lifeTurn{server, address, wires, warmLives, warm}); err != nil {
		return fmt.Errorf("%w\n%s", err, server.tail())
	}
	if err := live(ctx, &lifeTurn{server, address, wires, l.dispatches, measured}); err != nil {
		return fmt.Errorf("%w\n%s", err, server.tail())
	}
	return nil
}

// measure records what a step costs, until the servers are idle again.
func (l *life) measure(ctx context.Context, server *process, name string, do func() error) error {
	if _, err := l.stack.quiesce(ctx, server); err != nil {
		return err
	}
	before, err := l.stack.usage(server)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if _, err := l.stack.quiesce(ctx, server); err != nil {
		return err
	}
	after, err := l.stack.usage(server)
	if err != nil {
		return err
	}
	var each [3]float64
	for i, part := range after.since(before).parts {
		each[i] = part.Seconds() * 1e6 / float64(l.dispatches)
	}
	l.cost[name] = append(l.cost[name], each)
	return nil
}

// race lets the drivers tap the simple flow's dispatches.
func (l *life) race(ctx context.Context, t *lifeTurn) error {
	ids, err := l.simple.dispatches(ctx, t.address, lifeDrivers, t.n)
	if err != nil {
		return err
	}
	return t.step(ctx, stepSimple, func() error {
		_, err := t.tap(ctx, ids)
		return err
	})
}

// tap lets all drivers tap one dispatch after the other, and returns which driver has won each.
func (t *lifeTurn) tap(ctx context.Context, ids []string) (winners []int, err error) {
	o, err := bursts(ctx, t.wires, ids, 1, time.Minute)
	switch {
	case err != nil:
		return nil, err
	case o.wrong != "" || o.dispatches < len(ids):
		return nil, fmt.Errorf("%d of %d dispatches were tapped: %s", o.dispatches, len(ids), o.wrong)
	}
	return o.winner, ctx.Err()
}

// live lets the product's dispatches live.
func (l *life) live(ctx context.Context, t *lifeTurn) error {
	if err := l.givePhones(ctx, t.address); err != nil {
		return err
	}
	var ids []string
	err := t.step(ctx, stepOffered, func() error {
		return l.told(ctx, t.n, func() (err error) {
			ids, err = l.product.dispatches(ctx, t.address, lifeDrivers, t.n)
			return err
		})
	})
	if err != nil {
		return err
	}
	var winners []int
	err = t.step(ctx, stepClaimed, func() error {
		return l.told(ctx, t.n, func() (err error) {
			winners, err = t.tap(ctx, ids)
			l.taps += len(ids) * lifeDrivers
			return err
		})
	})
	if err != nil {
		return err
	}
	work := func(verb string) func() error {
		return func() error {
			for k, id := range ids {
				if err := l.product.call(ctx, "POST", t.address, "/v1/dispatches/"+id+verb, l.tokens[winners[k]], nil, nil); err != nil {
					return err
				}
			}
			return l.product.settle(ctx)
		}
	}
	if err := t.step(ctx, stepStarted, work("/start")); err != nil {
		return err
	}
	return t.step(ctx, stepCompleted, work("/complete"))
}

// givePhones gives each driver a phone, once.
func (l *life) givePhones(ctx context.Context, address string) error {
	if l.tokens != nil {
		return nil
	}
	tokens, err := l.product.drivers(ctx, address, lifeDrivers)
	if err != nil {
		return err
	}
	for k, token := range tokens {
		phone := map[string]string{"platform": "android", "push_token": fmt.Sprintf("token-%d", k)}
		if err := l.product.call(ctx, "PUT", address, "/v1/me/devices/app", token, phone, nil); err != nil {
			return err
		}
	}
	l.tokens = tokens
	return nil
}

// told does something that tells each driver about each of n dispatches, and waits until all are told and all taps are stored.
func (l *life) told(ctx context.Context, n int, do func() error) error {
	want := l.fcm.Requests() + int64(n)*lifeDrivers
	if err := do(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	missing := l.taps
	for {
		now, err := l.unstored(ctx)
		if err != nil {
			return fmt.Errorf("%d pushes, %d taps are missing: %w", want-l.fcm.Requests(), missing, err)
		}
		if missing = now; missing <= 0 && l.fcm.Requests() >= want {
			return l.product.settle(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// unstored returns how many taps the database does not have yet.
func (l *life) unstored(ctx context.Context) (int, error) {
	var stored int
	err := l.stack.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(count), 0) FROM "+l.product.database+".taps").Scan(&stored)
	return l.taps - stored, err
}

// print writes the table.
func (l *life) print(w io.Writer) {
	fmt.Fprintf(w, "\nThe life of a dispatch, %d in each round: processor time of each server in us a dispatch.\n\n", l.dispatches)
	fmt.Fprintln(w, "| step | server | Redis | database |\n|---|---|---|---|")
	for _, step := range lifeSteps {
		cells := []string{step}
		for part := range 3 {
			cells = append(cells, l.of(step, part).wide())
		}
		fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |")
	}
}

func (l *life) of(step string, part int) spread {
	var all []float64
	for _, cost := range l.cost[step] {
		all = append(all, cost[part])
	}
	return spreadOf(all)
}

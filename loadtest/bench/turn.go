package main

import (
	"context"
	"fmt"
	"time"
)

// warmUp is how long a server has load before it is measured: connections, pools and caches fill, and its rate determines
// how many dispatches the measurement needs.
const warmUp = 300 * time.Millisecond

// figures are the results of one turn of one entrant.
type figures struct {
	rate     float64    // requests/s
	cpu      float64    // microseconds of processor time a request: server, Redis and the database
	parts    [3]float64 // the same of each
	late     float64    // their processor time after the phase, until they were idle, in microseconds a request
	database float64    // the database's, of both, in microseconds a request
	foreign  float64    // share of the machine that other processes took
	early    bool       // the dispatches ran out before the time
	loser50  time.Duration
	loser99  time.Duration
	winner50 time.Duration
	winner99 time.Duration
	wrong    string // what was wrong with the answers; if anything, no figure counts
	log      string // the server's log about it
}

// contest is one entrant at one number of connections; it lasts over the rounds.
type contest struct {
	stack   *stack
	entrant entrant
	racers  int
	length  time.Duration // of each phase
	order   order         // of the requests in the rate phase

	spare  []string // dispatches that this turn's server has made and nobody has requested
	rate   float64  // the best so far, in requests/s
	rounds []figures
}

// turn starts the server, measures rate and bursts, stops it and keeps the figures.
func (c *contest) turn(ctx context.Context) error {
	server, address, err := c.entrant.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	c.spare = nil // a server that has just started would have to read what a running one knows
	wires, err := c.dial(ctx, address)
	if err != nil {
		return err
	}
	defer hangUp(wires)
	f, err := c.measure(ctx, server, address, wires)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, server.tail())
	}
	if f.wrong != "" {
		f.log = server.tail()
	}
	c.rounds = append(c.rounds, f)
	return nil
}

// dial opens the drivers' connections.
func (c *contest) dial(ctx context.Context, address string) ([]*wire, error) {
	tokens, err := c.entrant.drivers(ctx, address, c.racers)
	if err != nil {
		return nil, err
	}
	wires := make([]*wire, 0, len(tokens))
	for _, token := range tokens {
		w, err := dial(address, token)
		if err != nil {
			return nil, err
		}
		wires = append(wires, w)
	}
	return wires, nil
}

// hangUp closes the drivers' connections.
func hangUp(wires []*wire) {
	for _, w := range wires {
		_ = w.conn.Close() // it has answered, or its error was returned
	}
}

func (c *contest) measure(ctx context.Context, server *process, address string, wires []*wire) (figures, error) {
	var f figures
	warm, err := c.phase(ctx, server, address, 20+12_000/c.racers, rush(c.order), wires, warmUp)
	if err != nil {
		return f, err
	}
	c.rate = max(c.rate, float64(warm.requests)/warm.elapsed.Seconds())

	// Half as many again: a server gets faster as it warms up, and the wires are not in step.
	needed := 20 + int(1.5*c.rate*c.length.Seconds())/c.racers
	fast, err := c.phase(ctx, server, address, needed, rush(c.order), wires, c.length)
	if err != nil {
		return f, err
	}
	c.rate = max(c.rate, float64(fast.requests)/fast.elapsed.Seconds())
	requests := float64(fast.requests)
	spent := fast.usage
	f.rate = requests / fast.elapsed.Seconds()
	f.cpu = spent.contender.Seconds() * 1e6 / requests
	for i, part := range spent.parts {
		f.parts[i] = part.Seconds() * 1e6 / requests
	}
	f.foreign = max(0, (spent.machine-spent.contender-spent.driver).Seconds()/(fast.elapsed.Seconds()*float64(processors())))
	f.early = fast.elapsed < c.length-c.length/20
	late, err := c.stack.quiesce(ctx, server)
	if err != nil {
		return f, err
	}
	f.late = late.contender.Seconds() * 1e6 / requests
	f.database = (spent.parts[2] + late.parts[2]).Seconds() * 1e6 / requests

	burst, err := c.phase(ctx, server, address, max(10, int(150*c.length.Seconds())), bursts, wires, c.length)
	if err != nil {
		return f, err
	}
	f.loser50, f.loser99 = percentile(burst.losers, 50), percentile(burst.losers, 99)
	f.winner50, f.winner99 = percentile(burst.winners, 50), percentile(burst.winners, 99)
	for _, o := range []spentOutcome{warm, fast, burst} {
		if f.wrong == "" {
			f.wrong = o.wrong
		}
	}
	return f, nil
}

// spentOutcome is a phase and the processor time it took.
type spentOutcome struct {
	outcome
	usage usage
}

type phaseFunc func(ctx context.Context, wires []*wire, ids []string, wins int, limit time.Duration) (outcome, error)

// phase makes the missing dispatches, waits until the servers are idle, runs one phase and drops the dispatches that it
// has used.
func (c *contest) phase(ctx context.Context, server *process, address string, needed int, run phaseFunc, wires []*wire,
	limit time.Duration,
) (spentOutcome, error) {
	if missing := needed - len(c.spare); missing > 0 {
		ids, err := c.entrant.dispatches(ctx, address, c.racers, missing)
		if err != nil {
			return spentOutcome{}, err
		}
		c.spare = append(c.spare, ids...)
	}
	if _, err := c.stack.quiesce(ctx, server); err != nil {
		return spentOutcome{}, err
	}
	before, err := c.stack.usage(server)
	if err != nil {
		return spentOutcome{}, err
	}
	o, err := run(ctx, wires, c.spare[:needed], c.entrant.wins(), limit)
	if err != nil {
		return spentOutcome{}, err
	}
	after, err := c.stack.usage(server)
	if err != nil {
		return spentOutcome{}, err
	}
	c.spare = c.spare[o.dispatches:]
	return spentOutcome{outcome: o, usage: after.since(before)}, nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what one connection got in one phase. Only that connection writes it.
type tally struct {
	reached int   // dispatches requested, from the first on
	won     []int // indexes of the dispatches that answered 200
	again   int   // 200s to a second request of the winner, marked as replayed
	taken   int   // correct responses to losers
	strange int   // anything else
	example string
	losers  []time.Duration
	winners []time.Duration
	err     error
}

// note judges one response for dispatch k.
func (t *tally) note(k int, r reply) {
	t.reached = max(t.reached, k+1)
	switch {
	case r.replayed() && slices.Contains(t.won, k):
		t.again++
	case r.status == 200:
		t.won = append(t.won, k)
	case r.taken():
		t.taken++
	default:
		t.strange++
		if t.example == "" {
			t.example = fmt.Sprintf("%d %.300s", r.status, r.body)
		}
	}
}

// outcome is a phase as a whole.
type outcome struct {
	requests   int
	dispatches int // how many were requested
	elapsed    time.Duration
	losers     []time.Duration
	winners    []time.Duration
	winner     []int  // the wire that has won each dispatch
	wrong      string // empty when every answer was right
}

// order makes, for a number of wires, the function that picks a free wire's next dispatch. Every dispatch gets as many
// requests as there are wires.
type order func(wires int) func(wire int) int

// together gives the next request to any free wire: a crowd within milliseconds. Some wires request a dispatch twice while
// others wait for a response.
func together(wires int) func(int) int {
	var next atomic.Int64
	return func(int) int { return int(next.Add(1)-1) / wires }
}

// apart lets every wire request all dispatches at its own pace. A win delays a wire for all later dispatches, so many
// requests come long after the dispatch was won.
func apart(wires int) func(int) int {
	next := make([]int, wires) // an entry belongs to its wire
	return func(wire int) int {
		next[wire]++
		return next[wire] - 1
	}
}

// orders are the orders, by their names for -order.
var orders = map[string]order{"together": together, "apart": apart}

// rush sends requests in the order of by as fast as responses arrive, until limit has passed or the dispatches run out.
func rush(by order) phaseFunc {
	return func(ctx context.Context, wires []*wire, ids []string, wins int, limit time.Duration) (outcome, error) {
		var stop atomic.Bool
		defer time.AfterFunc(limit, func() { stop.Store(true) }).Stop()
		defer context.AfterFunc(ctx, func() { stop.Store(true) })()
		tallies := make([]tally, len(wires))
		pick := by(len(wires))
		var all sync.WaitGroup
		start := time.Now()
		for i, w := range wires {
			if err := w.conn.SetDeadline(start.Add(limit + 30*time.Second)); err != nil {
				return outcome{}, err
			}
			all.Go(func() {
				for t := &tallies[i]; t.err == nil && !stop.Load(); {
					k := pick(i)
					if k >= len(ids) {
						stop.Store(true)
						return
					}
					var r reply
					if r, t.err = w.tap(ids[k]); t.err == nil {
						t.note(k, r)
					}
				}
			})
		}
		all.Wait()
		return gather(tallies, time.Since(start), wins)
	}
}

// bursts lets all wires request the same dispatch at the same moment, dispatch after dispatch, until limit has passed.
// Latencies count from the opening of the gate, so that waiting for a processor is included.
func bursts(ctx context.Context, wires []*wire, ids []string, wins int, limit time.Duration) (outcome, error) {
	tallies := make([]tally, len(wires))
	gates := make([]chan struct{}, len(ids)+1) // the one after the last ends the phase
	for k := range gates {
		gates[k] = make(chan struct{})
	}
	var opened time.Time // written before the gate is opened, read after
	var over atomic.Bool
	var all, armed sync.WaitGroup
	start := time.Now()
	armed.Add(len(wires))
	for i, w := range wires {
		if err := w.conn.SetDeadline(start.Add(limit + 30*time.Second)); err != nil {
			return outcome{}, err
		}
		all.Go(func() {
			for k := range gates {
				armed.Done()
				<-gates[k]
				if over.Load() {
					return
				}
				if tallies[i].err == nil {
					tallies[i].burst(w, k, ids[k], opened)
				}
			}
		})
	}
	for k := range gates {
		armed.Wait()
		armed.Add(len(wires))
		over.Store(k == len(ids) || time.Since(start) > limit || ctx.Err() != nil)
		opened = time.Now()
		close(gates[k])
		if over.Load() {
			break
		}
	}
	all.Wait()
	return gather(tallies, time.Since(start), wins)
}

// burst sends one request and records the time from opened to its response.
func (t *tally) burst(w *wire, k int, id string, opened time.Time) {
	r, err := w.tap(id)
	took := time.Since(opened)
	if err != nil {
		t.err = err
		return
	}
	t.note(k, r)
	if r.status == 200 {
		t.winners = append(t.winners, took)
	} else {
		t.losers = append(t.losers, took)
	}
}

// gather adds the tallies up and judges them: every requested dispatch must have wins winners, and all others must have
// the response that it is taken. A broken connection is an error, not a wrong answer.
func gather(tallies []tally, elapsed time.Duration, wins int) (outcome, error) {
	o := outcome{elapsed: elapsed}
	won := map[int]int{}
	var strange int
	var example string
	for _, t := range tallies {
		if t.err != nil {
			return o, t.err
		}
		o.dispatches = max(o.dispatches, t.reached)
	}
	o.winner = make([]int, o.dispatches)
	for i, t := range tallies {
		o.requests += len(t.won) + t.again + t.taken + t.strange
		o.losers = append(o.losers, t.losers...)
		o.winners = append(o.winners, t.winners...)
		strange += t.strange
		if example == "" {
			example = t.example
		}
		for _, k := range t.won {
			won[k]++
			o.winner[k] = i
		}
	}
	o.wrong = judge(o.dispatches, won, wins, strange, example)
	return o, nil
}

// judge describes what is wrong with the answers; empty for nothing.
func judge(dispatches int, won map[int]int, wins, strange int, example string) string {
	var fewer, more int
	for k := range dispatches {
		switch {
		case won[k] < wins:
			fewer++
		case won[k] > wins:
			more++
		}
	}
	if fewer+more+strange == 0 {
		return ""
	}
	words := fmt.Sprintf("of %d dispatches %d without a winner, %d with more than %d; %d answers neither 200 nor 409 ALREADY_TAKEN",
		dispatches, fewer, more, wins, strange)
	if example != "" {
		words += ", for example " + example
	}
	return words
}

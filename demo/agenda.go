package demo

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"firsttap/loadtest"
)

// demoAPI calls the demo's service as anybody would.
type demoAPI struct {
	client *http.Client
	url    string
}

func (a demoAPI) call(ctx context.Context, method, path, token string, in, out any) error {
	return loadtest.Call(ctx, a.client, method, a.url+path, token, in, out)
}

// agenda is what somebody is going to do, and when. It belongs to one goroutine.
type agenda struct {
	pace    int // how many times as fast as people
	chance  *rand.Rand
	log     *slog.Logger
	errands []errand
}

type errand struct {
	at time.Time
	do func(ctx context.Context) error
}

// in has do done when d has passed for people.
func (a *agenda) in(d time.Duration, do func(context.Context) error) {
	a.at(time.Now().Add(d/time.Duration(a.pace)), do)
}

func (a *agenda) at(t time.Time, do func(context.Context) error) {
	a.errands = append(a.errands, errand{at: t, do: do})
}

// between leaves it to chance.
func (a *agenda) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.chance.Int64N(int64(most-least)))
}

// keep does one errand after the other, each when its time has come, until ctx ends. One that fails is no more than that:
// people are refused, and go on.
func (a *agenda) keep(ctx context.Context) {
	for ctx.Err() == nil && len(a.errands) > 0 {
		next := 0
		for i, e := range a.errands {
			if e.at.Before(a.errands[next].at) {
				next = i
			}
		}
		e := a.errands[next]
		a.errands = slices.Delete(a.errands, next, next+1)
		select {
		case <-time.After(time.Until(e.at)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		if err := e.do(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("somebody in the demo was refused", "error", err)
		}
	}
}

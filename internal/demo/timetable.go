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

// apiClient calls the demo's service over HTTP.
type apiClient struct {
	client *http.Client
	url    string
}

func (a apiClient) call(ctx context.Context, method, path, token string, in, out any) error {
	return loadtest.Call(ctx, a.client, method, a.url+path, token, in, out)
}

// timetable holds the next tasks of one simulated person. It belongs to one goroutine.
type timetable struct {
	pace   int // how many times faster than real people
	random *rand.Rand
	log    *slog.Logger
	tasks  []task
}

type task struct {
	at time.Time
	do func(ctx context.Context) error
}

// after schedules do for when d has passed at the demo's pace.
func (a *timetable) after(d time.Duration, do func(context.Context) error) {
	a.add(time.Now().Add(d/time.Duration(a.pace)), do)
}

func (a *timetable) add(t time.Time, do func(context.Context) error) {
	a.tasks = append(a.tasks, task{at: t, do: do})
}

// between returns a random duration.
func (a *timetable) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.random.Int64N(int64(most-least)))
}

// run runs each task at its time, one after the other, until ctx ends. A failed task is only logged: a refusal is a normal
// answer.
func (a *timetable) run(ctx context.Context) {
	for ctx.Err() == nil && len(a.tasks) > 0 {
		next := 0
		for i, e := range a.tasks {
			if e.at.Before(a.tasks[next].at) {
				next = i
			}
		}
		e := a.tasks[next]
		a.tasks = slices.Delete(a.tasks, next, next+1)
		select {
		case <-time.After(time.Until(e.at)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		if err := e.do(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("a simulated person's request was refused; the simulation continues", "error", err)
		}
	}
}

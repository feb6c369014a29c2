//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
)

// inBubble is bubble, beside other tests.
func inBubble(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	t.Parallel()
	bubble(t, test)
}

// bubble runs the test in a bubble: time stands still while something is done, and passes at once while everything waits. It
// begins at midnight. The ledger is an SQLite, whose clock is the bubble's.
func bubble(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	url := repositorytest.URL(t, servertest.SQLite)
	testkit.Bubble(t, func(t *testing.T) { test(t, newPlaceAt(t, url)) })
}

// pass lets d of the bubble pass, and returns when all that is to happen then has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// outage is what is wrong with a link.
type outage int

const (
	cutAtOnce   outage = 1 + iota // requests fail at once
	cutRequests                   // requests don't arrive
	cutReplies                    // requests arrive, and replies don't
)

// inEachOutage runs the test with each kind of outage, beside others.
func inEachOutage(t *testing.T, test func(t *testing.T, o outage)) {
	for name, o := range map[string]outage{"refused": cutAtOnce, "swallowed": cutRequests, "unanswered": cutReplies} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, o)
		})
	}
}

// linkTimeout is how long a request waits for its reply.
const linkTimeout = 2 * time.Second

// link is what an instance reaches a server through.
type link struct {
	mu     sync.Mutex
	outage outage
	delay  [2]time.Duration         // of a request, and of a reply
	fails  func(what string) outage // chooses the outage that a request meets, if it is set before the first
	calls  map[string]int
}

// cut begins an outage, or ends it with 0.
func (l *link) cut(o outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outage = o
}

// slow delays each request and each reply.
func (l *link) slow(request, reply time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = [2]time.Duration{request, reply}
}

// count is how many requests of the kind there were.
func (l *link) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[what]
}

func (l *link) now() outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage
}

// request notes a request, and returns the outage that it meets.
func (l *link) request(what string) (outage, [2]time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[what]++
	if l.fails != nil {
		return l.fails(what), l.delay
	}
	return l.outage, l.delay
}

var (
	errNotSent  = fmt.Errorf("not sent: %w, %w", dispatch.ErrUnavailable, lock.ErrUnavailable)
	errNoAnswer = fmt.Errorf("no answer: %w, %w", dispatch.ErrUnknown, lock.ErrUnavailable)
)

// over sends a request over the link. A link that is cut while a request or its reply is under way loses it.
func over[T any](ctx context.Context, l *link, what string, call func() (T, error)) (v T, err error) {
	met, delay := l.request(what)
	if met == 0 {
		if pause(ctx, delay[0]) != nil {
			return v, errNotSent
		}
		met = l.now()
	}
	switch met {
	case cutAtOnce:
		return v, errNotSent
	case cutRequests:
		_ = pause(ctx, linkTimeout)
		return v, errNotSent
	}
	did, err := call()
	if met == 0 {
		_ = pause(ctx, delay[1])
		met = l.now()
	}
	if met == 0 {
		return did, err
	}
	if met != cutAtOnce {
		_ = pause(ctx, linkTimeout)
	}
	return v, errNoAnswer
}

// send is over for a request whose reply is only an error.
func send(ctx context.Context, l *link, what string, call func() error) error {
	_, err := over(ctx, l, what, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// linkedLedger is a ledger behind a link.
type linkedLedger struct {
	schedule.RunStore
	*link
}

func (l linkedLedger) JobStates(ctx context.Context, names []string) (map[string]cronjob.JobState, time.Time, error) {
	var now time.Time
	states, err := over(ctx, l.link, "read", func() (states map[string]cronjob.JobState, err error) {
		states, now, err = l.RunStore.JobStates(ctx, names)
		return states, err
	})
	return states, now, err
}

func (l linkedLedger) NextOpenRun(ctx context.Context, jobs []string) (open, now time.Time, err error) {
	open, err = over(ctx, l.link, "poll", func() (open time.Time, err error) {
		open, now, err = l.RunStore.NextOpenRun(ctx, jobs)
		return open, err
	})
	return open, now, err
}

func (l linkedLedger) BeginRun(ctx context.Context, job, owner string, term time.Duration,
	due func(cronjob.JobState, time.Time) time.Time,
) (cronjob.Run, error) {
	var run cronjob.Run // also if the reply is lost
	err := send(ctx, l.link, "begin", func() (err error) {
		run, err = l.RunStore.BeginRun(ctx, job, owner, term, due)
		return err
	})
	return run, err
}

func (l linkedLedger) RenewRun(ctx context.Context, run cronjob.Run, term time.Duration) error {
	return send(ctx, l.link, "renew", func() error { return l.RunStore.RenewRun(ctx, run, term) })
}

func (l linkedLedger) EndRun(ctx context.Context, run cronjob.Run, end cronjob.Outcome) error {
	return send(ctx, l.link, "end", func() error { return l.RunStore.EndRun(ctx, run, end) })
}

func (l linkedLedger) BlockJob(ctx context.Context, job, by, reason string) error {
	return send(ctx, l.link, "block", func() error { return l.RunStore.BlockJob(ctx, job, by, reason) })
}

// linkedLocks are locks behind a link.
type linkedLocks struct {
	*lock.Memory
	*link
}

func (l linkedLocks) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (lock.Grant, error) {
	g, err := over(ctx, l.link, "acquire", func() (lock.Grant, error) { return l.Memory.Acquire(ctx, name, owner, ttl) })
	if err != nil && !errors.Is(err, errNoAnswer) {
		return nil, err
	}
	if g == nil { // for a release only
		g = lostGrant{l.Memory, name, owner}
	}
	return linkedGrant{g, l.link}, err
}

func (l linkedLocks) Show(ctx context.Context, name string) (lock.Holder, error) {
	return over(ctx, l.link, "show", func() (lock.Holder, error) { return l.Memory.Show(ctx, name) })
}

func (l linkedLocks) List(ctx context.Context) ([]lock.Holder, error) {
	return over(ctx, l.link, "list", func() ([]lock.Holder, error) { return l.Memory.List(ctx) })
}

// linkedGrant is a grant behind a link.
type linkedGrant struct {
	lock.Grant
	*link
}

func (g linkedGrant) Extend(ctx context.Context, ttl time.Duration) error {
	return send(ctx, g.link, "extend", func() error { return g.Grant.Extend(ctx, ttl) })
}

func (g linkedGrant) Release(ctx context.Context, keep time.Duration) error {
	return send(ctx, g.link, "release", func() error { return g.Grant.Release(ctx, keep) })
}

// lostGrant is a grant that may have been made, of whose owner the name may be.
type lostGrant struct {
	memory      *lock.Memory
	name, owner string
}

func (g lostGrant) Fence() int64                                { return 0 }
func (g lostGrant) Extend(context.Context, time.Duration) error { return lock.ErrUnavailable }

func (g lostGrant) Release(ctx context.Context, keep time.Duration) error {
	again, err := g.memory.Acquire(ctx, g.name, g.owner, time.Minute)
	if err != nil {
		return lock.ErrLost
	}
	return again.Release(ctx, keep)
}

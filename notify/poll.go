package notify

import (
	"context"
	"math/rand/v2"
	"time"

	"firsttap/dispatch/outbox"
	"firsttap/notify/wakeup"
)

// pollDelay is how much later than the scheduler the relay polls: it gets the scheduler's answer, and need not ask the database.
const pollDelay = 50 * time.Millisecond

// poll wakes the loops when rows are due that nobody announced: after a pause, or when a lease has ended. It knows when the first row of
// each kind is due, and wakes the loop at that moment.
func (r *Relay) poll(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := r.readDue(ctx)
		if err != nil { // each loop tries by itself, and logs what it meets
			now := time.Now()
			due = outbox.Due{ReadAt: now, Events: now, Notifications: now, Topics: now}
		}
		if r.failed.any() {
			r.eventsDue.Set()
		}
		r.wakeAt(due.Events, r.eventsDue)
		r.wakeAt(due.Notifications, r.pushesDue)
		r.wakeAt(due.Topics, r.topicsDue)
		r.pause(ctx, max(time.Until(due.ReadAt.Add(r.options.PollInterval+pollDelay)), r.options.PollInterval/4))
	}
}

// readDue asks what is due, for PollInterval at most.
func (r *Relay) readDue(ctx context.Context) (outbox.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.PollInterval)
	defer cancel()
	return r.options.Poll.Due(ctx)
}

func (r *Relay) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// wakeAt sets the signal at that time, unless the time is zero or so late that the next poll will tell.
func (r *Relay) wakeAt(at time.Time, signal wakeup.Signal) {
	if wait := time.Until(at); !at.IsZero() && wait <= 2*r.options.PollInterval {
		time.AfterFunc(wait, signal.Set)
	}
}

// wait waits for c, and at most for about PollInterval: the jitter keeps processes from leasing at the same time.
func (r *Relay) wait(ctx context.Context, c <-chan struct{}) {
	t := time.NewTimer(r.options.PollInterval*3/4 + rand.N(r.options.PollInterval/2))
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
}

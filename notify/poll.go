package notify

import (
	"context"
	"math/rand/v2"
	"time"

	"firsttap/notify/wakeup"
)

// poll wakes the loops when rows are due that nobody announced: after a pause, or when a lease has ended. It looks every PollInterval,
// and so knows of the rows that become due before its next look.
func (r *Relay) poll(ctx context.Context) {
	for ctx.Err() == nil {
		due, err := r.options.Outbox.Due(ctx)
		if err != nil { // each loop tries by itself, and logs what it meets
			now := time.Now()
			due.Events, due.Notifications, due.Topics = now, now, now
		}
		if r.expandFailed.Load() {
			r.eventsDue.Set()
		}
		r.wakeAt(due.Events, r.eventsDue)
		r.wakeAt(due.Notifications, r.pushesDue)
		r.wakeAt(due.Topics, r.topicsDue)
		r.wait(ctx, nil)
	}
}

// wakeAt sets the signal at that time, unless the time is zero or so late that the next look will tell.
func (r *Relay) wakeAt(at time.Time, signal wakeup.Signal) {
	if wait := time.Until(at); !at.IsZero() && wait <= 2*r.options.PollInterval {
		time.AfterFunc(wait, signal.Set)
	}
}

// wait waits for c, and at most for about PollInterval: the jitter keeps processes from polling at the same time.
func (r *Relay) wait(ctx context.Context, c <-chan struct{}) {
	t := time.NewTimer(r.options.PollInterval*3/4 + rand.N(r.options.PollInterval/2))
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
}

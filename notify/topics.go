package notify

import (
	"context"
	"errors"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

const (
	// memberBatch is the most that the push service accepts in one call.
	memberBatch = 1000
	topicBatch  = 4
	// subscribeInterval makes 2,000 subscriptions a second of the 3,000 that the push service allows.
	subscribeInterval = 500 * time.Millisecond
	// A call that fails pauses all calls of this process, unless its own content is refused. The pause doubles with each failure in a row.
	firstTopicPause, longestTopicPause = 30 * time.Second, 10 * time.Minute
)

// topicCallError is a call that the push service refused or did not answer.
type topicCallError struct{ Outcome }

func (e *topicCallError) Error() string { return string(e.Class) + ": " + e.Reason }

// maintainTopics subscribes large audiences to their topics, and unsubscribes them after the offer has ended.
func (r *Relay) maintainTopics(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		r.pause(ctx, time.Until(r.topicsNotBefore))
		leased, err := r.options.Topics.LeaseTopics(ctx, topicBatch)
		if err != nil && !failing && ctx.Err() == nil {
			r.options.Log.Warn("topics not leased; the relay tries again until they are", "error", err)
		}
		failing = err != nil
		for _, t := range leased {
			err := r.maintainTopic(ctx, t)
			var failed *topicCallError
			if errors.As(err, &failed) && failed.Class != Poison && ctx.Err() == nil {
				wait := max(r.topicPause, failed.RetryAfter)
				r.topicsNotBefore, r.topicPause = time.Now().Add(wait), min(2*r.topicPause, longestTopicPause)
				r.options.Log.Warn("topic subscriptions incomplete; this process calls the push service for topics again after a pause",
					"topic", t.Name, "error", err, "pause", wait)
				break // the leases of the others end soon
			}
			if err == nil {
				r.topicPause = firstTopicPause
			} else if ctx.Err() == nil && !errors.Is(err, dispatch.ErrNotLeased) {
				r.options.Log.Warn("topic subscriptions incomplete; they will be continued when the topic's lease expires",
					"topic", t.Name, "error", err)
			}
		}
		if len(leased) < topicBatch {
			r.topicsDue.Wait(ctx)
		}
	}
}

// maintainTopic subscribes or unsubscribes the remaining members, and then completes the topic.
func (r *Relay) maintainTopic(ctx context.Context, t outbox.Topic) error {
	change := r.options.Sender.Subscribe
	if t.Ended {
		change = r.options.Sender.Unsubscribe
	}
	pace := time.NewTicker(subscribeInterval)
	defer pace.Stop()
	for {
		members, err := r.options.Topics.TopicMembers(ctx, t, memberBatch)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			return r.options.Topics.CompleteTopic(ctx, t)
		}
		tokens := make([]string, len(members))
		for i, m := range members {
			tokens[i] = m.PushToken
		}
		refusals, o := change(ctx, t.Name, tokens)
		r.metrics.countTopicCall(o)
		if o.Class != Sent {
			return &topicCallError{o}
		}
		done, refused := splitRefused(members, refusals)
		if err := r.options.Topics.RecordMembers(ctx, t, done, refused); err != nil {
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	// countBatch is how many devices' topics are counted at a time.
	countBatch = 100
	// countPause is how long nothing is counted after there was no topic.
	countPause = time.Minute
)

// topicCount finds the largest number of topics that a device has, of which the push service allows so many: in rounds over all devices, a
// batch at a time.
type topicCount struct {
	after       dispatch.DeviceID // the last device that was counted in this round, "" at the beginning
	most, known int               // of this round so far, and of the one before
	readAt      time.Time
}

// next counts the next batch, and returns what is known then.
func (c *topicCount) next(ctx context.Context, t Topics) int {
	if c.after == "" && c.known == 0 && time.Since(c.readAt) < countPause {
		return 0
	}
	c.readAt = time.Now()
	if most, last, err := t.CountTopics(ctx, c.after, countBatch); err == nil {
		if c.after, c.most = last, max(c.most, most); last == "" {
			c.known, c.most = c.most, 0
		}
	}
	return max(c.known, c.most)
}

func splitRefused(members []dispatch.Device, refusals []int) (done, refused []dispatch.DeviceID) {
	out := make(map[int]bool, len(refusals))
	for _, i := range refusals {
		out[i] = true
	}
	for i, m := range members {
		if out[i] {
			refused = append(refused, m.ID)
		} else {
			done = append(done, m.ID)
		}
	}
	return done, refused
}

//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"firsttap/repository/devices"
	"firsttap/repository/poll"
	"firsttap/repository/pushes"
	"firsttap/repository/topics"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/notify"
)

// wire is between a relay, its database and its push service. It loses, delays and records calls, and can kill the relay:
// no call of a dead relay arrives anywhere.
type wire struct {
	*pushes.Outbox
	*poll.Poll
	*pushes.Notifications
	*topics.Topics
	*devices.Devices
	sender notify.Sender
	bubble bool
	slow   string // calls of this name get their replies after slowReplyDelay, in a bubble

	mu    sync.Mutex
	calls []call
	fault fault // of the call number at, counted from 1 since the fault was set
	at    int
	since int // calls before the fault was set
	dead  bool
	dark  bool                      // each poll fails
	done  map[dispatch.EventID]bool // the events that the relay has completed
	next  map[string]fault          // of the next call of that name
	sent  int                       // pushes that the relay has recorded as sent
	again int                       // pushes that the relay has recorded as still to be sent
}

// call is one call of a relay, and for an expansion its events.
type call struct {
	name   string
	events []dispatch.EventID
}

type fault string

const (
	noFault        fault = ""
	requestIsLost  fault = "the request is lost"
	replyIsLost    fault = "the reply is lost"
	replyIsLate    fault = "the reply is late"
	killedBefore   fault = "the relay is killed before the request arrives"
	killedAfter    fault = "the relay is killed before the reply arrives"
	replyIsSlow    fault = "the reply is slow"
	lateReplyDelay       = 4 * time.Second
	slowReplyDelay       = 50 * time.Millisecond
)

var errLost = errors.New("the connection is lost")

// set makes the nth call from now on fail in that way.
func (w *wire) set(f fault, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.at, w.since = f, n, len(w.calls)
}

// setNext makes the next call of each name fail in that way.
func (w *wire) setNext(f fault, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = map[string]fault{}
	for _, name := range names {
		w.next[name] = f
	}
}

// ahead returns how many of the faults of setNext have not struck.
func (w *wire) ahead() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.next)
}

// made returns the calls since set.
func (w *wire) made() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]call(nil), w.calls[w.since:]...)
}

// finish records that these events are completed.
func (w *wire) finish(events ...dispatch.EventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[dispatch.EventID]bool{}
	}
	for _, e := range events {
		w.done[e] = true
	}
}

// finished returns how many events the relay has completed.
func (w *wire) finished() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done)
}

// recorded returns how many pushes the relay has recorded as sent.
func (w *wire) recorded() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// postponed returns how many pushes the relay has recorded as still to be sent.
func (w *wire) postponed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.again
}

// patient returns the context of a call without the relay's time limits where time is real, so that a busy machine loses no call.
func (w *wire) patient(ctx context.Context) context.Context {
	if w.bubble {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// begin records a call. It returns the call's fault, and whether the call arrives.
func (w *wire) begin(c call) (f fault, arrives bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	if len(w.calls)-w.since == w.at {
		f = w.fault
	}
	if c.name == w.slow {
		f = replyIsSlow
	}
	if next, ok := w.next[c.name]; ok {
		delete(w.next, c.name)
		f = next
	}
	if f == killedBefore {
		w.dead = true
	}
	return f, !w.dead && f != requestIsLost
}

// end reports whether the reply to a call arrives. A late reply waits in the bubble.
func (w *wire) end(f fault) bool {
	switch f {
	case replyIsLate:
		time.Sleep(lateReplyDelay)
	case replyIsSlow:
		time.Sleep(slowReplyDelay)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f == killedAfter {
		w.dead = true
	}
	return !w.dead && f != replyIsLost
}

// through makes one call over the wire.
func through[T any](w *wire, c call, do func() (T, error)) (reply T, err error) {
	var none T
	f, arrives := w.begin(c)
	if !arrives {
		return none, errLost
	}
	if reply, err = do(); !w.end(f) {
		return none, errLost
	}
	return reply, err
}

func (w *wire) only(name string, do func() error) error {
	_, err := through(w, call{name: name}, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (w *wire) LeaseEvents(ctx context.Context, limit int) ([]dispatch.EventID, error) {
	return through(w, call{name: "LeaseEvents"}, func() ([]dispatch.EventID, error) { return w.Outbox.LeaseEvents(w.patient(ctx), limit) })
}

func (w *wire) Due(ctx context.Context) (outbox.Due, error) {
	return through(w, call{name: "Due"}, func() (outbox.Due, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dark {
			return outbox.Due{}, errLost
		}
		return w.Poll.Due(w.patient(ctx))
	})
}

func (w *wire) Backlog(ctx context.Context) (due int, oldest time.Duration, err error) {
	due, err = through(w, call{name: "Backlog"}, func() (due int, err error) {
		due, oldest, err = w.Notifications.Backlog(w.patient(ctx))
		return due, err
	})
	return due, oldest, err
}

// blind makes each poll fail from now on.
func (w *wire) blind() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dark = true
}

func (w *wire) ReleaseEvents(ctx context.Context, events ...dispatch.EventID) error {
	return w.only("ReleaseEvents", func() error { return w.Outbox.ReleaseEvents(w.patient(ctx), events...) })
}

func (w *wire) Expand(ctx context.Context, events []dispatch.EventID, lease int) (outbox.Expansion, error) {
	return through(w, call{"Expand", events}, func() (outbox.Expansion, error) { return w.Outbox.Expand(w.patient(ctx), events, lease) })
}

func (w *wire) LeaseNotifications(ctx context.Context, limit int) (pushes []outbox.Push, dropped map[string]int, err error) {
	err = w.only("LeaseNotifications", func() error {
		pushes, dropped, err = w.Outbox.LeaseNotifications(w.patient(ctx), limit)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return pushes, dropped, nil
}

func (w *wire) RecordResults(ctx context.Context, results []outbox.SendResult, expanded []dispatch.EventID) error {
	return w.only("RecordResults", func() error {
		err := w.Outbox.RecordResults(w.patient(ctx), results, expanded)
		if err == nil {
			w.finish(expanded...)
			w.mu.Lock()
			defer w.mu.Unlock()
			for i := range results {
				switch results[i].Status {
				case outbox.Sent:
					w.sent++
				case outbox.Pending:
					w.again++
				}
			}
		}
		return err
	})
}

func (w *wire) LeaseTopics(ctx context.Context, limit int) ([]outbox.Topic, error) {
	return through(w, call{name: "LeaseTopics"}, func() ([]outbox.Topic, error) { return w.Topics.LeaseTopics(w.patient(ctx), limit) })
}

func (w *wire) RecordVerdict(ctx context.Context, v outbox.Verdict, devices []dispatch.Device) (recorded int, err error) {
	return through(w, call{name: "RecordVerdict"}, func() (int, error) { return w.Devices.RecordVerdict(w.patient(ctx), v, devices) })
}

// wiredSender is the wire's push service. Its faults are those of fcmtest; the wire only kills.
type wiredSender struct{ *wire }

func (s wiredSender) Send(ctx context.Context, p outbox.Push) notify.Outcome {
	f, _ := s.begin(call{name: "Send"})
	if s.isDead() {
		return notify.Outcome{Class: notify.Unreached}
	}
	o := s.sender.Send(ctx, p)
	if f == killedAfter {
		s.end(f)
	}
	return o
}

func (s wiredSender) Subscribe(ctx context.Context, topic string, tokens []string) ([]int, notify.Outcome) {
	return s.sender.Subscribe(ctx, topic, tokens)
}

func (s wiredSender) Unsubscribe(ctx context.Context, topic string, tokens []string) ([]int, notify.Outcome) {
	return s.sender.Unsubscribe(ctx, topic, tokens)
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

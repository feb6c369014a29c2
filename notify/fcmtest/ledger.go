package fcmtest

import (
	"maps"
	"net/http"
	"sync"
	"time"
)

// Request is one messages:send request. Its Data and Body must not be modified.
type Request struct {
	N             int64     // counts the requests from 1, in the order of their decisions
	At            time.Time // when its last byte had arrived
	Project       string
	Authorization string // the header
	Token         string // exactly one of Token and Topic is set, unless the request was refused for that
	Topic         string
	Data          map[string]string // the app's
	Tag           string            // android's, or else the apns-collapse-id
	Silent        bool              // data only
	ValidateOnly  bool
	Body          []byte
	Status        int    // of the answer after the latency, 0 for no answer
	Code          string // the FcmError's errorCode, "" for none
	Accepted      bool   // the device gets the message, whatever the answer
}

// defaultKeep is how many requests are kept without a call of KeepSends.
const defaultKeep = 10_000

// ledger counts the requests, keeps the last of them, and chooses the faults.
type ledger struct {
	mu         sync.Mutex
	requests   int64
	accepted   int64
	unanswered int64
	topicCalls int64
	peak       int64
	statuses   map[int]int64

	keep int
	ring []Request
	next int // the position of the oldest, once the ring is full

	failed, dropped, droppedAfter, hungAfter, unreadable share

	minute, second window
}

func (l *ledger) init() { l.keep, l.statuses = defaultKeep, map[int]int64{} }

func (l *ledger) restartShares() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.dropped, l.droppedAfter, l.hungAfter, l.unreadable = share{}, share{}, share{}, share{}, share{}
}

// enter records the number of requests in progress.
func (l *ledger) enter(underWay int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peak = max(l.peak, underWay)
}

func (l *ledger) topicCall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topicCalls++
}

// faultBefore returns the fault, if any, that keeps a send from being accepted.
func (l *ledger) faultBefore(k *Knobs, at time.Time) (v verdict, faulty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k.Hang:
		return verdict{hang: true}, true
	case l.dropped.next(k.Drop):
		return verdict{cut: true}, true
	case l.failed.next(k.rate()):
		return verdict{refused: refusalOf(k.Status, k.ErrorCode), retryAfter: k.RetryAfter}, true
	}
	left := max(l.minute.left(k.QuotaPerMinute, time.Minute, at), l.second.left(k.QuotaPerSecond, time.Second, at))
	if left > 0 {
		v = verdict{refused: refusalOf(http.StatusTooManyRequests, ""), retryAfter: k.RetryAfter}
		if v.retryAfter == "" {
			v.retryAfter = retryIn(left)
		}
		return v, true
	}
	l.minute.used++
	l.second.used++
	return verdict{}, false
}

// faultAfter returns the verdict on a send that was accepted.
func (l *ledger) faultAfter(k *Knobs) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.droppedAfter.next(k.DropAfterAccept):
		return verdict{accepted: true, cut: true}
	case l.hungAfter.next(k.HangAfterAccept):
		return verdict{accepted: true, hang: true}
	}
	return verdict{accepted: true, badJSON: l.unreadable.next(k.BadJSON)}
}

// record counts, numbers and keeps the request.
func (l *ledger) record(req *Request, v *verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	req.N = l.requests
	if req.Accepted {
		l.accepted++
	}
	if status := v.status(); status == 0 {
		l.unanswered++
	} else {
		l.statuses[status]++
	}
	switch {
	case l.keep == 0:
	case len(l.ring) < l.keep:
		l.ring = append(l.ring, *req)
	default:
		l.ring[l.next] = *req
		l.next = (l.next + 1) % l.keep
	}
}

// KeepSends makes the server keep the last n requests for Sends, instead of 10,000, and forgets those so far.
func (s *Server) KeepSends(n int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.keep, s.ledger.ring, s.ledger.next = max(n, 0), nil, 0
}

// Sends returns the kept messages:send requests, the oldest first.
func (s *Server) Sends() []Request {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	sends := make([]Request, 0, len(l.ring))
	return append(append(sends, l.ring[l.next:]...), l.ring[:l.next]...)
}

// Requests returns the number of messages:send requests, whatever the answer.
func (s *Server) Requests() int64 {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.requests
}

// TopicCalls returns the number of calls of batchAdd and batchRemove, whatever the answer.
func (s *Server) TopicCalls() int64 {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.topicCalls
}

// Stats are the counts of a server since its creation.
type Stats struct {
	Requests   int64         `json:"requests"`   // messages:send, whatever the answer
	Accepted   int64         `json:"accepted"`   // sends that a device or topic got
	Unanswered int64         `json:"unanswered"` // sends left hanging or cut on purpose
	Statuses   map[int]int64 `json:"statuses"`   // all other sends, by the status of their answer
	TopicCalls int64         `json:"topic_calls"`
	InFlight   int64         `json:"under_way"` // requests of any kind in progress
	Peak       int64         `json:"peak"`      // the largest InFlight so far
	Received   int           `json:"received"`  // messages that arrived at devices
	Duplicates int           `json:"duplicates"`
	Visible    int           `json:"visible"`
	Devices    int           `json:"devices"` // devices that got a message
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	stats := Stats{InFlight: s.handlers.Load()}
	stats.Received, stats.Duplicates, stats.Visible, stats.Devices = s.Totals()
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	stats.Requests, stats.Accepted, stats.Unanswered = l.requests, l.accepted, l.unanswered
	stats.TopicCalls, stats.Peak, stats.Statuses = l.topicCalls, l.peak, maps.Clone(l.statuses)
	return stats
}

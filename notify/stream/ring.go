package stream

import (
	"firsttap/dispatch"
)

// ring holds the newest messages, each under a sequence number of this instance's own. It is never empty.
type ring struct {
	slots      []*message
	tail, head uint64 // of the oldest and of the newest
	byID       map[string]uint64
	events     map[dispatch.EventID]bool
}

// newRing returns a ring of that size with nothing before the given id.
func newRing(size int, id string) *ring {
	r := &ring{slots: make([]*message, size), byID: map[string]uint64{}, events: map[dispatch.EventID]bool{}, tail: 1}
	r.add(marker(id))
	return r
}

// add puts a message in, unless it is of an event that the ring has already.
func (r *ring) add(m *message) {
	if m.event != "" {
		if r.events[m.event] {
			return
		}
		r.events[m.event] = true
	}
	if r.head-r.tail+1 == uint64(len(r.slots)) {
		r.evict()
	}
	r.head++
	r.slots[r.head%uint64(len(r.slots))] = m
	r.byID[m.id] = r.head
}

func (r *ring) evict() {
	m := r.at(r.tail)
	if r.byID[m.id] == r.tail { // a resync has the id of what it follows
		delete(r.byID, m.id)
	}
	if m.event != "" {
		delete(r.events, m.event)
	}
	r.slots[r.tail%uint64(len(r.slots))] = nil
	r.tail++
}

// at returns the message with the sequence number, which the ring must have.
func (r *ring) at(seq uint64) *message { return r.slots[seq%uint64(len(r.slots))] }

// find returns where the stream stood that has been told everything up to id, false if nobody can say.
func (r *ring) find(id string) (uint64, bool) {
	seq, ok := r.byID[id]
	return seq, ok
}

// replace puts messages, the newest of which ends at id, in the place of all there were.
func (r *ring) replace(messages []*message, id string) {
	clear(r.slots)
	clear(r.byID)
	clear(r.events)
	r.tail = r.head + 1
	for _, m := range messages {
		r.add(m)
	}
	if r.head < r.tail {
		r.add(marker(id))
	}
}

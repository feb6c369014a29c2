package stream

import (
	"firsttap/dispatch"
)

// ring holds the newest messages, each under a sequence number of this instance's own. It is never empty.
type ring struct {
	slots      []*message
	tail, head uint64 // the oldest and the newest
	byID       map[string]uint64
	events     map[dispatch.EventID]bool
}

// newRing returns a ring of that size that begins at the id.
func newRing(size int, id string) *ring {
	r := &ring{slots: make([]*message, size), byID: map[string]uint64{}, events: map[dispatch.EventID]bool{}, tail: 1}
	r.add(marker(id))
	return r
}

// add appends a message, unless the ring has one of the same event.
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

// at returns the message with a sequence number between tail and head.
func (r *ring) at(seq uint64) *message { return r.slots[seq%uint64(len(r.slots))] }

// find returns the sequence number of the message with the id, false if the ring does not have it.
func (r *ring) find(id string) (uint64, bool) {
	seq, ok := r.byID[id]
	return seq, ok
}

// replace replaces the content by messages, the newest of which goes up to id.
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

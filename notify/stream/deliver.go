package stream

import "slices"

// deliver appends messages to the ring and wakes the streams that receive any of them. h.mu is held. It never blocks.
func (h *Hub) deliver(messages []*message) {
	before := h.ring.head
	for _, m := range messages {
		h.ring.add(m)
	}
	if h.ring.head > before {
		h.wakeStreams(before)
	}
}

// wakeStreams wakes the streams that receive any message after before. A stream that is busy finds it by itself. A stream
// that receives none of them is moved past them, so that it does not lag.
func (h *Hub) wakeStreams(before uint64) {
	now := h.options.Now()
	for i := len(h.streams) - 1; i >= 0; i-- { // backwards, as remove moves the last stream
		s := h.streams[i]
		switch {
		case !s.started:
		case s.position+1 < h.ring.tail:
			h.metrics.lagging.Inc()
			h.remove(s, ErrLagging)
		case s.position == before:
			for s.position < h.ring.head {
				if s.frameOf(h.ring.at(s.position+1), now) != nil {
					s.wake.Set()
					break
				}
				s.position++
			}
		}
	}
}

// resetRing replaces the ring's messages; newest is the id that they go up to. Open streams get a resync, and with resync
// also those that will resume from one of the messages.
func (h *Hub) resetRing(messages []*message, newest string, resync bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring.replace(messages, newest)
	before := h.ring.head
	if resync || slices.ContainsFunc(h.streams, func(s *Stream) bool { return s.started }) {
		h.ring.add(resyncMessage(newest))
	}
	for _, s := range h.streams {
		s.position = before
	}
	h.wakeStreams(before)
}

// updateDriver applies the profile to the driver's streams. h.mu is held.
func (h *Hub) updateDriver(p *profile) {
	for _, s := range h.byOwner[driverOwner(p.ID)] {
		if p.Version >= s.profile.Version {
			s.profile = *p
		}
	}
}

// remove ends the stream for the reason and removes it from the hub. h.mu is held. A second call does nothing.
func (h *Hub) remove(s *Stream, reason error) {
	if s.reason != nil {
		return
	}
	s.reason = reason
	s.wake.Set()
	last := len(h.streams) - 1
	h.streams[s.index] = h.streams[last]
	h.streams[s.index].index = s.index
	h.streams[last] = nil
	h.streams = h.streams[:last]
	s.gauge().Dec()
	owned := h.byOwner[s.owner]
	if i := slices.Index(owned, s); len(owned) > 1 {
		h.byOwner[s.owner] = slices.Delete(owned, i, i+1)
	} else {
		delete(h.byOwner, s.owner)
	}
}

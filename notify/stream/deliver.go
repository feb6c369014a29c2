package stream

import "slices"

// deliver puts messages into the ring and wakes the streams that hear one of them. h.mu is held. It waits for no stream.
func (h *Hub) deliver(messages []*message) {
	before := h.ring.head
	for _, m := range messages {
		h.ring.add(m)
	}
	if h.ring.head > before {
		h.wakeStreams(before)
	}
}

// wakeStreams wakes the streams that hear something after before. One that is busy will find it by itself; one that hears
// nothing of it is moved past it, so that it is not behind.
func (h *Hub) wakeStreams(before uint64) {
	now := h.Now()
	for i := len(h.streams) - 1; i >= 0; i-- { // end moves the last one to where it was
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

// resetRing puts messages in the place of what the ring had; newest is the id that they go up to. Again tells every stream
// to read again, those too that will be resumed from one of messages.
func (h *Hub) resetRing(messages []*message, newest string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring.replace(messages, newest)
	before := h.ring.head
	if again || slices.ContainsFunc(h.streams, func(s *Stream) bool { return s.started }) {
		h.ring.add(resyncMessage(newest))
	}
	for _, s := range h.streams {
		s.position = before
	}
	h.wakeStreams(before)
}

// updateDriver makes the driver's streams go by p. h.mu is held.
func (h *Hub) updateDriver(p *profile) {
	for _, s := range h.byOwner[driverOwner(p.ID)] {
		if p.Version >= s.driver.Version {
			s.driver = p.driver()
		}
	}
}

// remove takes the stream off the hub and tells it why. h.mu is held. Ending it again does nothing.
func (h *Hub) remove(s *Stream, reason error) {
	if s.reason != nil {
		return
	}
	s.reason = reason
	close(s.done)
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

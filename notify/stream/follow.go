package stream

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// errGap says that Redis no longer has the entry that was read last, so others may be missing too.
var errGap = errors.New("entries of the Redis stream are gone")

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// follow reads the entries of all instances, and reconnects to Redis after an outage. It returns when ctx ends.
func (h *Hub) follow(ctx context.Context) {
	f := &follower{hub: h, first: true, lostAt: time.Now()}
	pause := firstPause
	for ctx.Err() == nil {
		newest, err := f.join(ctx)
		if f.first {
			f.first = false
			close(h.loaded)
			if err != nil && ctx.Err() == nil {
				h.options.Log.Warn("live stream starts without Redis; clients get the events of this instance only until Redis is back",
					"error", err)
			}
		}
		if err == nil {
			pause = firstPause
			err = f.readNew(ctx, newest)
			f.lostAt = time.Now()
		}
		if ctx.Err() != nil {
			return
		}
		h.goLocal(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, maxPause)
	}
}

// follower is the one goroutine of a hub that reads its bus.
type follower struct {
	hub    *Hub
	first  bool
	lostAt time.Time // when it last stopped reading
	ownID  string    // the id of this instance's newest entry that was read back
}

// join sends the other instances the backlog of this one, leaves local-only mode, fills the ring with the newest entries,
// and returns the id to read on from.
//
// The first time, clients of other instances may resume from those entries. After an outage every stream gets a resync, and
// so do clients that come back: Redis may have returned as a replica that lacks entries that others have read, and this
// instance can't know.
func (f *follower) join(ctx context.Context) (newest string, err error) {
	h := f.hub
	// Redis has to answer before local-only mode is left, also when there is no backlog.
	if f.first {
		_, err = h.bus.contains(ctx, "0-1")
	} else {
		// The resync needs a new id: with an older one, a client that resynced would look like one that read that entry before.
		err = h.bus.append(ctx, []*entry{{kind: kindMark}})
	}
	if err != nil {
		return "", err
	}
	if err := f.publishBacklog(ctx); err != nil {
		return "", err
	}
	entries, newest, err := h.bus.newest(ctx, h.options.RingSize)
	if err == nil && f.missing(entries) {
		// A failover lost it, also for instances that saw no outage.
		if err = h.bus.append(ctx, []*entry{{kind: kindGap}}); err == nil {
			f.ownID = ""
			entries, newest, err = h.bus.newest(ctx, h.options.RingSize)
		}
	}
	if err != nil {
		return "", err
	}
	messages := make([]*message, 0, len(entries))
	for _, e := range entries {
		if m, _ := e.decode(); m != nil {
			messages = append(messages, m)
		}
	}
	h.resetRing(messages, newest, !f.first)
	if !f.first {
		h.options.Log.Warn(
			"live stream reconnected to Redis; clients get the events of all instances again", "outage", time.Since(f.lostAt),
		)
	}
	return newest, nil
}

// publishBacklog appends the queue's entries to the bus, and leaves local-only mode when there are no more.
func (f *follower) publishBacklog(ctx context.Context) error {
	q := f.hub.queue
	for published := uint64(0); !q.leaveLocal(published); {
		entries := q.peek(published, f.hub.batchSize)
		gap := len(entries) == 0 && q.claimGap()
		if gap {
			entries = []*entry{{kind: kindGap}}
		}
		if len(entries) == 0 {
			continue
		}
		if err := f.hub.bus.append(ctx, entries); err != nil {
			if gap {
				q.restoreGap()
			}
			return err
		}
		if !gap {
			published = entries[len(entries)-1].n
		}
	}
	return nil
}

// missing reports whether entries lack this instance's newest entry, although they reach back that far.
func (f *follower) missing(entries []received) bool {
	if f.ownID == "" || before(f.ownID, entries[0].id) {
		return false
	}
	return !slices.ContainsFunc(entries, func(e received) bool { return e.id == f.ownID })
}

// readNew delivers the entries after last, until Redis is unreachable or entries are missing. It trims the bus.
func (f *follower) readNew(ctx context.Context, last string) error {
	h := f.hub
	trimmed, checked := time.Now(), time.Now()
	for ctx.Err() == nil && !h.queue.localOnly() {
		entries, err := h.bus.readAfter(ctx, last, h.batchSize)
		if err != nil {
			return err
		}
		f.deliver(entries)
		// While Redis has the entry that was read last, no later entry was trimmed unread, and the stream is the same one.
		switch there, err := h.bus.contains(ctx, last); {
		case err != nil:
			return err
		case !there:
			return errGap
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1].id
		}
		if time.Since(checked) >= checkEvery {
			if err := h.bus.takesEntries(ctx); err != nil {
				return err
			}
			checked = time.Now()
		}
		if time.Since(trimmed) >= h.options.Retention/marksPerRetention {
			if err := h.bus.markAndTrim(ctx, last, h.options.Retention); err != nil {
				return err
			}
			trimmed = time.Now()
		}
	}
	return nil
}

// checkEvery is the time between two checks whether Redis would append an entry: it may answer reads and refuse that.
const checkEvery = 5 * time.Second

// marksPerRetention is how many marks an instance appends within the retention. So the bus is trimmed while nothing happens, the newest
// entry of each instance is younger than the retention, and clients that get nothing have a recent id to resume from.
const marksPerRetention = 60

func (f *follower) deliver(entries []received) {
	h := f.hub
	var (
		messages []*message
		own      uint64
		woken    bool
	)
	h.mu.Lock()
	for _, e := range entries {
		m, p := e.decode()
		if m != nil {
			messages = append(messages, m)
		}
		if p != nil {
			h.updateDriver(p)
		}
		if e.own {
			f.ownID, own = e.id, max(own, e.n)
		} else {
			woken = woken || e.kind == kindWake
		}
	}
	h.deliver(messages)
	h.mu.Unlock()
	if own > 0 {
		h.queue.confirm(own)
	}
	if woken {
		h.options.OnWakeRelay()
	}
}

// decode returns the entry's message to the streams, or a driver's new profile, or neither.
func (e received) decode() (*message, *profile) {
	var err error
	switch e.kind {
	case kindEvent:
		var a announcement
		if err = json.Unmarshal([]byte(e.body), &a); err == nil {
			return newMessage(e.id, &a), nil
		}
	case kindDriver:
		var p profile
		if err = json.Unmarshal([]byte(e.body), &p); err == nil {
			return nil, &p
		}
	}
	switch {
	case e.kind == kindGap || err != nil:
		return resyncMessage(e.id), nil
	case e.kind == kindMark:
		return marker(e.id), nil // an id for clients that have received nothing yet
	}
	return nil, nil
}

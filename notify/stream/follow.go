package stream

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// errGap says that the entry that was read last is no longer there: nobody can tell what else is not.
var errGap = errors.New("entries of the redis stream are gone")

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// follow reads what all instances tell, and finds Redis again when it was away. It returns when ctx ends.
func (h *Hub) follow(ctx context.Context) {
	f := &follower{hub: h, first: true}
	pause := firstPause
	for ctx.Err() == nil {
		newest, err := f.join(ctx)
		if f.first {
			f.first = false
			close(h.loaded)
			if err != nil && ctx.Err() == nil {
				h.Log.Warn("the live stream starts without redis, on this instance only", "error", err)
			}
		}
		if err == nil {
			pause = firstPause
			err = f.readNew(ctx, newest)
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
	hub   *Hub
	first bool
	ownID string // the id of this instance's newest entry that was read
}

// join tells the other instances what they have missed of this one, begins to share, and returns the id to read on from.
//
// It takes over the newest entries. The first time, clients of other instances may resume from them. After that, every
// stream is told to read again, and clients who come back are too: a Redis that was away may have come back as a replica
// that lacks what others had read, and this instance alone can't know.
func (f *follower) join(ctx context.Context) (newest string, err error) {
	h := f.hub
	if err := f.publishBacklog(ctx); err != nil {
		return "", err
	}
	if !f.first {
		// The id of an older entry would not tell who has read again from who heard that entry before the outage.
		if err := h.bus.append(ctx, []*entry{{kind: kindMark}}); err != nil {
			return "", err
		}
	}
	entries, newest, err := h.bus.newest(ctx, h.Ring)
	if err == nil && f.missing(entries) {
		// A failover has undone it, for instances that have not been on the other side too.
		if err = h.bus.append(ctx, []*entry{{kind: kindGap}}); err == nil {
			f.ownID = ""
			entries, newest, err = h.bus.newest(ctx, h.Ring)
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
		h.Log.Info("the live stream is shared through redis again")
	}
	return newest, nil
}

// publishBacklog ends the instance's standing apart when there is nothing that the others have not been told.
func (f *follower) publishBacklog(ctx context.Context) error {
	q := f.hub.queue
	for told := uint64(0); !q.leaveLocal(told); {
		entries := q.peek(told, f.hub.batch)
		owed := len(entries) == 0 && q.claimGap()
		if owed {
			entries = []*entry{{kind: kindGap}}
		}
		if len(entries) == 0 {
			continue
		}
		if err := f.hub.bus.append(ctx, entries); err != nil {
			if owed {
				q.restoreGap()
			}
			return err
		}
		if !owed {
			told = entries[len(entries)-1].n
		}
	}
	return nil
}

// missing reports whether what this instance has read of its own ought to be among entries and is not.
func (f *follower) missing(entries []received) bool {
	if f.ownID == "" || before(f.ownID, entries[0].id) {
		return false
	}
	return !slices.ContainsFunc(entries, func(e received) bool { return e.id == f.ownID })
}

// readNew tells what comes after entry last, until Redis is away or entries are missing.
func (f *follower) readNew(ctx context.Context, last string) error {
	h := f.hub
	for ctx.Err() == nil && !h.queue.localOnly() {
		entries, err := h.bus.readAfter(ctx, last, h.batch)
		if err != nil {
			return err
		}
		f.deliver(entries)
		// What was read last is still there: so nothing after it was dropped before it was read, and this is the stream
		// that it was read from.
		switch there, err := h.bus.contains(ctx, last); {
		case err != nil:
			return err
		case !there:
			return errGap
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1].id
		}
	}
	return nil
}

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
		h.OnWake()
	}
}

// decode returns what streams are told of the entry, or a driver as it has changed, or nothing.
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
		return marker(e.id), nil // where clients are who have heard nothing yet
	}
	return nil, nil
}

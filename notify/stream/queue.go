package stream

import (
	"sync"

	"firsttap/notify/wakeup"
)

// queue holds the entries of this instance until they are delivered; with Redis, until they were read back, so that an
// outage loses none. It is safe for concurrent use.
type queue struct {
	limit int
	ready wakeup.Signal // set when next may have entries

	mu       sync.Mutex // guards what follows
	entries  []*entry   // by n, without holes
	last     uint64     // n of the newest entry ever
	consumed uint64     // n of the newest entry that next has returned
	// gap: an entry was dropped undelivered. remoteGap: one was dropped that only this instance had delivered.
	gap, remoteGap bool
	// local is local-only mode: without Redis, this instance delivers its entries to its own streams.
	local bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: wakeup.New(), local: true}
}

// push never blocks. It returns false if it dropped the entry for lack of room.
func (q *queue) push(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.makeRoom() {
		q.gap = true
		return false
	}
	q.append(e)
	return true
}

// makeRoom drops the oldest entry of a full queue if this instance has delivered it: a gap stands for it elsewhere.
func (q *queue) makeRoom() bool {
	if len(q.entries) < q.limit {
		return true
	}
	if !q.entries[0].delivered {
		return false
	}
	q.entries[0] = nil
	q.entries, q.remoteGap = q.entries[1:], true
	return true
}

func (q *queue) append(e *entry) {
	q.last++
	e.n = q.last
	q.entries = append(q.entries, e)
	q.ready.Set()
}

// next returns up to limit entries that it has not returned yet, and whether the instance is in local-only mode.
func (q *queue) next(limit int) (entries []*entry, local bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gap && q.makeRoom() {
		q.gap = false
		q.append(&entry{kind: kindGap})
	}
	entries = q.after(q.consumed, limit)
	if len(entries) > 0 {
		q.consumed = entries[len(entries)-1].n
	}
	return entries, q.local
}

// after returns a copy of up to limit entries after n.
func (q *queue) after(n uint64, limit int) []*entry {
	if len(q.entries) == 0 {
		return nil
	}
	skip := 0
	if first := q.entries[0].n; n >= first {
		skip = int(min(n-first+1, uint64(len(q.entries))))
	}
	return append([]*entry(nil), q.entries[skip:min(len(q.entries), skip+limit)]...)
}

// peek returns up to limit entries after n, also those that next has returned.
func (q *queue) peek(n uint64, limit int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.after(n, limit)
}

// markDelivered marks entries as delivered on this instance. They stay in the queue for the others.
func (q *queue) markDelivered(entries []*entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		e.delivered = true
	}
}

// confirm drops the entries up to n, which are delivered everywhere.
func (q *queue) confirm(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(n)
}

func (q *queue) drop(n uint64) {
	i := 0
	for i < len(q.entries) && q.entries[i].n <= n {
		q.entries[i] = nil
		i++
	}
	if q.entries = q.entries[i:]; len(q.entries) == 0 {
		q.entries = nil // frees the memory of a burst
	}
	if q.gap {
		q.ready.Set()
	}
}

// enterLocal enters local-only mode, in which next returns every entry of the queue again. It returns false if the
// instance is in that mode already.
func (q *queue) enterLocal() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.local {
		return false
	}
	q.local = true
	if len(q.entries) > 0 {
		q.consumed = q.entries[0].n - 1
	}
	q.ready.Set()
	return true
}

// leaveLocal leaves local-only mode if the bus has every entry: those up to n, and no gap is to be sent.
func (q *queue) leaveLocal(n uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) > 0 && q.last > n || q.remoteGap {
		return false
	}
	q.drop(n)
	q.local, q.consumed = false, q.last
	return true
}

// claimGap returns whether other instances have to be sent a gap, and forgets it: a caller that fails to send it calls
// restoreGap.
func (q *queue) claimGap() (gap bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gap, q.remoteGap = q.remoteGap, false
	return gap
}

func (q *queue) restoreGap() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remoteGap = true
}

func (q *queue) localOnly() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.local
}

package stream

import (
	"sync"

	"firsttap/notify/wakeup"
)

// queue holds what this instance has to tell until it has been told: with Redis, until it has been read back. So what
// was on its way when Redis went is not lost. Safe for concurrent use.
type queue struct {
	limit int
	ready wakeup.Signal // holds a value when next may have something

	mu       sync.Mutex // guards what follows
	entries  []*entry   // by n, without holes
	last     uint64     // n of the newest there ever was
	consumed uint64     // n of the newest that next has returned
	// gap: an entry was dropped before anybody was told. owed: one was that only other instances have not been told of.
	gap, remoteGap bool
	// local: this instance tells its own streams by itself, as Redis is away or there is none.
	local bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: wakeup.New(), local: true}
}

// push never waits. It reports false if there is no room for an entry that nobody has been told of.
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

// makeRoom drops the oldest entry if it must and may: other instances can be told of a gap in its place.
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

// next returns up to limit entries that it has not returned yet, and whether this instance stands apart.
func (q *queue) next(limit int) (entries []*entry, apart bool) {
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

// peek is from, for who sends what next has returned once more.
func (q *queue) peek(n uint64, limit int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.after(n, limit)
}

// markDelivered keeps entries for the other instances, which have yet to hear of them.
func (q *queue) markDelivered(entries []*entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		e.delivered = true
	}
}

// confirm drops the entries up to n.
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
		q.entries = nil // what a burst has taken is given back
	}
	if q.gap {
		q.ready.Set()
	}
}

// enterLocal makes next return again whatever is still here. It reports false if the instance stood apart already.
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

// leaveLocal ends standing apart, if the other instances have been told of everything up to n and there is no more.
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

// claimGap takes over what is owed; the caller owes it again if it fails.
func (q *queue) claimGap() (owed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	owed, q.remoteGap = q.remoteGap, false
	return owed
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

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

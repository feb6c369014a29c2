package repository

import (
	"time"

	"firsttap/dispatch"
)

// commitListeners are who hears at once of what this process has committed.
type commitListeners struct {
	owner  string // leases the outbox rows that are written; "": they are due at once
	lease  time.Duration
	notify []func(dispatch.Dispatch, []dispatch.Event)
}

func (t *commitListeners) committed(d dispatch.Dispatch, events []dispatch.Event) {
	if len(events) == 0 {
		return
	}
	for _, hear := range t.notify {
		hear(d, events)
	}
}

// OnCommit has hear called with every change that this process has committed, after its COMMIT and before the caller
// learns of it; hear must not block. Call it before the Store is used.
func (s *Store) OnCommit(hear func(dispatch.Dispatch, []dispatch.Event)) {
	s.listeners.notify = append(s.listeners.notify, hear)
}

// BornLeased has the outbox rows of what this process commits leased to owner as they are written, who hears of them
// by OnCommit and does them without looking for them. Whatever it does not do is due when the lease ends. Call it
// before the Store is used.
func (s *Store) BornLeased(owner string, lease time.Duration) {
	s.listeners.owner, s.listeners.lease = owner, lease
}

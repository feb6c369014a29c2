package repository

import (
	"time"

	"firsttap/dispatch"
)

// tellers are who hears at once of what this process has committed.
type tellers struct {
	owner string // leases the outbox rows that are written; "": they are due at once
	lease time.Duration
	hear  []func(dispatch.Dispatch, []dispatch.Event)
}

func (t *tellers) committed(d dispatch.Dispatch, events []dispatch.Event) {
	if len(events) == 0 {
		return
	}
	for _, hear := range t.hear {
		hear(d, events)
	}
}

// OnCommit has hear called with every change that this process has committed, after its COMMIT and before the caller
// learns of it; hear must not block. Call it before the Store is used.
func (s *Store) OnCommit(hear func(dispatch.Dispatch, []dispatch.Event)) {
	s.tellers.hear = append(s.tellers.hear, hear)
}

// BornLeased has the outbox rows of what this process commits leased to owner as they are written, who hears of them
// by OnCommit and does them without looking for them. Whatever it does not do is due when the lease ends. Call it
// before the Store is used.
func (s *Store) BornLeased(owner string, lease time.Duration) {
	s.tellers.owner, s.tellers.lease = owner, lease
}

package repository

import (
	"time"

	"firsttap/dispatch"
)

// commitListeners are called with every change that this process commits.
type commitListeners struct {
	owner  string // of the leases of new outbox rows; "" if these are due at once
	lease  time.Duration
	notify []func(dispatch.Dispatch, []dispatch.Event)
}

func (t *commitListeners) committed(d dispatch.Dispatch, events []dispatch.Event) {
	if len(events) == 0 {
		return
	}
	for _, listen := range t.notify {
		listen(d, events)
	}
}

// OnCommit registers listen, which is called with every change of this process after its COMMIT and before the caller gets the
// result. It must not block. Call OnCommit before the Store is used.
func (s *Store) OnCommit(listen func(dispatch.Dispatch, []dispatch.Event)) {
	s.listeners.notify = append(s.listeners.notify, listen)
}

// BornLeased leases new outbox rows of this process to owner as they are written, so that its relay, a commit listener, need
// not poll for them. A row that owner does not complete is due when the lease ends. Call it before the Store is used.
func (s *Store) BornLeased(owner string, lease time.Duration) {
	s.listeners.owner, s.listeners.lease = owner, lease
}

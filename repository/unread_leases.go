package repository

import (
	"context"
	"slices"
	"sync"
	"time"

	"firsttap/dispatch"
)

// unreadLeases are the notifications that this process has leased and then failed to read. Safe for concurrent use.
type unreadLeases struct {
	mu    sync.Mutex
	ids   []dispatch.NotificationID
	since time.Time // when the last of them were added
}

func (u *unreadLeases) add(ids []dispatch.NotificationID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ids, u.since = append(u.ids, ids...), time.Now()
}

// forget takes out those that this process has leased again: a release without an answer may have ended their leases, and the next one would
// end these.
func (u *unreadLeases) forget(ids []dispatch.NotificationID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ids = slices.DeleteFunc(u.ids, func(id dispatch.NotificationID) bool { return slices.Contains(ids, id) })
}

// release ends their leases, so that they are due again before these would end.
func (u *unreadLeases) release(ctx context.Context, o *Outbox) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.since) > o.LeaseTerm {
		u.ids = nil
	}
	if len(u.ids) == 0 {
		return nil
	}
	err := o.relay.WithContext(ctx).Exec(`UPDATE notifications`+o.dialect.forceIndex("PRIMARY")+` SET claim = '', next_at = turn
		WHERE id IN ? AND claim = ? AND state = 0`, u.ids, o.Owner).Error
	if err == nil {
		u.ids = nil
	}
	return unavailable(err)
}

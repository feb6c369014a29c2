package repository

import (
	"fmt"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// commitAsEarlier writes an event as the version does that has an outbox row for each event. The row is leased to owner until then.
func (db *database) commitAsEarlier(t testing.TB, d dispatch.Dispatch, owner string, until time.Time) dispatch.EventID {
	t.Helper()
	id := dispatch.NewEventID(db.now(t))
	db.exec(t, "INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, request_id, at) VALUES (?, ?, ?, 1, 'key_1', '', '', ?)",
		id, d.ID, dispatch.EventCreated, micros(db.now(t)))
	db.exec(t, "INSERT INTO outbox (event_id, state, next_at, claim) VALUES (?, 0, ?, ?)", id, micros(until), owner)
	return id
}

// What an instance of an earlier version commits is expanded by that instance while it lives, and by this version after its lease.
func TestOutboxRowsOfAnEarlierVersion(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.equipped(t, 3)
		d := db.add(t, nil)
		o := db.as("ins_a")
		db.exec(t, "UPDATE events SET next_at = NULL")
		look := func() outbox.Due {
			t.Helper()
			db.looks.latest.Store(nil)
			due, err := o.Due(t.Context())
			must(t, err)
			return due
		}
		now := db.now(t)
		left := db.commitAsEarlier(t, d, "ins_earlier", now.Add(-time.Second))
		leased := db.commitAsEarlier(t, d, "ins_earlier", now.Add(time.Hour))
		if due := look(); due.Events.IsZero() || due.Events.After(time.Now()) {
			t.Errorf("events are due at %v, want them due now", due.Events)
		}
		if got := o.mustLeaseEvents(t, 10, 1); got[0] != left {
			t.Errorf("leased %s, want %s", got[0], left)
		}
		o.mustPush(t, left, 3)
		// The earlier version reads there that the event is committed, and completes no row that it does not lease.
		db.mustCount(t, 1, "outbox WHERE event_id = ? AND state = 1 AND claim = ''", left)
		var expires int64
		must(t, db.raw.QueryRowContext(t.Context(), "SELECT next_at FROM outbox WHERE event_id = ?", left).Scan(&expires))
		db.mustBeAbout(t, "the retention of a moved row", expires, keepDone)
		db.mustCount(t, 1, "outbox WHERE event_id = ? AND state = 0 AND claim = 'ins_earlier'", leased)
		if due := look(); !due.Events.IsZero() {
			t.Errorf("events are due at %v, although another instance leases the only one", due.Events)
		}
		o.mustLeaseEvents(t, 10, 0)

		db.exec(t, "UPDATE outbox SET state = 1, claim = '' WHERE event_id = ?", leased) // it has expanded the event
		look()
		o.mustLeaseEvents(t, 10, 0)

		const many = 2*maxMoved + 1
		for range many {
			db.commitAsEarlier(t, d, "", now)
		}
		look()
		o.mustLeaseEvents(t, 2*many, many)
		db.mustCount(t, 0, fmt.Sprintf("outbox WHERE state = %d", statePending))
	})
}

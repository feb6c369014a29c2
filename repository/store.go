// Package repository keeps dispatches, drivers, claims, events and the outbox in MySQL, MariaDB, TiDB or SQLite.
//
// It owns every transaction. A change and the events to announce are committed together or not at all, and only the
// database's clock decides. It is divided into rooms, each of which owns its tables: see docs/architecture.md.
package repository

import (
	"context"
	"log/slog"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/board"
	"firsttap/repository/database"
	"firsttap/repository/devices"
	"firsttap/repository/dispatches"
	"firsttap/repository/drivers"
	"firsttap/repository/due"
	"firsttap/repository/export"
	"firsttap/repository/journal"
	"firsttap/repository/keys"
	"firsttap/repository/offers"
	"firsttap/repository/poll"
	"firsttap/repository/pushes"
	"firsttap/repository/retention"
	"firsttap/repository/runs"
	"firsttap/repository/topics"
	"firsttap/repository/webhooks"
)

// Store is the database with its rooms. It is safe for concurrent use.
type Store struct {
	*database.DB
	Poll          *poll.Poll
	Journal       *journal.Journal
	Dispatches    *dispatches.Dispatches
	Due           *due.Due
	Offers        *offers.Offers
	Drivers       *drivers.Drivers
	Devices       *devices.Devices
	Topics        *topics.Topics
	Notifications *pushes.Notifications
	Webhooks      *webhooks.Webhooks
	Keys          *keys.Keys
	Runs          *runs.Runs
	Board         *board.Board
	Export        *export.Export
	Cleaner       *retention.Cleaner
}

// Options configure a Store. The zero value announces nothing, and leaves the events
// that it writes to the first relay that polls for them.
type Options struct {
	// OnCommit is called with every change that this process has committed, after its COMMIT and before the caller learns
	// of it. It is called by many goroutines at once and must not block.
	OnCommit func(dispatch.Dispatch, []dispatch.Event)
	// OutboxOwner leases each event for OutboxLease as it is written, so that the relay that hears of it by OnCommit
	// need not poll. Another relay may take the event over when the lease expires. "" writes events that are due at once.
	OutboxOwner string
	OutboxLease time.Duration
	// Retention is how long Prune leaves history; the zero value keeps it for ever.
	Retention retention.Periods
	// Patience, ReplicaURL, Observer, Log and Now are those of the database.
	Patience   time.Duration
	ReplicaURL string
	Observer   database.StatementObserver
	Log        *slog.Logger
	Now        func() time.Time
}

// Open connects to the database that url names, as database.Open does.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	db, err := database.Open(
		ctx, url, database.Options{Patience: o.Patience, ReplicaURL: o.ReplicaURL, Observer: o.Observer, Log: o.Log, Now: o.Now},
	)
	if err != nil {
		return nil, err
	}
	s := &Store{
		DB: db, Poll: poll.New(db), Journal: journal.New(db, o.OutboxOwner, o.OutboxLease),
		Drivers: drivers.New(db), Devices: devices.New(db), Topics: topics.New(db, "", 0),
		Notifications: pushes.NewNotifications(db), Webhooks: webhooks.New(db), Keys: keys.New(db),
		Export: export.New(db), Cleaner: retention.New(db, o.Retention),
	}
	s.Dispatches = dispatches.New(db, s.Journal, o.OnCommit)
	s.Due, s.Offers = due.New(db, s.Poll, s.Dispatches), offers.New(db, s.Dispatches)
	s.Runs = runs.New(db, s.Poll)
	s.Board = board.New(db, s.Runs, o.Retention.Attempts)
	return s, nil
}

// Outbox returns the outbox for one owner.
func (s *Store) Outbox(o pushes.Options) *pushes.Outbox { return pushes.New(s.DB, o) }

// TopicsOf returns the topics for one owner, whose leases last for term.
func (s *Store) TopicsOf(owner string, term time.Duration) *topics.Topics {
	return topics.New(s.DB, owner, term)
}

// WebhookOutbox returns the deliveries for one owner.
func (s *Store) WebhookOutbox(owner string, term time.Duration) *webhooks.Outbox {
	return webhooks.NewOutbox(s.DB, s.Poll, owner, term)
}

package pushes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
)

const (
	// KeepDone is how long finished notifications are kept, keepDead failed ones, which an operator should look at.
	KeepDone = 48 * time.Hour
	keepDead = 30 * 24 * time.Hour
	// KeepSent is how long sent notifications of an offer without an end are kept.
	KeepSent = 90 * 24 * time.Hour
	// maxReason is the length of a notification's reason.
	maxReason = 255
)

// Options are the settings of an Outbox.
type Options struct {
	// Owner identifies the running process: only the owner of a lease may complete the leased rows.
	Owner string
	// LeaseTerm is how long a lease lasts.
	LeaseTerm time.Duration
	// TopicThreshold is how many drivers an offer must have for its end to be sent to a topic instead of each device; 0 for never.
	TopicThreshold int
	// BatchSize bounds the unsent offers that one transaction drops, and the drivers whose devices it notifies; 0 for 1,000.
	// A larger audience is written in several parts, with other events in between.
	BatchSize int
}

const (
	defaultBatch = 1000
	// LargeAudience is the TopicThreshold of the service. A message to a topic is slower than one push each, but it also reaches those
	// whose push is still waiting.
	LargeAudience = 500
)

// Outbox is one process's access to the outbox. It is safe for concurrent use.
//
// An event is its own outbox row: it is expanded into notifications once, and leased until then. A leased row is due at the end of its
// lease, and has the owner in its claim. So one condition and one index find the due rows, and a lease that is not completed ends by
// itself.
type Outbox struct {
	db *database.DB
	Options
}

// New returns the outbox for one owner.
func New(db *database.DB, o Options) *Outbox {
	o.BatchSize = cmp.Or(o.BatchSize, defaultBatch)
	return &Outbox{db: db, Options: o}
}

// LeaseEvents leases up to limit of the due events. ErrUnavailable: none is leased. ErrUnknown: they are leased or not.
func (o *Outbox) LeaseEvents(ctx context.Context, limit int) (events []dispatch.EventID, err error) {
	err = o.db.Work.Transact(ctx, func(tx database.Tx) error {
		events = nil
		err := tx.Raw(`SELECT id FROM events {force ix_events_due}
			WHERE next_at <= {now} ORDER BY next_at, id LIMIT ? {skip_locked}`, limit).Scan(&events).Error
		if err != nil || len(events) == 0 {
			return database.Unavailable(err)
		}
		return database.Unavailable(tx.Exec("UPDATE events {force PRIMARY} SET claim = ?, next_at = {now} + ? WHERE id IN ?",
			o.Owner, o.LeaseTerm.Microseconds(), events).Error)
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

// ReleaseEvents ends the owner's leases of these events, or of all if there are none, so that another process may take them at once.
// ErrUnavailable.
func (o *Outbox) ReleaseEvents(ctx context.Context, events ...dispatch.EventID) error {
	set, args := "UPDATE events SET claim = '', next_at = {now} WHERE claim = ? AND next_at > {now}", []any{o.Owner}
	if len(events) > 0 {
		set, args = set+" AND id IN ?", append(args, events)
	}
	return database.Unavailable(o.db.Work.With(ctx).Exec(set, args...).Error)
}

// RecordResults writes the results of notifications, and completes events that were expanded. It skips what the owner no longer leases.
// All is written, or nothing: ErrUnavailable; ErrUnknown if that is not known.
func (o *Outbox) RecordResults(ctx context.Context, results []outbox.SendResult, expanded []dispatch.EventID) error {
	groups := map[outbox.SendResult][]dispatch.NotificationID{}
	for _, s := range results {
		id := s.ID
		// A reason that does not fit the column would fail the statement, and the notification would be sent again.
		s.ID, s.Reason = "", database.Truncate(s.Reason, maxReason)
		groups[s] = append(groups[s], id)
	}
	events := slices.Sorted(slices.Values(expanded)) // two statements that lock the same rows lock them in the same order
	write := func(db database.Tx) error {
		if len(events) > 0 {
			err := db.Exec(`UPDATE events {force PRIMARY} SET next_at = NULL, claim = ''
				WHERE id IN ? AND next_at IS NOT NULL AND claim = ?`, events, o.Owner).Error
			if err != nil {
				return database.Unavailable(err)
			}
		}
		for s, ids := range groups {
			if err := o.writeResult(db, s, ids); err != nil {
				return err
			}
		}
		return nil
	}
	return database.Retry(ctx, func() error {
		if len(groups) == 0 || len(groups) == 1 && len(events) == 0 { // one statement needs no transaction
			return write(o.db.Work.With(ctx))
		}
		return o.db.Work.TransactOnce(ctx, write)
	})
}

// untilOfferEnds is the SQL for now, or the end of the offer if that is later. An offer may end in a thousand years, so KeepSent bounds it.
var untilOfferEnds = strings.ReplaceAll(`CASE WHEN expires_at > {now} + longest THEN {now} + longest
	WHEN expires_at > {now} THEN expires_at ELSE {now} END`, "longest", strconv.FormatInt(KeepSent.Microseconds(), 10))

// writeResult writes a result that is the same for all of the notifications.
func (o *Outbox) writeResult(db database.Tx, s outbox.SendResult, ids []dispatch.NotificationID) error {
	state, since, wait, set := stateOf(s.Status), "{now}", s.RetryAfter, ""
	switch s.Status {
	case outbox.Sent:
		since, wait, set = untilOfferEnds, KeepDone, ", priority = 0, sent_at = {now}" // the row is needed until the offer is over
	case outbox.Dropped:
		wait, set = KeepDone, ", priority = 0"
	case outbox.Dead:
		wait, set = keepDead, ", priority = 0"
	case outbox.Pending:
		if wait == 0 {
			since = "created_at" // before those that were written later
		}
	default:
		return fmt.Errorf("a notification can't become %q", s.Status)
	}
	args := []any{state, s.Attempts, wait.Microseconds()}
	if s.Status != outbox.Pending || s.Result != "" { // a release keeps the result of the last attempt
		set, args = set+", result = ?, reason = ?", append(args, s.Result, s.Reason)
	}
	return database.Unavailable(db.Exec(`UPDATE notifications {force PRIMARY} SET state = ?, claim = '', attempts = ?,
		due_at = `+since+` + ?`+set+` WHERE id IN ? AND claim = ? AND state = 0`, append(args, ids, o.Owner)...).Error)
}

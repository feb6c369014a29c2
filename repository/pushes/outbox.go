package pushes

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/poll"
)

// NotificationRow is a row of the table notifications.
type NotificationRow struct {
	ID         dispatch.NotificationID `gorm:"primaryKey"`
	EventID    dispatch.EventID
	DeviceID   dispatch.DeviceID
	Topic      string
	DriverID   dispatch.DriverID
	DispatchID dispatch.ID
	Round      int
	Type       dispatch.EventType
	Silent     bool
	State      int
	Priority   outbox.Priority
	DueAt      int64
	Claim      string
	Attempts   int
	Result     string
	Reason     string
	At         int64
	ExpiresAt  int64
	CreatedAt  int64 `gorm:"autoCreateTime:false"`
	SentAt     *int64
}

// TableName implements gorm.Tabler.
func (NotificationRow) TableName() string { return "notifications" }

// The states of a notification. A topic has the first two.
const (
	StatePending = iota
	StateDone
	StateDead
	StateDropped
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
	// TopicThreshold is the audience size from which the end of an offer is sent to a topic instead of each device; 0 for never.
	TopicThreshold int
	// BatchSize bounds the unsent offers that one transaction drops, and the drivers whose devices it notifies; 0 for 1,000.
	// A larger audience is written in several parts, with other events in between.
	BatchSize int
}

const (
	defaultPart = 1000
	// LargeAudience is the TopicThreshold of the service, in devices. A message to a topic is slower than one push each, but it
	// also reaches those whose push is still waiting.
	LargeAudience = 500
)

// Outbox is one process's access to the outbox. It is safe for concurrent use.
//
// An event is its own outbox row: it is expanded into notifications once, and leased until then. A leased row is due at the end of its
// lease, and has the owner in its claim. So one condition and one index find the due rows, and a lease that is not completed ends by
// itself.
type Outbox struct {
	db   *database.DB
	poll *poll.Poll
	Options
}

// New returns the outbox for one owner.
func New(db *database.DB, p *poll.Poll, o Options) *Outbox {
	o.BatchSize = cmp.Or(o.BatchSize, defaultPart)
	return &Outbox{db: db, poll: p, Options: o}
}

// Due returns when the relay has to lease rows next, as known a second ago at most while the scheduler runs. ErrUnavailable.
func (o *Outbox) Due(ctx context.Context) (outbox.Due, error) {
	w, err := o.poll.Waiting(ctx, poll.MaxAge, nil)
	if err != nil {
		return outbox.Due{}, err
	}
	return outbox.Due{ReadAt: w.ReadAt, Events: w.Local(w.Events), Notifications: w.Local(w.Notifications), Topics: w.Local(w.Topics)}, nil
}

// pushes reads the leased notifications, their devices and dispatches as they are now, and the database's time.
func (o *Outbox) pushes(db database.Tx, ids []dispatch.NotificationID, leased time.Time) ([]outbox.Push, time.Time, error) {
	pushes, now, err := o.pushesWithoutDispatch(db, ids, leased)
	if err != nil {
		return nil, now, database.Unavailable(err)
	}
	var names []dispatch.ID
	about := map[dispatch.ID]dispatch.Dispatch{}
	for i := range pushes {
		id := pushes[i].Dispatch.ID
		if _, ok := about[id]; !ok {
			about[id] = dispatch.Dispatch{}
			names = append(names, id)
		}
	}
	var found []dispatches.TimedRow
	err = db.Raw(`SELECT d.*, {now} now FROM dispatches d WHERE id IN ?`, names).Scan(&found).Error
	if err != nil {
		return nil, now, database.Unavailable(err)
	}
	for i := range found {
		about[found[i].Row.ID] = found[i].Row.At(database.Time(found[i].Now))
	}
	for i := range pushes {
		pushes[i].Refresh(about[pushes[i].Dispatch.ID])
	}
	return pushes, now, nil
}

// pushesWithoutDispatch returns pushes that have only the identifier of their dispatch. It scans the columns itself, as
// GORM's reflection costs processor time, and every push that its expansion does not lease passes here.
func (o *Outbox) pushesWithoutDispatch(
	db database.Tx, ids []dispatch.NotificationID, leased time.Time,
) (pushes []outbox.Push, now time.Time, err error) {
	rows, err := db.Raw(
		`SELECT n.id, n.event_id, n.dispatch_id, n.round, n.type, n.silent, n.topic, n.attempts, n.result <> '', n.at, n.expires_at,
		n.driver_id, n.device_id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale, ''), dv.quarantined_at IS NOT NULL,
		dv.good_at, dv.suspected_at, {now}, COALESCE(n.type IN `+OfferTypes+` AND (v.on_duty = 0 OR v.suspended_until > {now} OR EXISTS (
			SELECT 1 FROM offers f WHERE f.dispatch_id = n.dispatch_id AND f.round = n.round AND f.driver_id = n.driver_id
			AND f.declined_at IS NOT NULL)), 0)
		FROM notifications n LEFT JOIN devices dv ON dv.id = n.device_id AND dv.driver_id = n.driver_id
		LEFT JOIN drivers v ON v.id = n.driver_id
		WHERE n.id IN ? ORDER BY n.priority, n.id`,
		ids,
	).Rows()
	if err != nil {
		return nil, now, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	pushes = make([]outbox.Push, 0, len(ids))
	for rows.Next() {
		p, d := outbox.Push{LeasedUntil: leased, ReadAt: time.Now()}, dispatch.Device{}
		var at, until, read int64
		var platform, token sql.NullString
		var dead bool
		var good, suspect *int64
		err := rows.Scan(
			&p.ID, &p.Event, &p.Dispatch.ID, &p.Round, &p.Type, &p.Silent, &p.Topic, &p.Attempts, &p.Tried, &at, &until, &p.Driver, &d.ID,
			&platform, &token, &d.Locale, &dead, &good, &suspect, &read, &p.Unwanted,
		)
		if err != nil {
			return nil, now, err
		}
		now, p.EventAt, p.UsefulUntil = database.Time(read), database.Time(at), database.Time(until)
		if token.Valid && !dead {
			d.Driver, d.Platform, d.PushToken = p.Driver, dispatch.Platform(platform.String), token.String
			d.PushAcceptedAt, d.SuspectedAt = database.LocalTime(good, read), database.LocalTime(suspect, read)
			p.Device = d
		}
		pushes = append(pushes, p)
	}
	return pushes, now, rows.Err()
}

// dropObsolete drops the obsolete pushes, and returns the rest.
func (o *Outbox) dropObsolete(
	ctx context.Context, leased []outbox.Push, now time.Time,
) (pushes []outbox.Push, dropped map[string]int, err error) {
	var results []outbox.SendResult
	dropped = map[string]int{}
	for i := range leased {
		p := &leased[i]
		why := ""
		switch {
		case p.Dispatch.Superseded(p.Type, p.Silent, p.Driver, p.Round):
			why = "superseded"
		case !now.Before(p.UsefulUntil):
			why = "too_late"
		case p.Unwanted:
			why = "unwanted"
		case p.Topic == "" && p.Device.PushToken == "":
			why = "no_device"
		}
		if why == "" {
			pushes = append(pushes, *p)
			continue
		}
		dropped[why]++
		results = append(results, outbox.SendResult{
			ID: p.ID, Status: outbox.Dropped, Attempts: p.Attempts, Result: why,
		})
	}
	return pushes, dropped, o.RecordResults(ctx, results)
}

// RecordResults writes the results of notifications that the owner leases. It skips those that the owner no longer leases.
func (o *Outbox) RecordResults(ctx context.Context, results []outbox.SendResult) error {
	if len(results) == 0 {
		return nil
	}
	groups := map[outbox.SendResult][]dispatch.NotificationID{}
	for _, s := range results {
		id := s.ID
		// A reason that does not fit the column would fail the statement, and the notification would be sent again.
		s.ID, s.Reason = "", database.Truncate(s.Reason, maxReason)
		groups[s] = append(groups[s], id)
	}
	write := func(db database.Tx) error {
		for s, ids := range groups {
			if err := o.writeResult(db, s, ids); err != nil {
				return err
			}
		}
		return nil
	}
	return database.Retry(ctx, func() error {
		if len(groups) == 1 {
			return write(o.db.Work.With(ctx))
		}
		return o.db.Work.TransactOnce(ctx, write)
	})
}

func (o *Outbox) writeResult(db database.Tx, s outbox.SendResult, ids []dispatch.NotificationID) error {
	next, sent, state := "{now} + ?", "sent_at", StatePending
	wait := s.RetryAfter
	switch s.Status {
	case outbox.Sent:
		state, sent, wait = StateDone, "{now}", KeepDone
	case outbox.Dropped:
		state, wait = StateDropped, KeepDone
	case outbox.Dead:
		state, wait = StateDead, keepDead
	case outbox.Pending:
		if s.RetryAfter == 0 {
			next = "created_at + ?" // before those that were written later
		}
	default:
		return fmt.Errorf("a notification can't become %q", s.Status)
	}
	if s.Status == outbox.Sent {
		// The row is needed until the offer is over. An offer may end in a thousand years, so keepSent bounds that.
		next = strings.ReplaceAll(`CASE WHEN expires_at > {now} + longest THEN {now} + longest
			WHEN expires_at > {now} THEN expires_at ELSE {now} END + ?`, "longest", strconv.FormatInt(KeepSent.Microseconds(), 10))
	}
	told, args := "", []any{state, s.Attempts}
	if s.Status != outbox.Pending {
		told = " priority = 0,"
	}
	if s.Status != outbox.Pending || s.Result != "" { // a release keeps the result of the last attempt
		told, args = told+" result = ?, reason = ?,", append(args, s.Result, s.Reason)
	}
	err := db.Exec(`UPDATE notifications {force PRIMARY} SET state = ?, claim = '', attempts = ?,`+told+`
		sent_at = `+sent+`, due_at = `+next+` WHERE id IN ? AND claim = ? AND state = 0`,
		append(args, wait.Microseconds(), ids, o.Owner)...).Error
	return database.Unavailable(err)
}

// ReleaseEvents ends the owner's leases of events, so that another process may take these at once.
func (o *Outbox) ReleaseEvents(ctx context.Context) error {
	return database.Unavailable(o.db.Work.With(ctx).Exec(`UPDATE events SET claim = '', next_at = {now}
		WHERE claim = ? AND next_at > {now}`, o.Owner).Error)
}

// Backlog returns how many notifications are due and not leased, and for how long the oldest has been due.
func (o *Outbox) Backlog(ctx context.Context) (due int, oldest time.Duration, err error) {
	var row struct {
		Due   int
		First dispatch.NotificationID // the one that was written first
		Since int64                   // the earliest due_at
		Now   int64
	}
	err = o.db.Work.With(ctx).Raw(`SELECT COUNT(*) due, COALESCE(MIN(id), '') first, COALESCE(MIN(due_at), {now}) since, {now} now
		FROM notifications WHERE state = 0 AND due_at <= {now}`).Scan(&row).Error
	if err != nil {
		return 0, 0, database.Unavailable(err)
	}
	since := database.Time(row.Since)
	if made, ok := row.First.MadeAt(); ok && made.After(since) {
		since = made // the due_at may be that of others who waited then
	}
	return row.Due, database.Time(row.Now).Sub(since), nil
}

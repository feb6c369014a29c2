package pushes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
	"firsttap/repository/topics"
)

// Expand writes a notification for each device that one of the events concerns. It leases up to take of the notifications to the owner and
// returns them ready to send; the others are due at once. It skips events that the owner does not lease.
//
// The owner still leases an event that was expanded, and has to complete it by RecordResults. Nobody waits for that: if the process dies
// before, the event is expanded again, and each device has its notification already. For a large audience one part is written: More says
// that the event has to be expanded again. What takes long ends the call, so that its pushes can be sent: the events behind it are
// the Rest.
//
// An event whose expansion failed is not in the result, and can be expanded again. ErrUnavailable and ErrUnknown.
func (o *Outbox) Expand(ctx context.Context, events []dispatch.EventID, take int) (x outbox.Expansion, err error) {
	loaded, err := o.load(ctx, events)
	if err != nil {
		return x, err
	}
	for i, e := range loaded {
		again := false
		failed := database.Retry(ctx, func() error {
			if again { // a concurrent expansion may have written some of its notifications
				reloaded, err := o.load(ctx, []dispatch.EventID{e.event.ID})
				if err != nil {
					return err
				}
				if len(reloaded) == 0 {
					return dispatch.ErrNotLeased
				}
				e = reloaded[0]
			}
			again, e.take, e.spare = true, take, len(loaded)-1-i
			return e.run(ctx)
		})
		switch {
		case errors.Is(failed, dispatch.ErrNotLeased):
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", e.event.ID, failed))
		default:
			take -= len(e.pushes)
			x.Events = append(x.Events, outbox.Expanded{Event: e.event, Dispatch: e.dispatch, More: e.more})
			x.Pushes, x.Unleased, x.Dropped = append(x.Pushes, e.pushes...), x.Unleased+e.unleased, x.Dropped+e.dropped
		}
		if e.takesLong() {
			for _, behind := range loaded[i+1:] {
				x.Rest = append(x.Rest, behind.event.ID)
			}
			break
		}
	}
	if len(x.Pushes) > 0 {
		o.dropOvertaken(ctx, &x, loaded[0].now)
	}
	return x, err
}

// dropOvertaken drops the pushes that a change of their dispatch has made obsolete meanwhile. The expansion of that change's event may have
// run before these notifications were committed: it could not see them, so they are checked again here. If that fails, the pushes count as
// read long ago, so the relay releases them, and they are checked when they are leased again.
func (o *Outbox) dropOvertaken(ctx context.Context, x *outbox.Expansion, now time.Time) {
	if err := refresh(o.db.Work.With(ctx), x.Pushes); err != nil {
		return
	}
	leased := len(x.Pushes)
	x.Pushes, _, _ = o.dropObsolete(ctx, x.Pushes, now) // after an error they are dropped when their leases have ended
	x.Dropped += leased - len(x.Pushes)
}

// expansion is the expansion of one event, or of a part of it. All that it writes is planned first, by reads without locks: what takes one
// statement needs no transaction then.
type expansion struct {
	*Outbox
	event       dispatch.Event
	dispatch    dispatch.Dispatch
	now         time.Time // the database's, when the event was read
	leasedUntil time.Time // by this process's clock
	// take is how many notifications may still be leased. As many as spare are left to the claimants of the events behind it.
	take, spare int
	// begun: an earlier part, or an earlier owner, may have written notifications of the event.
	begun bool
	// nobody: there is no device to notify and nothing to drop.
	nobody bool
	// topic: the dispatch has a topic. open: the topic has not ended. told: it was sent the event's message.
	topic, open, told bool
	// refused are the drivers of an AudienceEligible who are not alerted again; nil before loadRefused.
	refused map[dispatch.DriverID]bool
	// walk is where the walk through a large audience is; nil for a small one.
	walk *WalkRow
	// due is when the next notification for an audience is due, in microseconds.
	due int64

	// The plan: rows to insert, offers to drop, and devices to subscribe to the topic.
	rows        []any
	obsolete    []dispatch.NotificationID
	subscribers []dispatch.Device
	more        bool
	// What the caller learns of it.
	pushes            []outbox.Push
	unleased, dropped int
}

// load reads those of the events that the owner leases, with all that decides what is to be done for them, in one statement.
func (o *Outbox) load(ctx context.Context, events []dispatch.EventID) ([]*expansion, error) {
	leased := time.Now().Add(o.LeaseTerm) // taken before the statement, so that the leases of notifications end no earlier
	var rows []struct {
		Event                     journal.EventRow    `gorm:"embedded;embeddedPrefix:event_"`
		Dispatch                  dispatches.TimedRow `gorm:"embedded"`
		Walk                      WalkRow             `gorm:"embedded;embeddedPrefix:walk_"`
		Offer, Ends               *int64
		TopicEnded                *bool // NULL without a topic
		Begun, Told, Offered, Own bool
	}
	// With EXISTS or an inner join, an optimizer may read a whole table once instead of one row for each event.
	err := o.db.Work.With(ctx).Raw(`SELECT d.*, {now} now, `+journal.EventColumns+`,
		x.event_id walk_event_id, x.leg walk_leg, x.start walk_start, x.position walk_position, x.large walk_large, x.due_at walk_due_at,
		`+firstDue+` offer, `+firstDue+` ends,
		(SELECT 1 FROM notifications n WHERE n.event_id = e.id LIMIT 1) IS NOT NULL begun,
		(SELECT t.ended FROM topics t WHERE t.name = CONCAT('dispatch-', e.dispatch_id)) topic_ended,
		(SELECT 1 FROM notifications n WHERE n.event_id = e.id AND n.device_id = '' LIMIT 1) IS NOT NULL told,
		(SELECT 1 FROM notifications n WHERE n.dispatch_id = e.dispatch_id LIMIT 1) IS NOT NULL offered,
		(SELECT 1 FROM devices dv WHERE dv.driver_id = e.driver_id AND dv.quarantined_at IS NULL LIMIT 1) IS NOT NULL own
		FROM events e {force PRIMARY} LEFT JOIN dispatches d {force PRIMARY} ON d.id = e.dispatch_id
		LEFT JOIN expansions x {force PRIMARY} ON x.event_id = e.id
		WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ? ORDER BY e.id`,
		outbox.PriorityOffer, outbox.PriorityOfferEnd, events, o.Owner).Scan(&rows).Error
	if err != nil {
		return nil, database.Unavailable(err)
	}
	loaded := make([]*expansion, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		if row.Dispatch.Row.ID == "" {
			continue // the dispatch was removed
		}
		e := &expansion{
			Outbox: o, event: row.Event.Event(), now: database.Time(row.Dispatch.Now), leasedUntil: leased, begun: row.Begun,
			topic: row.TopicEnded != nil, open: row.TopicEnded != nil && !*row.TopicEnded, told: row.Told,
		}
		e.dispatch = row.Dispatch.Row.At(e.now)
		e.due = dueAfter(e.now, row.Ends)
		if e.offers() {
			e.due = dueAfter(e.now, row.Offer)
		} else {
			e.nobody = !row.Offered && !e.open && !row.Own
		}
		if row.Walk.EventID != "" {
			e.begun, e.walk, e.due = true, &row.Walk, max(e.due, row.Walk.DueAt)
		}
		loaded = append(loaded, e)
	}
	return loaded, nil
}

// offers reports whether the event offers the dispatch; every other one ends offers, or leaves them as they are.
func (e *expansion) offers() bool {
	return e.event.Type == dispatch.EventCreated || e.event.Type.IsOffer()
}

// run plans the expansion, and writes it.
func (e *expansion) run(ctx context.Context) error {
	if e.nobody {
		return nil
	}
	if err := e.plan(e.db.Work.With(ctx)); err != nil {
		return database.Unavailable(err)
	}
	return e.write(ctx)
}

// plan notifies the claimant first: the other audience may be large.
func (e *expansion) plan(db database.Tx) error {
	deliveries := e.event.Deliveries()
	if len(deliveries) > 0 && deliveries[0].Audience == dispatch.AudienceClaimant {
		if e.walk == nil { // an earlier part of a walk has done it
			if err := e.notify(db, deliveries[0]); err != nil {
				return err
			}
		}
		deliveries = deliveries[1:]
	}
	if !e.offers() {
		if err := e.findObsolete(db); err != nil || e.more {
			return err
		}
	}
	for _, t := range deliveries {
		if err := e.notify(db, t); err != nil {
			return err
		}
	}
	return nil
}

// notify plans the notifications of a delivery, or of its next part if the audience is large.
func (e *expansion) notify(db database.Tx, t dispatch.Delivery) error {
	if e.dispatch.Superseded(t.Type, t.Silent, e.event.Driver, e.event.Round) {
		e.dropped++
		return nil
	}
	audience, err := e.audience(db, t)
	if err != nil {
		return err
	}
	large := e.TopicThreshold > 0 && audience.drivers >= e.TopicThreshold
	if e.walk != nil {
		large = e.walk.Large
	}
	until := e.dispatch.DeliverUntil(t, e.event.At)
	same := []any{
		e.event.ID, e.dispatch.ID, e.event.Round, t.Type, t.Silent, outbox.PriorityOf(t.Type, t.Silent),
		database.Micros(e.event.At), database.Micros(until), database.Micros(e.now),
	}
	e.rows = slices.Grow(e.rows, (len(audience.recipients)+1)*notificationColumns)
	if !e.told && slices.ContainsFunc(audience.recipients, func(r recipient) bool { return r.subscribed }) {
		e.told = true
		e.add(t, recipient{topic: outbox.TopicOf(e.dispatch.ID)}, until, same)
	}
	for _, r := range audience.recipients {
		if large && t.Audience == dispatch.AudienceEligible {
			e.subscribers = append(e.subscribers, r.device)
		}
		if !r.subscribed || r.delay > 0 { // the topic's message may arrive before an offer that is under way
			e.add(t, r, until, same)
		}
	}
	return nil
}

// findObsolete finds unsent offers of a round that is over, at most BatchSize.
func (e *expansion) findObsolete(db database.Tx) error {
	if !e.roundIsOver() {
		return nil
	}
	// Without the index's name MariaDB may look at all rows that are due, to filter those of the dispatch by them.
	err := db.Raw(`SELECT id FROM notifications {force ix_notifications_driver}
		WHERE dispatch_id = ? AND round <= ? AND type IN `+OfferTypes+` AND state = 0 AND claim = '' LIMIT ?`,
		e.dispatch.ID, e.event.Round, e.BatchSize).Scan(&e.obsolete).Error
	e.more = len(e.obsolete) == e.BatchSize
	return err
}

// roundIsOver reports whether nobody can accept the event's round any more.
func (e *expansion) roundIsOver() bool {
	return e.dispatch.Superseded(dispatch.EventOpened, false, "", e.event.Round)
}

// add plans the notification of a recipient, which is useful until a time. same are the columns that are so for all of the delivery.
func (e *expansion) add(t dispatch.Delivery, r recipient, until time.Time, same []any) {
	ev, d := &e.event, &e.dispatch
	id, claim := dispatch.NewNotificationID(e.now), ""
	due := database.Micros(e.now) // of what is sent to the claimant: this is little
	if t.Audience != dispatch.AudienceClaimant {
		due = e.due + int64(len(e.rows)/notificationColumns/dueBatch)*dueGap.Microseconds()
	}
	switch {
	case r.delay > 0:
		due = database.Micros(e.now.Add(r.delay))
		e.unleased++
	case e.take > e.spare || e.take > 0 && t.Audience == dispatch.AudienceClaimant:
		e.take--
		due, claim = database.Micros(e.now.Add(e.LeaseTerm)), e.Owner
		e.pushes = append(e.pushes, outbox.Push{
			ID: id, Event: ev.ID, Type: t.Type, Silent: t.Silent, Round: ev.Round, Dispatch: *d, Driver: r.device.Driver,
			Device: r.device, Topic: r.topic, EventAt: ev.At, UsefulUntil: until, LeasedUntil: e.leasedUntil,
		})
	default:
		e.unleased++
	}
	e.rows = append(append(e.rows, id, r.device.ID, r.topic, r.device.Driver, due, claim), same...)
}

// notificationColumns is the number of a new notification's columns without the constant ones.
const notificationColumns = 15

// valuesPerStatement bounds one INSERT of notifications.
const valuesPerStatement = notificationColumns * database.RowsPerStatement

// isLarge reports whether more is written than the notifications that one statement takes.
func (e *expansion) isLarge() bool {
	return e.walk != nil || len(e.obsolete)+len(e.subscribers) > 0 || len(e.rows) > valuesPerStatement
}

// takesLong reports whether so much is written that the events behind it go into another call.
func (e *expansion) takesLong() bool {
	return e.walk != nil || len(e.obsolete)+len(e.rows)/notificationColumns > dueBatch
}

// write writes what is planned: nothing, one INSERT, or a transaction that renews the event's lease. ErrNotLeased if the owner has lost the
// lease. A lone INSERT fails then too, at the unique key, if the next owner has written the notifications.
func (e *expansion) write(ctx context.Context) error {
	ends := e.open && !e.offers() && e.roundIsOver() && e.dispatch.Status != dispatch.Pending && e.dispatch.Status != dispatch.Scheduled
	if !e.isLarge() && !ends {
		return database.Unavailable(insert(e.db.Work.With(ctx), e.rows))
	}
	return e.db.Work.TransactOnce(ctx, func(tx database.Tx) error {
		err := database.RequireOwned(tx.Exec("UPDATE events SET next_at = {now} + ? WHERE id = ? AND next_at IS NOT NULL AND claim = ?",
			e.LeaseTerm.Microseconds(), e.event.ID, e.Owner))
		if err != nil {
			return err
		}
		for rows := range slices.Chunk(e.rows, valuesPerStatement) {
			if err := insert(tx, rows); err != nil {
				return database.Unavailable(err)
			}
		}
		if len(e.obsolete) > 0 {
			done := tx.Exec(`UPDATE notifications {force PRIMARY} SET state = ?, priority = 0, result = 'superseded', due_at = ?
				WHERE id IN ? AND state = 0 AND claim = ''`, StateDropped, database.Micros(e.now.Add(KeepDone)), e.obsolete)
			if done.Error != nil {
				return database.Unavailable(done.Error)
			}
			if int(done.RowsAffected) < len(e.obsolete) {
				return database.ErrConflict // a lease that was under way has some: who gets that offer has to hear of its end
			}
			e.dropped += len(e.obsolete)
		}
		if ends {
			if err := topics.Close(tx, outbox.TopicOf(e.dispatch.ID)); err != nil {
				return database.Unavailable(err)
			}
		}
		if len(e.subscribers) > 0 {
			// The offers are sent before the subscriptions.
			if err := topics.Add(tx, outbox.TopicOf(e.dispatch.ID), e.subscribers, e.now.Add(inFlightTime)); err != nil {
				return database.Unavailable(err)
			}
		}
		return database.Unavailable(e.saveWalk(tx))
	})
}

// insert writes notifications, with the values of their columns one after the other.
func insert(db database.Tx, rows []any) error {
	if len(rows) == 0 {
		return nil
	}
	values := database.Placeholders(len(rows)/notificationColumns, notificationColumns)
	return db.Exec(`INSERT INTO notifications (id, device_id, topic, driver_id, due_at, claim, event_id, dispatch_id, round, type, silent,
		priority, at, expires_at, created_at, state, attempts, result, reason) VALUES `+
		strings.ReplaceAll(values, "?)", "?, 0, 0, '', '')"), rows...).Error
}

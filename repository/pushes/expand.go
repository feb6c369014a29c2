package pushes

import (
	"context"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/journal"
	"firsttap/repository/topics"
)

// Expand writes a notification for each device that an event of the owner's concerns, and completes the event. It leases up to take
// notifications to the owner and returns them ready to send; the others are due at once.
// For a large audience it writes one part only: More means that the owner still leases the event and must expand it again. After the
// expansion of an offer to few drivers, Open means that the owner still leases the event and has to complete it.
//
// ErrNotLeased: the owner does not lease the event, and nothing was written. ErrUnavailable and ErrUnknown: the event is expanded, or will
// be after its lease has ended.
func (o *Outbox) Expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	var result outbox.Expansion
	err := database.Retry(ctx, func() (err error) {
		result, err = o.expand(ctx, event, take)
		return err
	})
	return result, err
}

func (o *Outbox) expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	var result outbox.Expansion
	e := expansion{
		Outbox: o, tx: o.db.Work.With(ctx), leasedUntil: time.Now().Add(o.LeaseTerm), result: &result,
		part: max(o.BatchSize, o.TopicThreshold),
	}
	if err := e.load(event); err != nil {
		return result, err
	}
	switch done, err := e.offerToFew(&take); {
	case err != nil:
		return outbox.Expansion{}, err
	case done:
		return o.dropOvertaken(ctx, result), nil
	}
	err := o.db.Work.TransactOnce(ctx, func(tx database.Tx) error {
		if err := o.completeEvent(tx, event); err != nil {
			return err
		}
		e.tx = tx
		if err := e.run(take); err != nil {
			return database.Unavailable(err)
		}
		if result.More {
			return o.renewEvent(tx, event)
		}
		return nil
	})
	if err != nil {
		return outbox.Expansion{}, err
	}
	return o.dropOvertaken(ctx, result), nil
}

// dropOvertaken drops the pushes that a change of the dispatch has made obsolete meanwhile. The expansion of that change's event
// may have run before these notifications were committed: it could not see them, so they are checked again here. If that fails, the pushes
// count as read long ago, so the relay releases them, and they are checked when they are leased again.
func (o *Outbox) dropOvertaken(ctx context.Context, result outbox.Expansion) outbox.Expansion {
	if len(result.Pushes) == 0 {
		return result
	}
	d, now, err := dispatches.Find(o.db.Work.With(ctx), result.Dispatch.ID)
	if err != nil {
		for i := range result.Pushes {
			result.Pushes[i].ReadAt = time.Time{}
		}
		return result
	}
	for i := range result.Pushes {
		result.Pushes[i].Refresh(d)
	}
	leased := result.Pushes
	result.Pushes, _, _ = o.dropObsolete(ctx, leased, now) // after an error they are dropped when their leases have ended
	result.Dropped += len(leased) - len(result.Pushes)
	return result
}

// completeEvent marks an event as expanded. ErrNotLeased if the owner does not lease it.
func (o *Outbox) completeEvent(tx database.Tx, event dispatch.EventID) error {
	done := tx.Exec("UPDATE events SET next_at = NULL, claim = '' WHERE id = ? AND next_at IS NOT NULL AND claim = ?", event, o.Owner)
	if done.Error != nil {
		return database.Unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

// renewEvent leases a completed event to the owner again, for its next part.
func (o *Outbox) renewEvent(tx database.Tx, event dispatch.EventID) error {
	return database.Unavailable(tx.Exec("UPDATE events SET claim = ?, next_at = {now} + ? WHERE id = ?",
		o.Owner, o.LeaseTerm.Microseconds(), event).Error)
}

// expansion writes one event's notifications, or a part of them.
type expansion struct {
	*Outbox
	tx          database.Tx
	now         time.Time
	leasedUntil time.Time
	result      *outbox.Expansion
	// refused are the drivers of an AudienceEligible who are not alerted again; nil before loadRefused.
	refused map[dispatch.DriverID]bool
	// begun: an earlier part, or an earlier owner, may have written notifications of the event.
	begun bool
	// walk is where the walk through a large audience is; nil for a small one.
	walk *WalkRow
	// part is the largest number of drivers whose devices are notified in one transaction. An audience of more is large enough for a topic.
	part int
	// due is when the event's next notification of each priority is due, in microseconds.
	due [outbox.PriorityCount]int64
}

// load reads the event, its dispatch, what is due first, and the event's earlier parts.
func (e *expansion) load(id dispatch.EventID) error {
	var rows []struct {
		Event       journal.EventRow    `gorm:"embedded;embeddedPrefix:event_"`
		Dispatch    dispatches.TimedRow `gorm:"embedded"`
		Offer, Ends *int64
		Begun       bool
	}
	err := e.tx.Raw(`SELECT d.*, {now} now, `+journal.EventColumns+`,
		(`+e.firstDue(outbox.PriorityOffer)+`) offer, (`+e.firstDue(outbox.PriorityOfferEnd)+`) ends,
		(EXISTS (SELECT 1 FROM notifications n WHERE n.event_id = e.id) OR EXISTS (SELECT 1 FROM expansions x WHERE x.event_id = e.id)) begun
		FROM events e JOIN dispatches d ON d.id = e.dispatch_id
		WHERE e.id = ? AND e.next_at IS NOT NULL AND e.claim = ?`, id, e.Owner).Scan(&rows).Error
	if err != nil {
		return database.Unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.ErrNotLeased
	}
	row := &rows[0]
	e.now = database.Time(row.Dispatch.Now)
	e.result.Event, e.result.Dispatch = row.Event.Event(), row.Dispatch.Row.At(e.now)
	e.due[outbox.PriorityOffer] = dueAfter(e.now, row.Offer)
	e.due[outbox.PriorityJob] = database.Micros(e.now) // these are few
	e.due[outbox.PriorityOfferEnd] = dueAfter(e.now, row.Ends)
	if e.begun = row.Begun; !e.begun {
		return nil
	}
	return database.Unavailable(e.loadWalk())
}

// maxFew is how many drivers are few.
const maxFew = 64

// offerToFew writes the notifications of an offer to few drivers, and leaves the event to be completed later, with others. Nobody waits
// for more than one durable statement then. If the process dies before the completion, the event is expanded again, and each device has
// its notification already. It returns false, and has written nothing, if the event is another.
func (e *expansion) offerToFew(take *int) (done bool, err error) {
	ev, d := &e.result.Event, &e.result.Dispatch
	if e.begun || ev.Type != dispatch.EventCreated && !ev.Type.IsOffer() || len(ev.Deliveries()) == 0 {
		return false, nil
	}
	t, few := ev.Deliveries()[0], min(maxFew, e.part)
	if d.Superseded(t.Type, t.Silent, ev.Driver, ev.Round) {
		return false, nil
	}
	p, err := e.read(t, nil, few+1)
	if err != nil || p.drivers > few || e.TopicThreshold > 0 && p.size >= e.TopicThreshold {
		return false, err
	}
	e.result.Open = true
	return true, database.Unavailable(e.insertAll(t, p.devices, take))
}

// run notifies the claimant first: the other audiences may be large.
func (e *expansion) run(take int) error {
	ev := &e.result.Event
	deliveries := ev.Deliveries()
	i := 0
	for ; i < len(deliveries) && deliveries[i].Audience == dispatch.AudienceClaimant; i++ {
		if err := e.notifyAudience(i, deliveries[i], &take); err != nil {
			return err
		}
	}
	if !ev.Type.IsOffer() && ev.Type != dispatch.EventCreated {
		if err := e.dropPendingOffers(); err != nil {
			return err
		}
	}
	for ; i < len(deliveries) && !e.result.More; i++ {
		if err := e.notifyAudience(i, deliveries[i], &take); err != nil {
			return err
		}
	}
	return e.saveWalk()
}

// notifyAudience writes the notifications of the i-th delivery, or of its next part if the audience is large.
func (e *expansion) notifyAudience(i int, t dispatch.Delivery, take *int) error {
	ev, d := &e.result.Event, &e.result.Dispatch
	if e.walk != nil && i < e.walk.Delivery {
		return nil // an earlier part did it
	}
	if d.Superseded(t.Type, t.Silent, ev.Driver, ev.Round) {
		e.result.Dropped++
		return nil
	}
	first := e.walk == nil
	p, more, err := e.audience(i, t)
	if err != nil {
		return err
	}
	audience := p.devices
	large := e.TopicThreshold > 0 && p.size >= e.TopicThreshold // with the winner's devices: they are subscribed too
	if e.walk != nil {
		large = e.TopicThreshold > 0 && e.walk.Large
	}
	if t.Audience == dispatch.AudienceOffered {
		audience = slices.DeleteFunc(audience, func(r recipient) bool { return r.device.Driver == ev.Driver })
	}
	if large && t.Audience == dispatch.AudienceOffered {
		if audience, err = e.replaceByTopic(audience, first); err != nil {
			return err
		}
	}
	if large && t.Audience == dispatch.AudienceEligible {
		devices := make([]dispatch.Device, len(audience))
		for i := range audience {
			devices[i] = audience[i].device
		}
		// The offers are sent before the subscriptions.
		if err := topics.Add(e.tx, outbox.TopicOf(d.ID), devices, e.now.Add(inFlightTime)); err != nil {
			return err
		}
	}
	e.result.More = more
	return e.insertAll(t, audience, take)
}

// dropPendingOffers drops unsent offers of a round that is over, at most BatchSize in one transaction.
func (e *expansion) dropPendingOffers() error {
	ev, d := &e.result.Event, &e.result.Dispatch
	if !d.Superseded(dispatch.EventOpened, false, "", ev.Round) {
		return nil
	}
	if d.Status != dispatch.Pending && d.Status != dispatch.Scheduled && e.TopicThreshold > 0 {
		if err := topics.Close(e.tx, outbox.TopicOf(d.ID)); err != nil {
			return err
		}
	}
	var ids []dispatch.NotificationID
	// Without the index's name MariaDB may look at all rows that are due, to filter those of the dispatch by them.
	err := e.tx.Raw(`SELECT id FROM notifications {force ix_notifications_driver}
		WHERE dispatch_id = ? AND round <= ? AND type IN `+OfferTypes+` AND state = 0 AND claim = '' LIMIT ? {skip_locked}`,
		ev.Dispatch, ev.Round, e.BatchSize).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return err
	}
	e.result.Dropped += len(ids)
	e.result.More = len(ids) == e.BatchSize
	return e.tx.Exec(`UPDATE notifications {force PRIMARY} SET state = ?, priority = 0, result = 'superseded', due_at = ? WHERE id IN ?`,
		StateDropped, database.Micros(e.now.Add(KeepDone)), ids).Error
}

// database.RowsPerStatement bounds one statement: SQLite takes 32,766 parameters.
func (e *expansion) insertAll(t dispatch.Delivery, to []recipient, take *int) error {
	for len(to) > 0 {
		n := min(len(to), database.RowsPerStatement)
		if err := e.insert(t, to[:n], take); err != nil {
			return err
		}
		to = to[n:]
	}
	return nil
}

func (e *expansion) insert(t dispatch.Delivery, to []recipient, take *int) error {
	ev, d := &e.result.Event, &e.result.Dispatch
	until := d.DeliverUntil(t, ev.At)
	priority := outbox.PriorityOf(t.Type, t.Silent)
	args := make([]any, 0, len(to)*notificationColumns)
	for i, r := range to {
		due, claim := e.due[priority]+int64(i/dueBatch)*dueGap.Microseconds(), ""
		if r.delay > 0 {
			due = database.Micros(e.now.Add(r.delay))
		}
		id := dispatch.NewNotificationID(e.now)
		if *take > 0 && r.delay == 0 {
			*take--
			due, claim = database.Micros(e.now.Add(e.LeaseTerm)), e.Owner
			p := outbox.Push{
				ID: id, Event: ev.ID, Type: t.Type, Silent: t.Silent, Round: ev.Round, Dispatch: *d, ReadAt: time.Now(), Driver: r.device.Driver,
				Device: r.device, Topic: r.topic, EventAt: ev.At, UsefulUntil: until, LeasedUntil: e.leasedUntil,
			}
			e.result.Pushes = append(e.result.Pushes, p)
		} else {
			e.result.Unleased++
		}
		args = append(args, id, ev.ID, r.device.ID, r.topic, r.device.Driver, d.ID, ev.Round, t.Type, t.Silent,
			priority, due, claim, database.Micros(ev.At), database.Micros(until), database.Micros(e.now))
	}
	e.due[priority] += int64((len(to)+dueBatch-1)/dueBatch) * dueGap.Microseconds()
	return e.tx.Exec(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent,
		priority, due_at, claim, at, expires_at, created_at, state, attempts, result, reason) VALUES `+
		strings.ReplaceAll(database.Placeholders(len(to), notificationColumns), "?)", "?, 0, 0, '', '')"), args...).Error
}

// notificationColumns is the number of a new notification's columns without the constant ones.
const notificationColumns = 15

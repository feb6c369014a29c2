package repository

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// Expand writes a notification for each device that an event of the owner's concerns, and completes the event in the same
// transaction. It leases up to take notifications to the owner and returns them ready to send; the others are due at once.
// For a large audience it writes one part only: More means that the owner still leases the event and must expand it again.
//
// ErrNotLeased: another process leases the event, and nothing was written. ErrUnavailable: nothing was written. ErrUnknown:
// the event is expanded, or will be after its lease has ended.
func (o *Outbox) Expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	var result outbox.Expansion
	err := o.afterDeadlocks(func() (err error) {
		result, err = o.expand(ctx, event, take)
		return err
	})
	return result, err
}

func (o *Outbox) expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	var result outbox.Expansion
	leased, webhooks, written := time.Now().Add(o.LeaseTerm), o.webhooksMayExist(), false
	err := transact(ctx, o.relay, func(tx *gorm.DB) (err error) {
		if err := o.completeEvent(tx, event); err != nil {
			return err
		}
		e := expansion{Outbox: o, tx: tx, leasedUntil: leased, result: &result, notified: map[dispatch.DeviceID]bool{}, budget: 5 * o.BatchSize}
		if err := e.load(event); err != nil {
			return err
		}
		if err := e.run(take); err != nil {
			return unavailable(err)
		}
		if result.More {
			if err := o.renewEvent(tx, event); err != nil {
				return err
			}
		}
		if webhooks { // last, as the lanes are locked until the commit
			written, err = o.writeEvent(tx, result.Dispatch, &result.Event, e.now)
		}
		return err
	})
	if err != nil {
		return outbox.Expansion{}, err
	}
	if written {
		o.wakeWebhooks()
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
	d, now, err := o.findDispatch(o.relay.WithContext(ctx), result.Dispatch.ID, "")
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
func (o *Outbox) completeEvent(tx *gorm.DB, event dispatch.EventID) error {
	done := tx.Exec("UPDATE events SET next_at = NULL, claim = '' WHERE id = ? AND next_at IS NOT NULL AND claim = ?", event, o.Owner)
	if done.Error != nil {
		return unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

// renewEvent leases a completed event to the owner again, for its next part.
func (o *Outbox) renewEvent(tx *gorm.DB, event dispatch.EventID) error {
	return unavailable(tx.Exec("UPDATE events SET claim = ?, next_at = "+o.dialect.now()+" + ? WHERE id = ?",
		o.Owner, o.LeaseTerm.Microseconds(), event).Error)
}

// expansion writes one event's notifications, or a part of them.
type expansion struct {
	*Outbox
	tx          *gorm.DB
	now         time.Time
	leasedUntil time.Time
	result      *outbox.Expansion
	// notified are the devices that have a notification of the event.
	notified map[dispatch.DeviceID]bool
	// lastTurns are the last turns used in each lane: by the event, or by the notifications that are being leased.
	lastTurns [outbox.LaneCount]int64
	budget    int // of notifications that this part may still write
}

// load reads the event, its dispatch, the turns that are being leased, and the event's earlier parts.
func (e *expansion) load(id dispatch.EventID) error {
	var rows []struct {
		Event       eventRow `gorm:"embedded;embeddedPrefix:event_"`
		Dispatch    timedRow `gorm:"embedded"`
		Offer, Done *int64
		Begun       bool
	}
	err := e.tx.Raw(`SELECT d.*, `+e.dialect.now()+` now, `+eventColumns+`,
		(`+e.firstDue(outbox.LaneOffer)+`) offer, (`+e.firstDue(outbox.LaneOfferEnd)+`) done, EXISTS (SELECT 1 FROM notifications n WHERE n.event_id = e.id) begun
		FROM events e JOIN dispatches d ON d.id = e.dispatch_id WHERE e.id = ?`, id).Scan(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	if len(rows) == 0 {
		return fmt.Errorf("the dispatch of event %s is gone: %w", id, dispatch.ErrNotFound)
	}
	row := &rows[0]
	e.now = fromMicros(row.Dispatch.Now)
	e.result.Event, e.result.Dispatch = row.Event.event(), row.Dispatch.Row.at(e.now)
	e.lastTurns[outbox.LaneOffer] = currentTurn(outbox.LaneOffer, row.Offer)
	e.lastTurns[outbox.LaneOfferEnd] = currentTurn(outbox.LaneOfferEnd, row.Done)
	if !row.Begun {
		return nil
	}
	return unavailable(e.loadProgress(id))
}

// loadProgress reads which devices the event's earlier parts have notified, and their last turns.
func (e *expansion) loadProgress(id dispatch.EventID) error {
	var written []struct {
		DeviceID dispatch.DeviceID
		Type     dispatch.EventType
		Silent   bool
		Turn     int64
	}
	err := e.tx.Raw("SELECT device_id, type, silent, turn FROM notifications WHERE event_id = ?", id).Scan(&written).Error
	for _, n := range written {
		e.notified[n.DeviceID] = true
		l := outbox.LaneOf(n.Type, n.Silent)
		e.lastTurns[l] = max(e.lastTurns[l], n.Turn)
	}
	return err
}

// recipient is a device to notify, or a topic that many devices subscribe to.
type recipient struct {
	device dispatch.Device
	topic  string
	// delay is how long an earlier push to the device may still take to arrive.
	delay time.Duration
}

// suspected is 1 if the push service calls the device's token dead, otherwise 0: for sorting.
func (r *recipient) suspected() int {
	if r.device.SuspectedAt != nil {
		return 1
	}
	return 0
}

// run notifies the claimant first: the other audiences may be large.
func (e *expansion) run(take int) error {
	ev := &e.result.Event
	deliveries := ev.Deliveries()
	for len(deliveries) > 0 && deliveries[0].Audience == dispatch.AudienceClaimant {
		if err := e.notifyAudience(deliveries[0], &take); err != nil {
			return err
		}
		deliveries = deliveries[1:]
	}
	if !ev.Type.IsOffer() && ev.Type != dispatch.EventCreated {
		if err := e.dropPendingOffers(); err != nil {
			return err
		}
	}
	for _, t := range deliveries {
		if e.result.More {
			return nil
		}
		if err := e.notifyAudience(t, &take); err != nil {
			return err
		}
	}
	return nil
}

// notifyAudience writes the notifications for one audience, up to the part's budget.
func (e *expansion) notifyAudience(t dispatch.Delivery, take *int) error {
	ev, d := &e.result.Event, &e.result.Dispatch
	if d.Superseded(t.Type, t.Silent, ev.Driver, ev.Round) {
		e.result.Dropped++
		return nil
	}
	audience, err := e.audience(t)
	if err != nil {
		return err
	}
	large := e.TopicThreshold > 0 && len(audience) >= e.TopicThreshold // with the winner's devices: they are subscribed too
	if t.Audience == dispatch.AudienceOffered {
		audience = slices.DeleteFunc(audience, func(r recipient) bool { return r.device.Driver == ev.Driver })
	}
	if large && t.Audience == dispatch.AudienceOffered {
		if audience, err = e.replaceByTopic(audience); err != nil {
			return err
		}
	}
	fresh := slices.DeleteFunc(audience, func(r recipient) bool { return e.notified[r.device.ID] })
	if len(fresh) > e.budget {
		fresh, e.result.More = fresh[:e.budget], true
	}
	e.budget -= len(fresh)
	for _, r := range fresh {
		e.notified[r.device.ID] = true
	}
	if large && t.Audience == dispatch.AudienceEligible {
		if err := e.addTopicMembers(fresh); err != nil {
			return err
		}
	}
	return e.insertAll(t, fresh, take)
}

// dropPendingOffers drops unsent offers of a round that is over, at most BatchSize in one transaction.
func (e *expansion) dropPendingOffers() error {
	ev, d := &e.result.Event, &e.result.Dispatch
	if !d.Superseded(dispatch.EventOpened, false, "", ev.Round) {
		return nil
	}
	if d.Status != dispatch.Pending && d.Status != dispatch.Scheduled {
		if err := e.closeTopic(); err != nil {
			return err
		}
	}
	var ids []dispatch.NotificationID
	// Without the index's name MariaDB may look at all rows that are due, to filter those of the dispatch by them.
	err := e.tx.Raw(`SELECT id FROM notifications`+e.dialect.forceIndex("ix_notifications_driver")+`
		WHERE dispatch_id = ? AND round <= ? AND type IN `+offerTypes+` AND state = 0 AND claim = '' LIMIT ?`+e.dialect.skipLocked,
		ev.Dispatch, ev.Round, e.BatchSize).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return err
	}
	e.result.Dropped += len(ids)
	e.result.More = len(ids) == e.BatchSize
	return e.tx.Exec(`UPDATE notifications SET state = ?, result = 'superseded', next_at = ? WHERE id IN ?`,
		stateDropped, micros(e.now.Add(keepDone)), ids).Error
}

const offerTypes = `('dispatch.opened', 'dispatch.reopened', 'dispatch.updated')`

func (e *expansion) audience(t dispatch.Delivery) ([]recipient, error) {
	ev := &e.result.Event
	switch t.Audience {
	case dispatch.AudienceEligible:
		return e.eligible(math.MaxInt32)
	case dispatch.AudienceOffered:
		// An offer that failed after an attempt may still have arrived.
		return e.scanRecipients(`SELECT `+deviceColumns+`, MAX(n.state = 0) FROM notifications n
			JOIN devices dv ON dv.id = n.device_id JOIN drivers v ON v.id = dv.driver_id
			WHERE n.dispatch_id = ? AND n.round = ? AND n.type IN `+offerTypes+` AND (n.state IN (0, 1) OR n.attempts > 0)
			AND dv.quarantined_at IS NULL GROUP BY dv.id, v.id`, nil, ev.Dispatch, ev.Round)
	case dispatch.AudienceClaimant:
	}
	return e.scanRecipients(`SELECT `+deviceColumns+`, 0 FROM devices dv JOIN drivers v ON v.id = dv.driver_id
		WHERE dv.driver_id = ? AND dv.quarantined_at IS NULL`, nil, ev.Driver)
}

// eligible returns the eligible drivers' devices in random order, as the first to be notified has the best chance. It returns some of
// them if there are more than most.
func (e *expansion) eligible(most int) ([]recipient, error) {
	terms := e.result.Dispatch.Terms
	candidates, args := e.candidates(&terms, e.now)
	all, err := e.scanRecipients(`SELECT `+deviceColumns+`, 0 FROM (`+candidates+`) c JOIN drivers v`+e.dialect.forceIndex("PRIMARY")+` ON v.id = c.driver_id
		JOIN devices dv`+e.dialect.forceIndex("uq_devices_installation")+` ON dv.driver_id = v.id WHERE dv.quarantined_at IS NULL LIMIT ?`,
		func(v *dispatch.Driver) bool { return len(v.Ineligible(terms, e.now)) == 0 }, append(args, most)...)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	// Devices with a suspect token come last.
	slices.SortStableFunc(all, func(a, b recipient) int { return cmp.Compare(a.suspected(), b.suspected()) })
	return all, err
}

// deviceColumns are the columns of devices dv and drivers v that scanRecipients reads; its queries add one more.
const deviceColumns = `dv.id, dv.driver_id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale),
	dv.good_at, dv.suspected_at, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until`

// inFlightTime is how long an offer that is being sent may take to arrive. The push that ends it is sent after that time.
const inFlightTime = time.Second

func (e *expansion) scanRecipients(query string, fits func(*dispatch.Driver) bool, args ...any) (found []recipient, err error) {
	rows, err := e.tx.Raw(query, args...).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r recipient
		var v dispatch.Driver
		var regions string
		var sending bool
		var suspended sql.NullInt64
		var good, suspected *int64
		err := rows.Scan(&r.device.ID, &r.device.Driver, &r.device.Platform, &r.device.PushToken, &r.device.Locale,
			&good, &suspected, &regions, &v.VehicleClass, &v.WorkingHeightM, &v.OnDuty, &suspended, &sending)
		if err != nil {
			return nil, err
		}
		r.device.PushAcceptedAt, r.device.SuspectedAt = toLocalTime(good, micros(e.now)), toLocalTime(suspected, micros(e.now))
		if fits != nil {
			if suspended.Valid {
				v.SuspendedUntil = fromOptionalMicros(&suspended.Int64)
			}
			if err := json.Unmarshal([]byte(regions), &v.Regions); err != nil {
				return nil, fmt.Errorf("regions of %s: %w", r.device.Driver, err)
			}
			if !fits(&v) {
				continue
			}
		}
		if sending {
			r.delay = inFlightTime
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

// rowsPerStatement bounds one statement: SQLite takes 32,766 parameters.
const rowsPerStatement = 1000

func (e *expansion) insertAll(t dispatch.Delivery, to []recipient, take *int) error {
	for len(to) > 0 {
		n := min(len(to), rowsPerStatement)
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
	lane := outbox.LaneOf(t.Type, t.Silent)
	args := make([]any, 0, len(to)*notificationColumns)
	for i, r := range to {
		turn, claim := e.turnOf(lane, i), ""
		next := turn
		if r.delay > 0 {
			next = micros(e.now.Add(r.delay))
		}
		id := dispatch.NewNotificationID(e.now)
		if *take > 0 && r.delay == 0 {
			*take--
			next, claim = micros(e.now.Add(e.LeaseTerm)), e.Owner
			p := outbox.Push{
				ID: id, Event: ev.ID, Type: t.Type, Silent: t.Silent, Round: ev.Round, Dispatch: *d, ReadAt: time.Now(), Driver: r.device.Driver,
				Device: r.device, Topic: r.topic, EventAt: ev.At, UsefulUntil: until, LeasedUntil: e.leasedUntil,
			}
			e.result.Pushes = append(e.result.Pushes, p)
		} else {
			e.result.Unleased++
		}
		args = append(args, id, ev.ID, r.device.ID, r.topic, r.device.Driver, d.ID, ev.Round, t.Type, t.Silent,
			next, claim, micros(ev.At), micros(until), micros(e.now), turn)
	}
	e.lastTurns[lane] = e.turnOf(lane, len(to)-1)
	return e.tx.Exec(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent,
		next_at, claim, at, expires_at, created_at, turn, state, attempts, result, reason) VALUES `+
		strings.ReplaceAll(placeholders(len(to), notificationColumns), "?)", "?, 0, 0, '', '')"), args...).Error
}

// notificationColumns is the number of a new notification's columns without the constant ones.
const notificationColumns = 15

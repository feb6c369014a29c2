package repository

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// Expand writes a notification for each device that is to be told of an event of the owner's, in one transaction with
// the end of the event's row. Up to take of them are leased to the owner and returned ready to send; the others are due
// at once. Where many are to be told, it writes as many as a short transaction takes: More says that the event is still
// the owner's, and to be expanded again.
//
// ErrNotLeased: the event is not the owner's any more, and nothing was done. ErrUnavailable: nothing was done.
// ErrUnknown: it is done, or will be when the lease has ended.
func (o *Outbox) Expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	for range maxTries {
		result, err := o.expand(ctx, event, take)
		if !o.dialect.retryable(err) {
			return result, err
		}
	}
	return outbox.Expansion{}, fmt.Errorf("%w: one deadlock after another", dispatch.ErrUnavailable)
}

func (o *Outbox) expand(ctx context.Context, event dispatch.EventID, take int) (outbox.Expansion, error) {
	var result outbox.Expansion
	leased := time.Now().Add(o.Term)
	err := transact(ctx, o.relay, func(tx *gorm.DB) (err error) {
		if err := o.completeEvent(tx, event); err != nil {
			return err
		}
		e := expansion{Outbox: o, tx: tx, leasedUntil: leased, result: &result, notified: map[dispatch.DeviceID]bool{}, budget: 5 * o.Part}
		if err := e.load(event); err != nil {
			return err
		}
		if err := e.run(take); err != nil || !result.More {
			return unavailable(err)
		}
		return o.renewEvent(tx, event)
	})
	if err != nil {
		return outbox.Expansion{}, err
	}
	return o.dropOvertaken(ctx, result), nil
}

// dropOvertaken drops those of the pushes that have been overtaken. Who told of what was committed while these were written
// has not seen them: neither to drop them, nor to tell that the offer is over to who was about to get it.
func (o *Outbox) dropOvertaken(ctx context.Context, result outbox.Expansion) outbox.Expansion {
	if len(result.Pushes) == 0 {
		return result
	}
	d, now, err := o.findDispatch(o.relay.WithContext(ctx), result.Dispatch.ID, "")
	if err != nil {
		return result // most likely they are
	}
	for i := range result.Pushes {
		result.Pushes[i].Reread(d)
	}
	leased := result.Pushes
	result.Pushes, _, _ = o.dropObsolete(ctx, leased, now) // what can't be settled is dropped when its lease has ended
	result.Dropped += len(leased) - len(result.Pushes)
	return result
}

// completeEvent marks an event told of, if it is the owner's.
func (o *Outbox) completeEvent(tx *gorm.DB, event dispatch.EventID) error {
	done := tx.Exec(`UPDATE outbox SET state = 1, claim = '', next_at = `+o.dialect.now()+` + ?
		WHERE event_id = ? AND state = 0 AND claim = ?`,
		keepDone.Microseconds(), event, o.Owner)
	if done.Error != nil {
		return unavailable(done.Error)
	}
	if done.RowsAffected == 0 {
		return dispatch.ErrNotLeased
	}
	return nil
}

// renewEvent has the owner lease an event again that finish has marked, for what is left of it.
func (o *Outbox) renewEvent(tx *gorm.DB, event dispatch.EventID) error {
	return unavailable(tx.Exec(`UPDATE outbox SET state = 0, claim = ?, next_at = `+o.dialect.now()+` + ? WHERE event_id = ? AND state = 1`,
		o.Owner, o.Term.Microseconds(), event).Error)
}

// expansion turns one event into notifications, or a part of it.
type expansion struct {
	*Outbox
	tx          *gorm.DB
	now         time.Time
	leasedUntil time.Time
	result      *outbox.Expansion
	// notified are those who were told of the event by now.
	notified map[dispatch.DeviceID]bool
	// lastTurns are the last that were given out in each lane: to the event, or to those that are being leased.
	lastTurns [outbox.Lanes]int64
	// budget is how many notifications this part may still write.
	budget int
}

// load reads the event, its dispatch, which turns are being leased, and what was written of the event before.
func (e *expansion) load(id dispatch.EventID) error {
	var rows []struct {
		Row         eventRow `gorm:"embedded"`
		Offer, Done *int64
		Begun       bool
	}
	first := func(l outbox.Lane) string {
		return "(SELECT next_at FROM notifications WHERE " + e.dueCondition(l) + " ORDER BY next_at LIMIT 1)"
	}
	err := e.tx.Raw("SELECT e.*, "+first(outbox.LaneOffer)+" offer, "+first(outbox.LaneOver)+` done,
		EXISTS (SELECT 1 FROM notifications n WHERE n.event_id = e.id) begun FROM events e WHERE e.id = ?`, id).Scan(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	if len(rows) == 0 {
		return fmt.Errorf("event %s is gone: %w", id, dispatch.ErrNotFound)
	}
	row := &rows[0]
	e.result.Event = row.Row.event()
	e.lastTurns[outbox.LaneOffer] = currentTurn(outbox.LaneOffer, row.Offer)
	e.lastTurns[outbox.LaneOver] = currentTurn(outbox.LaneOver, row.Done)
	if e.result.Dispatch, e.now, err = e.findDispatch(e.tx, row.Row.DispatchID, ""); err != nil || !row.Begun {
		return err
	}
	return unavailable(e.loadProgress(id))
}

// loadProgress reads who was told of the event, and its last turns: it goes on with the next.
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

// recipient is one device that hears of the event, or a topic of many.
type recipient struct {
	device dispatch.Device
	topic  string
	// delay is how long what it was told before may still be under way.
	delay time.Duration
}

// suspected is 1 where the device's token is said to be dead.
func (r *recipient) suspected() int {
	if r.device.SuspectedAt != nil {
		return 1
	}
	return 0
}

// run tells those first whose job it is: the offers to all others may be many.
func (e *expansion) run(take int) error {
	ev := &e.result.Event
	deliveries := ev.Deliveries()
	for len(deliveries) > 0 && deliveries[0].To == dispatch.ToClaimant {
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

// notifyAudience writes what is told to one audience, as far as this part goes.
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
	if t.To == dispatch.ToTold {
		audience = slices.DeleteFunc(audience, func(r recipient) bool { return r.device.Driver == ev.Driver })
	}
	large := e.TopicFrom > 0 && len(audience) >= e.TopicFrom
	if large && t.To == dispatch.ToTold {
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
	if large && t.To == dispatch.ToEligible {
		if err := e.addTopicMembers(fresh); err != nil {
			return err
		}
	}
	return e.insertAll(t, fresh, take)
}

// dropPendingOffers drops the offers that nobody has sent yet, now that they are over: as many as one transaction should.
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
	err := e.tx.Raw(`SELECT id FROM notifications WHERE dispatch_id = ? AND round <= ? AND type IN `+offerTypes+`
		AND state = 0 AND claim = '' LIMIT ?`+e.dialect.skipLocked, ev.Dispatch, ev.Round, e.Part).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return err
	}
	e.result.Dropped += len(ids)
	e.result.More = len(ids) == e.Part
	return e.tx.Exec(`UPDATE notifications SET state = ?, result = 'superseded', next_at = ? WHERE id IN ?`,
		stateDropped, micros(e.now.Add(keepDone)), ids).Error
}

const offerTypes = `('dispatch.opened', 'dispatch.reopened', 'dispatch.updated')`

func (e *expansion) audience(t dispatch.Delivery) ([]recipient, error) {
	ev := &e.result.Event
	switch t.To {
	case dispatch.ToEligible:
		return e.eligible()
	case dispatch.ToTold:
		// One that was given up after an attempt may have arrived all the same.
		return e.scanRecipients(`SELECT `+deviceColumns+`, MAX(n.state = 0) FROM notifications n
			JOIN devices dv ON dv.id = n.device_id JOIN drivers v ON v.id = dv.driver_id
			WHERE n.dispatch_id = ? AND n.round = ? AND n.type IN `+offerTypes+` AND (n.state IN (0, 1) OR n.attempts > 0)
			AND dv.quarantined_at IS NULL GROUP BY dv.id, v.id`, nil, ev.Dispatch, ev.Round)
	case dispatch.ToClaimant:
	}
	return e.scanRecipients(`SELECT `+deviceColumns+`, 0 FROM devices dv JOIN drivers v ON v.id = dv.driver_id
		WHERE dv.driver_id = ? AND dv.quarantined_at IS NULL`, nil, ev.Driver)
}

// eligible is in no order that lasts: who is sent to first has the better chance.
func (e *expansion) eligible() ([]recipient, error) {
	terms := e.result.Dispatch.Terms
	// MariaDB compares a JSON array's text, in which Go writes some characters as \u0026. fits decides then.
	escaped := strings.ContainsAny(terms.Region, "&<>\u2028\u2029")
	all, err := e.scanRecipients(`SELECT `+deviceColumns+`, 0 FROM drivers v JOIN devices dv ON dv.driver_id = v.id
		WHERE v.vehicle_class = ? AND v.on_duty AND (? OR `+e.dialect.hasRegion+`) AND dv.quarantined_at IS NULL`,
		func(v *dispatch.Driver) bool { return len(v.Ineligible(terms, e.now)) == 0 },
		terms.VehicleClass, escaped, terms.Region)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	// Who can most likely be reached comes first.
	slices.SortStableFunc(all, func(a, b recipient) int { return cmp.Compare(a.suspected(), b.suspected()) })
	return all, err
}

// deviceColumns are what scan reads; all but the last are columns of devices dv and drivers v.
const deviceColumns = `dv.id, dv.driver_id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale),
	dv.good_at, dv.suspected_at, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until`

// inFlightTime is how long an offer that is being sent may take to arrive. What tells that it is over comes after it.
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
		r.device.GoodAt, r.device.SuspectedAt = toLocalTime(good, micros(e.now)), toLocalTime(suspected, micros(e.now))
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

// rowsPerStatement bounds one INSERT: SQLite takes 32,766 parameters.
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
			next, claim = micros(e.now.Add(e.Term)), e.Owner
			p := outbox.Push{
				ID: id, Event: ev.ID, Type: t.Type, Silent: t.Silent, Round: ev.Round, Dispatch: *d, Read: time.Now(), Driver: r.device.Driver,
				Device: r.device, Topic: r.topic, At: ev.At, Until: until, Leased: e.leasedUntil,
			}
			e.result.Pushes = append(e.result.Pushes, p)
		} else {
			e.result.Left++
		}
		args = append(args, id, ev.ID, r.device.ID, r.topic, r.device.Driver, d.ID, ev.Round, t.Type, t.Silent,
			next, claim, micros(ev.At), micros(until), micros(e.now), turn)
	}
	e.lastTurns[lane] = e.turnOf(lane, len(to)-1)
	return e.tx.Exec(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent,
		next_at, claim, at, expires_at, created_at, turn, state, attempts, result, reason) VALUES `+
		strings.ReplaceAll(placeholders(len(to), notificationColumns), "?)", "?, 0, 0, '', '')"), args...).Error
}

// notificationColumns is how many of a new notification's columns are not the same for all.
const notificationColumns = 15

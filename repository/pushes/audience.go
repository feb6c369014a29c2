package pushes

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
)

// A small audience is read at once, in random order, as the first to be notified has the best chance. A larger one is read in pages. The
// first page is small, so that it is soon committed and sent. The walk goes through the drivers by their identifiers, from a random one to
// the last and then from the first, so that no driver is always early. Each page is shuffled. The position of the walk is written with
// each part, and the process that leases the event next goes on there.

// leg is a part of a walk.
type leg int

const (
	// legAfter reads the drivers after the walk's start, legBefore those up to it.
	legAfter leg = iota
	legBefore
	legsEnd
)

// WalkRow is where the walk through an event's audience is.
type WalkRow struct {
	EventID  dispatch.EventID `gorm:"primaryKey"`
	Leg      leg
	Start    dispatch.DriverID
	Position dispatch.DriverID // the last driver who was read on this leg
	Large    bool              // the audience is large enough for a topic
	DueAt    int64             // when the next notification is due at the earliest
}

// TableName implements gorm.Tabler.
func (WalkRow) TableName() string { return "expansions" }

// advance moves the walk behind a page. It returns false at the end of the walk.
func (w *WalkRow) advance(p *page, limit int) bool {
	if p.drivers == limit {
		w.Position = p.last
		return true
	}
	w.Leg, w.Position = w.Leg+1, ""
	return w.Leg < legsEnd
}

// saveWalk writes where the walk is, or deletes it after its end.
func (e *expansion) saveWalk(tx database.Tx) error {
	w := e.walk
	switch {
	case w == nil:
		return nil
	case !e.more:
		return tx.Exec("DELETE FROM expansions WHERE event_id = ?", w.EventID).Error
	}
	batches := (len(e.rows)/notificationColumns + dueBatch - 1) / dueBatch
	return tx.Exec(`INSERT INTO expansions (event_id, leg, start, position, large, due_at) VALUES (?, ?, ?, ?, ?, ?)
		{or_update} leg = {new leg}, start = {new start}, position = {new position}, large = {new large}, due_at = {new due_at}`,
		w.EventID, w.Leg, w.Start, w.Position, w.Large, e.due+int64(batches)*dueGap.Microseconds()).Error
}

// recipient is a device to notify, or a topic that many devices subscribe to.
type recipient struct {
	device dispatch.Device
	topic  string
	// subscribed: the topic's message about the end of the offer reaches the device.
	subscribed bool
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

// page is some drivers of an audience, and those of their devices that are to be notified.
type page struct {
	recipients []recipient
	drivers    int               // who were read, also those without a device
	last       dispatch.DriverID // the greatest of them
}

// shuffle puts the devices into random order; those with a suspect token come last.
func (p *page) shuffle() {
	rand.Shuffle(len(p.recipients), func(i, j int) { p.recipients[i], p.recipients[j] = p.recipients[j], p.recipients[i] })
	slices.SortStableFunc(p.recipients, func(a, b recipient) int { return cmp.Compare(a.suspected(), b.suspected()) })
}

// firstPart is how many drivers get an offer in the first part of an event: it is on its way after some ms.
const firstPart = 128

// audience returns whom to notify for the delivery: all of its audience, or the next part of a large one. Then more says whether other
// parts follow.
func (e *expansion) audience(db database.Tx, t dispatch.Delivery) (p page, err error) {
	part := e.BatchSize
	if t.Audience == dispatch.AudienceEligible && !e.begun {
		part = min(part, firstPart)
	}
	if e.walk == nil {
		p, err = e.read(db, t, part+1)
		if err != nil || p.drivers <= part {
			return p, err
		}
		if e.walk, err = e.startWalk(db, t); err != nil {
			return p, err
		}
	}
	p = page{}
	for e.more = true; e.more && p.drivers < part; {
		limit := part - p.drivers
		next, err := e.read(db, t, limit)
		if err != nil {
			return p, err
		}
		p.recipients, p.drivers = append(p.recipients, next.recipients...), p.drivers+next.drivers
		e.more = e.walk.advance(&next, limit)
	}
	return p, nil
}

// startWalk begins the walk through a large audience.
func (e *expansion) startWalk(db database.Tx, t dispatch.Delivery) (*WalkRow, error) {
	w := &WalkRow{EventID: e.event.ID}
	if t.Audience != dispatch.AudienceEligible {
		// From the first driver: the order in which the end of an offer is sent gives nobody an advantage.
		w.Leg = legBefore
		return w, nil
	}
	eligible, args := drivers.Eligible(&e.dispatch.Terms, e.now)
	var drivers int
	err := db.Raw("SELECT COUNT(*) FROM "+eligible, args...).Scan(&drivers).Error
	if err != nil || drivers == 0 {
		return w, err
	}
	w.Large = e.TopicThreshold > 0 && drivers >= e.TopicThreshold
	args = append(args, rand.IntN(drivers))
	err = db.Raw("SELECT r.driver_id FROM "+eligible+" ORDER BY r.driver_id LIMIT 1 OFFSET ?", args...).Scan(&w.Start).Error
	w.Position = w.Start
	return w, err
}

// inFlightTime is how long an offer that is being sent may take to arrive. The push that ends it is sent after that time.
const inFlightTime = time.Second

// OfferTypes is the SQL for the types of notifications by which a round is offered.
const OfferTypes = `('dispatch.opened', 'dispatch.reopened', 'dispatch.updated')`

// recipientsOf is the SQL for the devices of the drivers of a page, and whether a driver is eligible still. A driver without a device has a
// row, too. The argument before each of its questions says whether it is asked:
//   - sending is whether the device's offer is being sent, NULL if it has none. One that failed after an attempt may have arrived; one that
//     nobody leases is dropped, by this expansion or by the next lease.
//   - told is whether the device has a notification of the event.
//   - busy is whether the driver has other work in these hours, and so can't accept.
//   - subscribed is whether the topic reaches the device.
const recipientsOf = `SELECT c.driver_id, dv.id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale),
	dv.suspected_at, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until,
	CASE WHEN ? THEN (SELECT MAX(n.claim <> '') FROM notifications n {force ix_notifications_driver}
		WHERE n.dispatch_id = ? AND n.round = ? AND n.driver_id = c.driver_id AND n.device_id = dv.id
		AND n.type IN ` + OfferTypes + ` AND (n.state = 1 OR n.attempts > 0 OR n.claim <> '')) ELSE 0 END sending,
	(? AND EXISTS (SELECT 1 FROM notifications x {force uq_notifications_event} WHERE x.event_id = ? AND x.device_id = dv.id)) told,
	(? AND EXISTS (SELECT 1 FROM dispatches w {force ix_dispatches_driver} WHERE w.accepted_by = c.driver_id
		AND w.status IN ('ACCEPTED', 'IN_PROGRESS') AND w.work_ends_at > ? AND w.work_starts_at < ?)) busy,
	(? AND EXISTS (SELECT 1 FROM topic_members m {force PRIMARY} WHERE m.topic = ? AND m.device_id = dv.id
		AND m.push_token = dv.push_token AND m.subscribed)) subscribed
	FROM (%s) c JOIN drivers v {force PRIMARY} ON v.id = c.driver_id
	LEFT JOIN devices dv {force uq_devices_installation} ON dv.driver_id = v.id AND dv.quarantined_at IS NULL`

// read reads a page of up to limit drivers of an audience: the next one of the walk, if there is one.
func (e *expansion) read(db database.Tx, t dispatch.Delivery, limit int) (page, error) {
	ev, terms := &e.event, &e.dispatch.Terms
	eligible, offered := t.Audience == dispatch.AudienceEligible, t.Audience == dispatch.AudienceOffered
	var drivers string
	var which []any
	switch {
	case eligible:
		if err := e.loadRefused(db); err != nil {
			return page{}, err
		}
		drivers, which = e.eligible(limit)
	case offered:
		after := dispatch.DriverID("")
		if e.walk != nil {
			after = e.walk.Position
		}
		drivers = `SELECT DISTINCT n.driver_id FROM notifications n {force ix_notifications_driver}
			WHERE n.dispatch_id = ? AND n.round = ? AND n.driver_id > ? ORDER BY n.driver_id LIMIT ?`
		which = []any{ev.Dispatch, ev.Round, after, limit}
	default:
		drivers, which = "SELECT id driver_id FROM drivers WHERE id = ?", []any{ev.Driver}
	}
	args := append([]any{
		offered, ev.Dispatch, ev.Round, e.begun, ev.ID, eligible, database.Micros(terms.WorkStartsAt), database.Micros(terms.WorkEndsAt),
		offered && e.topic, outbox.TopicOf(ev.Dispatch),
	}, which...)
	p, err := e.scan(db, t, fmt.Sprintf(recipientsOf, drivers), args)
	if eligible {
		p.shuffle()
	}
	return p, err
}

// eligible returns the query for the driver_id of the eligible drivers: up to limit of all, or the next ones of the walk.
func (e *expansion) eligible(limit int) (string, []any) {
	from, args := drivers.Eligible(&e.dispatch.Terms, e.now)
	query := "SELECT r.driver_id FROM " + from
	if e.walk == nil {
		return query + " LIMIT ?", append(args, limit)
	}
	query, args = query+" AND r.driver_id > ?", append(args, e.walk.Position)
	if e.walk.Leg == legBefore {
		query, args = query+" AND r.driver_id <= ?", append(args, e.walk.Start)
	}
	return query + " ORDER BY r.driver_id LIMIT ?", append(args, limit)
}

// loadRefused reads, once, the drivers to whom the event's round is not pushed, though they see it and may accept it: who has given the
// dispatch back, who has just been relieved of it, and, unless the terms are new, who has declined it.
func (e *expansion) loadRefused(db database.Tx) error {
	ev := &e.event
	if e.refused != nil || ev.Type == dispatch.EventCreated {
		return nil
	}
	var drivers []dispatch.DriverID
	err := db.Raw(`SELECT DISTINCT driver_id FROM events {force ix_events_dispatch} WHERE dispatch_id = ? AND driver_id IS NOT NULL
		AND (type = ? OR type = ? AND ? OR type = ? AND round = ?)`, ev.Dispatch, dispatch.EventWithdrawn,
		dispatch.EventDeclined, ev.Type != dispatch.EventUpdated, dispatch.EventUnassigned, ev.Round-1).Scan(&drivers).Error
	e.refused = make(map[dispatch.DriverID]bool, len(drivers))
	for _, driver := range drivers {
		e.refused[driver] = true
	}
	return err
}

// scan returns the drivers that the query finds, and those of their devices that are to be notified.
func (e *expansion) scan(db database.Tx, t dispatch.Delivery, query string, args []any) (p page, err error) {
	rows, err := db.Raw(query, args...).Rows()
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	seen := map[dispatch.DriverID]struct{}{}
	for rows.Next() {
		var r recipient
		var v dispatch.Driver
		var id, platform, token, regions sql.NullString
		var suspected, suspended *int64
		var sending sql.NullInt64
		var told, busy bool
		d := &r.device
		err := rows.Scan(&v.ID, &id, &platform, &token, &d.Locale, &suspected,
			&regions, &v.VehicleClass, &v.WorkingHeightM, &v.OnDuty, &suspended, &sending, &told, &busy, &r.subscribed)
		if err != nil {
			return p, err
		}
		seen[v.ID] = struct{}{}
		p.last = max(p.last, v.ID)
		if !id.Valid || !sending.Valid || told || busy {
			continue
		}
		switch t.Audience {
		case dispatch.AudienceEligible:
			v.SuspendedUntil = database.OptionalTime(suspended)
			if err := json.Unmarshal([]byte(regions.String), &v.Regions); err != nil {
				return p, fmt.Errorf("regions of %s: %w", v.ID, err)
			}
			if e.refused[v.ID] || len(v.Ineligible(e.dispatch.Terms, e.now)) > 0 {
				continue
			}
		case dispatch.AudienceOffered:
			if v.ID == e.event.Driver {
				continue
			}
		}
		d.ID, d.Driver, d.Platform, d.PushToken = dispatch.DeviceID(id.String), v.ID, dispatch.Platform(platform.String), token.String
		d.SuspectedAt = database.LocalTime(suspected, database.Micros(e.now))
		if sending.Int64 != 0 {
			r.delay = inFlightTime
		}
		p.recipients = append(p.recipients, r)
	}
	p.drivers = len(seen)
	return p, rows.Err()
}

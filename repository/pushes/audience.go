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
	"firsttap/outbox"
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
	Delivery int              // of dispatch.Event.Deliveries
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

// page is some drivers of an audience and their devices.
type page struct {
	devices []recipient
	size    int               // how many devices the audience has on this page, with those that were notified before
	drivers int               // who were read, also those without a device
	last    dispatch.DriverID // the greatest of them
}

// shuffle puts the devices into random order; those with a suspect token come last.
func (p *page) shuffle() {
	rand.Shuffle(len(p.devices), func(i, j int) { p.devices[i], p.devices[j] = p.devices[j], p.devices[i] })
	slices.SortStableFunc(p.devices, func(a, b recipient) int { return cmp.Compare(a.suspected(), b.suspected()) })
}

// audience returns the devices to notify for the i-th delivery: all of them, or the next page of a large audience, with more = true if
// other pages follow.
func (e *expansion) audience(i int, t dispatch.Delivery) (p page, more bool, err error) {
	part := e.part
	if e.walk == nil {
		if t.Audience == dispatch.AudienceEligible && !e.begun {
			part = min(part, firstPart)
		}
		p, err = e.read(t, nil, part+1)
		if err != nil || p.drivers <= part {
			return p, false, err
		}
		if e.walk, err = e.startWalk(i, t); err != nil {
			return p, false, err
		}
	}
	p = page{}
	for more = true; more && p.drivers < part; {
		limit := part - p.drivers
		next, err := e.read(t, e.walk, limit)
		if err != nil {
			return p, false, err
		}
		p.devices, p.size, p.drivers = append(p.devices, next.devices...), p.size+next.size, p.drivers+next.drivers
		more = e.walk.advance(&next, limit)
	}
	return p, more, nil
}

// firstPart is how many drivers get an offer in the first part of an event: it is on its way after some ms.
const firstPart = 128

// startWalk begins the walk through a large audience.
func (e *expansion) startWalk(i int, t dispatch.Delivery) (*WalkRow, error) {
	w := &WalkRow{EventID: e.result.Event.ID, Delivery: i}
	if t.Audience != dispatch.AudienceEligible {
		// From the first driver: the order in which the end of an offer is sent gives nobody an advantage.
		w.Leg, w.Large = legBefore, true
		return w, nil
	}
	eligible, args := drivers.Eligible(&e.result.Dispatch.Terms, e.now)
	var drivers int
	err := e.tx.Raw("SELECT COUNT(*) FROM "+eligible, args...).Scan(&drivers).Error
	if err != nil || drivers == 0 {
		return w, err
	}
	w.Large = drivers >= e.TopicThreshold
	args = append(args, rand.IntN(drivers))
	err = e.tx.Raw("SELECT r.driver_id FROM "+eligible+" ORDER BY r.driver_id LIMIT 1 OFFSET ?", args...).Scan(&w.Start).Error
	w.Position = w.Start
	return w, err
}

// read reads a page of an audience: without a walk, up to limit of all its drivers.
func (e *expansion) read(t dispatch.Delivery, w *WalkRow, limit int) (page, error) {
	ev, terms := &e.result.Event, &e.result.Dispatch.Terms
	var drivers string
	var args []any
	var fits func(*dispatch.Driver) bool
	sending, sendingArgs := "0", []any{}
	busy, busyArgs := "0", []any{}
	switch t.Audience {
	case dispatch.AudienceClaimant:
		drivers, args = "SELECT id driver_id FROM drivers WHERE id = ?", []any{ev.Driver}
	case dispatch.AudienceEligible:
		drivers, args = e.eligible(terms, w, limit)
		fits = func(v *dispatch.Driver) bool { return len(v.Ineligible(*terms, e.now)) == 0 && !e.refused[v.ID] }
		if err := e.loadRefused(); err != nil {
			return page{}, database.Unavailable(err)
		}
		// Whoever has other work in these hours can't accept.
		busy = `EXISTS (SELECT 1 FROM dispatches w {force ix_dispatches_driver} WHERE w.accepted_by = c.driver_id
			AND w.status IN ('ACCEPTED', 'IN_PROGRESS') AND w.work_ends_at > ? AND w.work_starts_at < ?)`
		busyArgs = []any{database.Micros(terms.WorkStartsAt), database.Micros(terms.WorkEndsAt)}
	case dispatch.AudienceOffered:
		after := dispatch.DriverID("")
		if w != nil {
			after = w.Position
		}
		drivers = `SELECT DISTINCT n.driver_id FROM notifications n {force ix_notifications_driver}
			WHERE n.dispatch_id = ? AND n.round = ? AND n.driver_id > ? ORDER BY n.driver_id LIMIT ?`
		args = []any{ev.Dispatch, ev.Round, after, limit}
		// An offer that failed after an attempt may still have arrived. NULL says that the device has no offer.
		sending = `(SELECT MAX(n.state = 0) FROM notifications n {force ix_notifications_driver}
			WHERE n.dispatch_id = ? AND n.round = ? AND n.driver_id = c.driver_id AND n.device_id = dv.id
			AND n.type IN ` + OfferTypes + ` AND (n.state IN (0, 1) OR n.attempts > 0))`
		sendingArgs = []any{ev.Dispatch, ev.Round}
	}
	told, toldArgs := "0", []any{}
	if e.begun {
		told = "EXISTS (SELECT 1 FROM notifications x {force uq_notifications_event} WHERE x.event_id = ? AND x.device_id = dv.id)"
		toldArgs = []any{ev.ID}
	}
	p, err := e.scan(`SELECT c.driver_id, dv.id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale),
		dv.good_at, dv.suspected_at, v.regions, v.vehicle_class, v.working_height_m, v.on_duty, v.suspended_until, `+sending+`, `+told+`, `+busy+`
		FROM (`+drivers+`) c JOIN drivers v {force PRIMARY} ON v.id = c.driver_id
		LEFT JOIN devices dv {force uq_devices_installation} ON dv.driver_id = v.id AND dv.quarantined_at IS NULL`,
		fits, slices.Concat(sendingArgs, toldArgs, busyArgs, args)...)
	if err == nil && t.Audience == dispatch.AudienceEligible {
		p.shuffle()
	}
	return p, database.Unavailable(err)
}

// loadRefused reads, once, the drivers to whom the event's round is not pushed, though they see it and may accept it: who has given the
// dispatch back, who has just been relieved of it, and, unless the terms are new, who has declined it.
func (e *expansion) loadRefused() error {
	ev := &e.result.Event
	if e.refused != nil || ev.Type == dispatch.EventCreated {
		return nil
	}
	var drivers []dispatch.DriverID
	err := e.tx.Raw("SELECT DISTINCT driver_id FROM events {force ix_events_dispatch}"+`
		WHERE dispatch_id = ? AND driver_id IS NOT NULL AND (type = ? OR type = ? AND ? OR type = ?
		AND round = ?)`, ev.Dispatch, dispatch.EventWithdrawn,
		dispatch.EventDeclined, ev.Type != dispatch.EventUpdated, dispatch.EventUnassigned, ev.Round-1).Scan(&drivers).Error
	e.refused = make(map[dispatch.DriverID]bool, len(drivers))
	for _, driver := range drivers {
		e.refused[driver] = true
	}
	return err
}

// eligible returns the query for the driver_id of the eligible drivers: up to limit of all, or the next ones of the walk.
func (e *expansion) eligible(terms *dispatch.Terms, w *WalkRow, limit int) (string, []any) {
	from, args := drivers.Eligible(terms, e.now)
	query := "SELECT r.driver_id FROM " + from
	if w == nil {
		return query + " LIMIT ?", append(args, limit)
	}
	query, args = query+" AND r.driver_id > ?", append(args, w.Position)
	if w.Leg == legBefore {
		query, args = query+" AND r.driver_id <= ?", append(args, w.Start)
	}
	return query + " ORDER BY r.driver_id LIMIT ?", append(args, limit)
}

// scan returns the drivers and devices that the query finds, without those of drivers whom fits, unless it is nil, refuses.
func (e *expansion) scan(query string, fits func(*dispatch.Driver) bool, args ...any) (p page, err error) {
	rows, err := e.tx.Raw(query, args...).Rows()
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	seen := map[dispatch.DriverID]struct{}{}
	for rows.Next() {
		var r recipient
		var v dispatch.Driver
		var device, platform, token, regions sql.NullString
		var good, suspected *int64
		var suspended, sending sql.NullInt64
		var told, busy bool
		err := rows.Scan(&r.device.Driver, &device, &platform, &token, &r.device.Locale, &good, &suspected,
			&regions, &v.VehicleClass, &v.WorkingHeightM, &v.OnDuty, &suspended, &sending, &told, &busy)
		if err != nil {
			return p, err
		}
		seen[r.device.Driver] = struct{}{}
		p.last = max(p.last, r.device.Driver)
		if !device.Valid || !sending.Valid || busy {
			continue
		}
		v.ID = r.device.Driver
		r.device.ID, r.device.Platform, r.device.PushToken = dispatch.DeviceID(device.String), dispatch.Platform(platform.String), token.String
		r.device.PushAcceptedAt, r.device.SuspectedAt = database.LocalTime(good, database.Micros(e.now)), database.LocalTime(
			suspected, database.Micros(e.now),
		)
		if fits != nil {
			if suspended.Valid {
				v.SuspendedUntil = database.OptionalTime(&suspended.Int64)
			}
			if err := json.Unmarshal([]byte(regions.String), &v.Regions); err != nil {
				return p, fmt.Errorf("regions of %s: %w", r.device.Driver, err)
			}
			if !fits(&v) {
				continue
			}
		}
		if sending.Int64 != 0 {
			r.delay = inFlightTime
		}
		p.size++
		if !told {
			p.devices = append(p.devices, r)
		}
	}
	p.drivers = len(seen)
	return p, rows.Err()
}

// inFlightTime is how long an offer that is being sent may take to arrive. The push that ends it is sent after that time.
const inFlightTime = time.Second

// OfferTypes is the SQL for the types of notifications by which a round is offered.
const OfferTypes = `('dispatch.opened', 'dispatch.reopened', 'dispatch.updated')`

// loadWalk reads where the walk is that an earlier part has begun, if one has.
func (e *expansion) loadWalk() error {
	var walks []WalkRow
	if err := e.tx.Where("event_id = ?", e.result.Event.ID).Limit(1).Find(&walks).Error; err != nil {
		return err
	}
	if len(walks) == 1 {
		e.walk = &walks[0]
		p := e.walkPriority()
		e.due[p] = max(e.due[p], e.walk.DueAt)
	}
	return nil
}

// walkPriority is the priority of the notifications that the walk writes.
func (e *expansion) walkPriority() outbox.Priority {
	t := e.result.Event.Deliveries()[e.walk.Delivery]
	return outbox.PriorityOf(t.Type, t.Silent)
}

// saveWalk writes where the walk is, or deletes it after its end.
func (e *expansion) saveWalk() error {
	switch {
	case e.walk == nil:
		return nil
	case !e.result.More:
		return e.tx.Exec("DELETE FROM expansions WHERE event_id = ?", e.walk.EventID).Error
	}
	e.walk.DueAt = e.due[e.walkPriority()]
	w := e.walk
	return e.tx.Exec("INSERT INTO expansions (event_id, delivery, leg, start, position, large, due_at) VALUES (?, ?, ?, ?, ?, ?, ?)"+
		" {or_update} delivery = {new delivery}, leg = {new leg}, start = {new start}, position = {new position}, "+
		"large = {new large}, due_at = {new due_at}",
		w.EventID, w.Delivery, w.Leg, w.Start, w.Position, w.Large, w.DueAt).Error
}

package pushes

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
)

// A notification is due at its due_at, and of each priority the earliest is leased first. A lease sets due_at to its end, and a failed
// attempt to the time of the next one: so one condition and one index find what is new, what is to be tried again, and what a dead process
// had leased.
//
// An event's notifications are due in batches of 64, a microsecond apart, which is their order. All of them are due at once: the first
// batch has been so for a while, or just after the first of those that wait already. So an event with few notifications never waits for all
// of an event with many, however slowly they are sent.
const (
	dueBatch = 64
	dueGap   = time.Microsecond
	dueSince = time.Millisecond // of the first batch: as long as a thousand batches take
)

// firstDue is the SQL for when the first notification of a priority is due, which is NULL if there is none.
const firstDue = "(SELECT due_at FROM notifications {force ix_notifications_due} WHERE state = 0 AND priority = ? ORDER BY due_at LIMIT 1)"

// dueAfter returns when the next notification is due, where the first of those that wait is due at first, nil for none.
func dueAfter(now time.Time, first *int64) int64 {
	due := database.Micros(now.Add(-dueSince))
	if first == nil {
		return due
	}
	return min(due, *first+dueGap.Microseconds())
}

// LeaseNotifications leases up to limit of the due notifications and returns them ready to send. dropped counts the obsolete ones, by
// reason. If both together are fewer than limit, no more are due that nobody has locked. ErrUnavailable: none is leased. ErrUnknown: they
// are leased or not.
func (o *Outbox) LeaseNotifications(ctx context.Context, limit int) (pushes []outbox.Push, dropped map[string]int, err error) {
	until := time.Now().Add(o.LeaseTerm) // taken before the statement, so that the lease ends no earlier
	var now time.Time
	err = o.db.Work.Transact(ctx, func(tx database.Tx) error {
		pushes = nil
		ids, err := o.dueNotifications(tx, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		err = tx.Exec("UPDATE notifications {force PRIMARY} SET claim = ?, due_at = {now} + ? WHERE id IN ?",
			o.Owner, o.LeaseTerm.Microseconds(), ids).Error
		if err == nil {
			pushes, now, err = o.pushes(tx, ids, until)
		}
		if err == nil {
			err = refresh(tx, pushes)
		}
		return database.Unavailable(err)
	})
	if err != nil || len(pushes) == 0 {
		return nil, nil, err
	}
	return o.dropObsolete(ctx, pushes, now)
}

// dueNotifications locks and returns up to limit of the due notifications. Each of the lower priorities has a tenth of them, if so many are
// due, and whatever the higher ones leave.
func (o *Outbox) dueNotifications(tx database.Tx, limit int) ([]dispatch.NotificationID, error) {
	share := (limit + rand.IntN(10)) / 10
	var shares, others []dispatch.NotificationID
	left, own := limit, 0 // own is the share of the priority: the highest needs none
	for p := outbox.PriorityOffer; p < outbox.PriorityCount; p++ {
		var due []dispatch.NotificationID
		if most := max(left, own); most > 0 {
			err := tx.Raw(`SELECT id FROM notifications {force ix_notifications_due}
				WHERE state = 0 AND priority = ? AND due_at <= {now} ORDER BY due_at, id LIMIT ? {skip_locked}`, p, most).Scan(&due).Error
			if err != nil {
				return nil, database.Unavailable(err)
			}
		}
		left -= min(left, len(due))
		own = min(own, len(due))
		shares, others = append(shares, due[:own]...), append(others, due[own:]...)
		own = share
	}
	all := slices.Concat(shares, others)
	return all[:min(limit, len(all))], nil
}

// pushes reads the leased notifications, their devices as they are now, and the database's time. Of the dispatches they have only the
// identifiers. It scans the columns itself, as GORM's reflection costs processor time, and every push that its expansion does not lease
// passes here.
func (o *Outbox) pushes(
	db database.Tx, ids []dispatch.NotificationID, leased time.Time,
) (pushes []outbox.Push, now time.Time, err error) {
	rows, err := db.Raw(
		`SELECT n.id, n.event_id, n.dispatch_id, n.round, n.type, n.silent, n.topic, n.attempts, n.result <> '', n.at, n.expires_at,
		n.driver_id, n.device_id, dv.platform, dv.push_token, COALESCE(NULLIF(dv.locale, ''), v.locale, ''), dv.quarantined_at IS NOT NULL,
		dv.suspected_at, {now}, COALESCE(n.type IN `+OfferTypes+` AND (v.on_duty = 0 OR v.suspended_until > {now} OR EXISTS (
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
		p, d := outbox.Push{LeasedUntil: leased}, dispatch.Device{}
		var at, until, read int64
		var platform, token sql.NullString
		var dead bool
		var suspect *int64
		err := rows.Scan(
			&p.ID, &p.Event, &p.Dispatch.ID, &p.Round, &p.Type, &p.Silent, &p.Topic, &p.Attempts, &p.Tried, &at, &until, &p.Driver, &d.ID,
			&platform, &token, &d.Locale, &dead, &suspect, &read, &p.Unwanted,
		)
		if err != nil {
			return nil, now, err
		}
		now, p.EventAt, p.UsefulUntil = database.Time(read), database.Time(at), database.Time(until)
		if token.Valid && !dead {
			d.Driver, d.Platform, d.PushToken = p.Driver, dispatch.Platform(platform.String), token.String
			d.SuspectedAt = database.LocalTime(suspect, read)
			p.Device = d
		}
		pushes = append(pushes, p)
	}
	return pushes, now, rows.Err()
}

// refresh reads the pushes' dispatches as they are now.
func refresh(db database.Tx, pushes []outbox.Push) error {
	var names []dispatch.ID
	now := map[dispatch.ID]dispatch.Dispatch{}
	for i := range pushes {
		id := pushes[i].Dispatch.ID
		if _, ok := now[id]; !ok {
			now[id] = dispatch.Dispatch{}
			names = append(names, id)
		}
	}
	read := time.Now()
	var rows []dispatches.TimedRow
	if err := db.Raw("SELECT d.*, {now} now FROM dispatches d WHERE d.id IN ?", names).Scan(&rows).Error; err != nil {
		return err
	}
	for i := range rows {
		now[rows[i].Row.ID] = rows[i].Row.At(database.Time(rows[i].Now))
	}
	for i := range pushes {
		p := &pushes[i]
		p.Refresh(now[p.Dispatch.ID])
		p.ReadAt = read
	}
	return nil
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
	return pushes, dropped, o.RecordResults(ctx, results, nil)
}

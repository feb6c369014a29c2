package pushes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
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

// firstDue returns the SQL for when the first notification of a priority is due, which is NULL if there is none.
func (o *Outbox) firstDue(p outbox.Priority) string {
	return fmt.Sprintf(`SELECT due_at FROM notifications {force ix_notifications_due}
		WHERE state = 0 AND priority = %d ORDER BY due_at LIMIT 1`, p)
}

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
	var due [outbox.PriorityCount][]dispatch.NotificationID
	left := limit
	for p := outbox.PriorityOffer; p < outbox.PriorityCount; p++ {
		most := max(left, share)
		if most == 0 {
			continue
		}
		err := tx.Raw(`SELECT id FROM notifications {force ix_notifications_due}
			WHERE state = 0 AND priority = ? AND due_at <= {now} ORDER BY due_at, id LIMIT ? {skip_locked}`, p, most).Scan(&due[p]).Error
		if err != nil {
			return nil, database.Unavailable(err)
		}
		left -= min(left, len(due[p]))
	}
	offers, jobs, ends := due[outbox.PriorityOffer], due[outbox.PriorityJob], due[outbox.PriorityOfferEnd]
	j, e := min(share, len(jobs)), min(share, len(ends))
	all := slices.Concat(jobs[:j], ends[:e], offers, jobs[j:], ends[e:])
	return all[:min(limit, len(all))], nil
}

// LeaseEvents leases up to limit of the due events. ErrUnavailable: none is leased.
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

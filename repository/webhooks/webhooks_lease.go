package webhooks

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch/outbox"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/poll"
)

// Outbox is one process's access to the deliveries. It is safe for concurrent use.
//
// Of the deliveries of one dispatch to one endpoint only the earliest unfinished one is leased, and none while
// another is leased. A delivery that has to wait for another is put off until that one is due, or for as long as an
// attempt takes. When a delivery ends, the next one of its dispatch is made due at once; if the process is killed
// before that, it is sent when it is looked at again.
type Outbox struct {
	db    *database.DB
	poll  *poll.Poll
	owner string
	term  time.Duration
}

// NewOutbox returns the deliveries for the process of that name: only the owner of a lease may complete the delivery.
// A lease lasts for term; 0 for 30 s, which is longer than any attempt.
func NewOutbox(db *database.DB, p *poll.Poll, owner string, term time.Duration) *Outbox {
	return &Outbox{db, p, owner, cmp.Or(term, 30*time.Second)}
}

// Due returns when WriteDeliveries or LeaseDeliveries finds something, as known a second ago at most while the
// scheduler runs. ErrUnavailable.
func (o *Outbox) Due(ctx context.Context) (outbox.Due, error) {
	w, err := o.poll.Waiting(ctx, poll.MaxAge, nil)
	if err != nil {
		return outbox.Due{}, err
	}
	due := outbox.Due{ReadAt: w.ReadAt, Webhooks: w.Local(w.Webhooks)}
	if w.Unwritten {
		due.Webhooks = w.ReadAt
	}
	return due, nil
}

// recheckUnwritten is when a delivery is looked at again that waits for an earlier one to be written.
const recheckUnwritten = 200 * time.Millisecond

// LeaseDeliveries leases up to limit due deliveries, of each active endpoint up to what busy leaves of perEndpoint.
// More says that others may be due that can be leased at once. What it returns is leased, also with an error.
// ErrUnavailable, ErrUnknown: then more may be leased, and are due again when their leases end.
func (o *Outbox) LeaseDeliveries(ctx context.Context, perEndpoint int, busy map[webhook.ID]int, limit int) (
	leases []webhook.Lease, more bool, err error,
) {
	var endpoints []Row // with due deliveries
	err = o.db.Work.With(ctx).Raw("SELECT w.* FROM webhooks w WHERE w.status = ? AND "+poll.FirstDelivery+" <= {now}", webhook.Active).
		Scan(&endpoints).Error
	if err != nil {
		return nil, false, database.Unavailable(err)
	}
	// In random order, so that none is always the last to get what limit leaves.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	for i := range endpoints {
		w := &endpoints[i]
		n := min(perEndpoint-busy[w.ID], limit-len(leases))
		if n <= 0 {
			continue
		}
		var due int
		var some []webhook.Lease
		err := o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
			due, some, err = o.leaseSome(tx, w, n)
			return database.Unavailable(err)
		})
		if err != nil {
			return leases, more, err
		}
		leases, more = append(leases, some...), more || due == n
	}
	return leases, more, nil
}

// leaseSome looks at up to n due deliveries, and returns how many there are. It leases those that can be sent, and
// puts the others off.
func (o *Outbox) leaseSome(tx database.Tx, w *Row, n int) (due int, leases []webhook.Lease, err error) {
	until := time.Now().Add(o.term)
	var keys []Key
	err = tx.Raw(`SELECT dispatch_id, webhook_id, event_id FROM webhook_deliveries {force ix_webhook_deliveries_due}
		WHERE webhook_id = ? AND status = 'PENDING' AND next_at <= {now} ORDER BY next_at LIMIT ? {skip_locked}`, w.ID, n).
		Scan(&keys).Error
	if err != nil || len(keys) == 0 {
		return 0, nil, err
	}
	found, err := waiting(tx, w, keys)
	if err != nil {
		return 0, nil, err
	}
	type change struct {
		claim string // "" for one that is put off
		next  int64
	}
	changes := map[change][]Key{}
	for i := range found {
		d, to := &found[i], change{}
		switch {
		case d.Earlier != nil:
			to.next = max(*d.Earlier, d.Now+webhook.AttemptTimeout.Microseconds())
		case d.Unwritten:
			to.next = d.Now + recheckUnwritten.Microseconds()
		default:
			to = change{o.owner, d.Now + o.term.Microseconds()}
			leases = append(leases, webhook.Lease{
				Delivery: d.Row.delivery(), Attempt: d.Row.Attempt + 1, LeasedUntil: until, URL: w.URL, Secrets: w.secrets(),
			})
		}
		changes[to] = append(changes[to], d.Row.Key)
	}
	for to, keys := range changes {
		where, args := theseDeliveries(keys)
		err := tx.Exec("UPDATE webhook_deliveries {force PRIMARY} SET claim = ?, next_at = ? WHERE "+where,
			slices.Concat([]any{to.claim, to.next}, args)...).Error
		if err != nil {
			return 0, nil, err
		}
	}
	return len(keys), leases, nil
}

func (row *Row) secrets() webhook.Secrets {
	s := webhook.Secrets{Current: row.Secret}
	if row.PreviousUntil != nil {
		s.Previous, s.PreviousUntil = *row.PreviousSecret, database.Time(*row.PreviousUntil)
	}
	return s
}

// waitingDelivery is a delivery that is due.
type waitingDelivery struct {
	Row DeliveryRow `gorm:"embedded"`
	Now int64
	// Earlier is when the delivery is due that this one has to wait for, 0 if that is leased: an unfinished one of an
	// earlier event of its dispatch, or any other one of its dispatch that is leased. Nil for none.
	Earlier *int64
	// Unwritten: an earlier event of its dispatch is still in the queue, or among those that a replay has yet to write.
	Unwritten bool
}

// waiting reads the deliveries, which the caller has locked, without their attempts. Each was locked, and so
// committed, before this statement began. So the statement sees all earlier events of the delivery's dispatch, each
// in webhook_events or with its delivery.
func waiting(tx database.Tx, w *Row, keys []Key) (found []waitingDelivery, err error) {
	where, args := theseDeliveries(keys)
	err = tx.Raw(`SELECT d.dispatch_id, d.webhook_id, d.event_id, d.type, d.status, d.body, d.attempt, d.created_at, {now} now,
		(SELECT MAX(CASE WHEN p.claim = '' THEN p.next_at ELSE 0 END) FROM webhook_deliveries p {force PRIMARY}
			WHERE p.dispatch_id = d.dispatch_id AND p.webhook_id = d.webhook_id AND p.status = 'PENDING'
			AND (p.event_id < d.event_id OR p.event_id > d.event_id AND p.claim <> '' AND p.next_at > {now})) earlier,
		(EXISTS (SELECT 1 FROM webhook_events q {force PRIMARY} WHERE q.dispatch_id = d.dispatch_id AND q.event_id < d.event_id)
		OR EXISTS (SELECT 1 FROM events e {force ix_events_dispatch} WHERE e.dispatch_id = d.dispatch_id AND e.id < d.event_id
			AND e.id > ? AND e.id <= ?)) unwritten
		FROM webhook_deliveries d {force PRIMARY} WHERE `+where, slices.Concat([]any{w.ReplayFrom, w.ReplayUntil}, args)...).
		Scan(&found).Error
	return found, err
}

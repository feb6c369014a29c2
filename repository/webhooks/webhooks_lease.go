package webhooks

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/poll"
	"firsttap/webhook"
)

// KeepDeliveries is how long a delivery is kept, and sent if it is still pending: its endpoint may be paused for ever.
const KeepDeliveries = 30 * 24 * time.Hour

// Options are the settings of an Outbox.
type Options struct {
	// Owner identifies the running process: only the owner of a lease may complete the delivery.
	Owner string
	// LeaseTerm is how long a lease lasts; 0 for 30 s, which is longer than any attempt.
	LeaseTerm time.Duration
}

// Outbox is one process's access to the deliveries. It is safe for concurrent use.
//
// Of the deliveries of one dispatch to one endpoint only the earliest unfinished one is leased, and none while
// another is leased. A delivery that has to wait for another is put off until that one is due, or for as long as an
// attempt takes. When a delivery ends, the next one of its dispatch is made due at once; if the process is killed
// before that, it is sent when it is looked at again.
type Outbox struct {
	db   *database.DB
	poll *poll.Poll
	Options
}

// NewOutbox returns the deliveries for one owner.
func NewOutbox(db *database.DB, p *poll.Poll, o Options) *Outbox {
	o.LeaseTerm = cmp.Or(o.LeaseTerm, 30*time.Second)
	return &Outbox{db: db, poll: p, Options: o}
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
// More says that others may be due that can be leased at once. What it returns is leased, also if it met an error
// after that, which the next call finds again. ErrUnavailable.
func (o *Outbox) LeaseDeliveries(ctx context.Context, perEndpoint int, busy map[webhook.ID]int, limit int) (
	leases []webhook.Lease, more bool, err error,
) {
	endpoints, err := o.dueEndpoints(ctx)
	if err != nil {
		return nil, false, err
	}
	// In random order, so that none is always the last to get what limit leaves.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	for i := range endpoints {
		w := &endpoints[i]
		n := min(perEndpoint-busy[w.Row.ID], limit-len(leases))
		if n <= 0 {
			continue
		}
		var due int
		var some []webhook.Lease
		err := o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
			due, some, err = o.leaseSome(tx, w, n)
			return database.Unavailable(err)
		})
		if err != nil && len(leases) == 0 {
			return nil, false, err
		}
		if err == nil {
			leases, more = append(leases, some...), more || due == n
		}
	}
	return leases, more, nil
}

// timedWebhook is an endpoint, and the database's time when it was read.
type timedWebhook struct {
	Row Row `gorm:"embedded"`
	Now int64
}

// dueEndpoints returns the active endpoints with due deliveries.
func (o *Outbox) dueEndpoints(ctx context.Context) (found []timedWebhook, err error) {
	err = o.db.Work.With(ctx).Raw("SELECT w.*, {now} now FROM webhooks w WHERE w.status = ? AND "+poll.FirstDelivery+" <= {now}",
		webhook.Active).Scan(&found).Error
	return found, database.Unavailable(err)
}

func (w *timedWebhook) secrets() webhook.Secrets {
	s := webhook.Secrets{Current: w.Row.Secret}
	if until := w.Row.PreviousUntil; until != nil && *until > w.Now {
		s.Previous, s.PreviousUntil = database.StringOrEmpty(w.Row.PreviousSecret), *database.LocalTime(until, w.Now)
	}
	return s
}

// leaseSome looks at up to n due deliveries, and returns how many there are. It leases those that can be sent, and
// puts the others off.
func (o *Outbox) leaseSome(tx database.Tx, w *timedWebhook, n int) (due int, leases []webhook.Lease, err error) {
	until := time.Now().Add(o.LeaseTerm)
	var rows []DeliveryRow
	err = tx.Raw(`SELECT dispatch_id, webhook_id, event_id FROM webhook_deliveries {force ix_webhook_deliveries_due}
		WHERE webhook_id = ? AND status = 'PENDING' AND next_at <= {now} ORDER BY next_at LIMIT ? {skip_locked}`, w.Row.ID, n).
		Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return 0, nil, err
	}
	keys := make([]deliveryKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].key()
	}
	found, err := o.waiting(tx, &w.Row, keys)
	if err != nil {
		return 0, nil, err
	}
	changes := map[leaseChange][]deliveryKey{}
	for i := range found {
		d, change := &found[i], leaseChange{status: webhook.Pending}
		switch {
		case d.Row.CreatedAt < d.Now-KeepDeliveries.Microseconds():
			change.status, change.next = webhook.Failed, d.Now
		case d.Earlier != nil:
			change.next = max(*d.Earlier, d.Now+webhook.AttemptTimeout.Microseconds())
		case d.Unwritten:
			change.next = d.Now + recheckUnwritten.Microseconds()
		default:
			change.claim, change.next = o.Owner, d.Now+o.LeaseTerm.Microseconds()
			leases = append(leases, webhook.Lease{
				Delivery: d.Row.delivery(), Attempt: d.Row.Attempt + 1, LeasedUntil: until, URL: w.Row.URL, Secrets: w.secrets(),
			})
		}
		changes[change] = append(changes[change], d.Row.key())
	}
	for to, keys := range changes {
		where, args := theseDeliveries(keys)
		err := tx.Exec("UPDATE webhook_deliveries {force PRIMARY} SET status = ?, claim = ?, next_at = ? WHERE "+where,
			slices.Concat([]any{to.status, to.claim, to.next}, args)...).Error
		if err != nil {
			return 0, nil, err
		}
	}
	return len(rows), leases, nil
}

// leaseChange is what becomes of a delivery that is due: it is leased, put off, or ended as it is too old.
type leaseChange struct {
	status webhook.DeliveryStatus
	claim  string
	next   int64
}

// waitingDelivery is a delivery that is due.
type waitingDelivery struct {
	Row DeliveryRow `gorm:"embedded"`
	Now int64
	// Earlier is when the delivery is due that this one has to wait for, 0 if that is leased: an unfinished one of an
	// earlier event of its dispatch, or any other one of its dispatch that is leased. Nil for none.
	Earlier *int64
	// Unwritten: the delivery of an earlier event of its dispatch is still to be written.
	Unwritten bool
}

// waiting reads the deliveries, which the caller has locked, without their attempts. Each was locked, and so
// committed, before this statement began. So the statement sees all earlier events of the delivery's dispatch, each
// in webhook_events or with its delivery.
func (o *Outbox) waiting(tx database.Tx, w *Row, keys []deliveryKey) (found []waitingDelivery, err error) {
	where, args := theseDeliveries(keys)
	args = slices.Concat([]any{w.ReplayFrom, w.ReplayUntil, w.Events, w.endpoint().Events}, args)
	err = tx.Raw(`SELECT d.dispatch_id, d.webhook_id, d.event_id, d.type, d.status, d.body, d.attempt, d.created_at, {now} now,
		(SELECT MAX(CASE WHEN p.claim = '' THEN p.next_at ELSE 0 END) FROM webhook_deliveries p {force PRIMARY}
			WHERE p.dispatch_id = d.dispatch_id AND p.webhook_id = d.webhook_id AND p.status = 'PENDING'
			AND (p.event_id < d.event_id OR p.event_id > d.event_id AND p.claim <> '' AND p.next_at > {now})) earlier,
		((SELECT COUNT(*) FROM webhook_events q {force PRIMARY} WHERE q.dispatch_id = d.dispatch_id AND q.event_id < d.event_id) > 0
		OR (SELECT 1 FROM events e {force ix_events_dispatch} WHERE e.dispatch_id = d.dispatch_id AND e.id < d.event_id
			AND e.id > ? AND e.id <= ? AND (? = '*' OR e.type IN ?) LIMIT 1) IS NOT NULL) unwritten
		FROM webhook_deliveries d {force PRIMARY} WHERE `+where, args...).Scan(&found).Error
	return found, err
}

// ReleaseDeliveries ends leases whose deliveries were not attempted, so that they are due at once. ErrUnavailable.
func (o *Outbox) ReleaseDeliveries(ctx context.Context, leases []webhook.Lease) error {
	for chunk := range slices.Chunk(leases, resultsPerTransaction) {
		keys := make([]deliveryKey, len(chunk))
		for i := range chunk {
			keys[i] = keyOf(&chunk[i].Delivery)
		}
		where, args := theseDeliveries(keys)
		err := database.Retry(ctx, func() error {
			return database.Unavailable(o.db.Work.With(ctx).Exec(`UPDATE webhook_deliveries {force PRIMARY} SET claim = '', next_at = {now}
				WHERE claim = ? AND status = 'PENDING' AND `+where, append([]any{o.Owner}, args...)...).Error)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

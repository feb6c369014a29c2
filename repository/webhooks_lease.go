package repository

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/webhook"
)

// WebhookOptions are the settings of a WebhookOutbox.
type WebhookOptions struct {
	// Owner identifies the running process: only the owner of a lane's lease may complete its deliveries.
	Owner string
	// LeaseTerm is how long a lease lasts; 0 for 30 s, which is longer than any attempt.
	LeaseTerm time.Duration
}

// WebhookOutbox is one process's access to the deliveries. It is safe for concurrent use.
type WebhookOutbox struct {
	*Store
	WebhookOptions
}

// WebhookOutbox returns the deliveries for one owner.
func (s *Store) WebhookOutbox(o WebhookOptions) *WebhookOutbox {
	o.LeaseTerm = cmp.Or(o.LeaseTerm, 30*time.Second)
	return &WebhookOutbox{Store: s, WebhookOptions: o}
}

// Due returns when LeaseDeliveries or ReplayNext finds something, as known a second ago at most while the scheduler runs. ErrUnavailable.
func (o *WebhookOutbox) Due(ctx context.Context) (outbox.Due, error) {
	l, err := o.look(ctx, maxLookAge, nil)
	if err != nil {
		return outbox.Due{}, err
	}
	due := outbox.Due{ReadAt: l.ReadAt, Webhooks: l.local(l.Webhooks)}
	if l.Replay {
		due.Webhooks = l.ReadAt
	}
	return due, nil
}

// recheckBlocked is when a lane is looked at again whose dispatch has an earlier event to be written first.
const recheckBlocked = 200 * time.Millisecond

// LeaseDeliveries leases up to limit due deliveries, of each active endpoint up to what busy leaves of perEndpoint, and each the first of
// its lane. What it returns is leased, also if it met an error after that, which the next call finds again. ErrUnavailable.
func (o *WebhookOutbox) LeaseDeliveries(ctx context.Context, perEndpoint int, busy map[webhook.ID]int, limit int) ([]webhook.Lease, error) {
	o.writeEarly(ctx)
	endpoints, err := o.dueEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	// In random order, so that none is always the last to get what limit leaves.
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	var leases []webhook.Lease
	for i := range endpoints {
		free := min(perEndpoint-busy[endpoints[i].Row.ID], limit-len(leases))
		more, err := o.leaseLanes(ctx, &endpoints[i], free)
		leases = append(leases, more...)
		if err != nil && len(leases) == 0 {
			return nil, err
		}
	}
	return leases, nil
}

// timedWebhook is an endpoint, and the database's time when it was read.
type timedWebhook struct {
	Row webhookRow `gorm:"embedded"`
	Now int64
}

// dueEndpoints returns the active endpoints with due lanes.
func (o *WebhookOutbox) dueEndpoints(ctx context.Context) (found []timedWebhook, err error) {
	now := o.dialect.now()
	// With EXISTS, with the time inside, or without the whole order of the index, a server may read all lanes.
	err = o.webhooks.WithContext(ctx).Raw("SELECT w.*, "+now+" now FROM webhooks w WHERE w.status = ? AND (SELECT l.next_at FROM webhook_lanes l"+
		o.dialect.forceIndex("ix_webhook_lanes_due")+" WHERE l.webhook_id = w.id ORDER BY l.webhook_id, l.next_at LIMIT 1) <= "+now, webhook.Active).Scan(&found).Error
	return found, unavailable(err)
}

func (w *timedWebhook) secrets() webhook.Secrets {
	s := webhook.Secrets{Current: w.Row.Secret}
	if until := w.Row.PreviousUntil; until != nil && *until > w.Now {
		s.Previous, s.PreviousUntil = stringOrEmpty(w.Row.PreviousSecret), *toLocalTime(until, w.Now)
	}
	return s
}

// leaseRounds bounds how often leaseLanes looks for other lanes in place of those that can't be sent.
const leaseRounds = 8

// leaseLanes leases up to n due lanes of the endpoint, and returns them also with an error.
func (o *WebhookOutbox) leaseLanes(ctx context.Context, w *timedWebhook, n int) (leases []webhook.Lease, err error) {
	for range leaseRounds {
		want := n - len(leases)
		if want <= 0 {
			break
		}
		var found foundLanes
		err := o.transactWithRetry(ctx, o.webhooks, func(tx *gorm.DB) (err error) {
			found, err = o.leaseSome(tx, w, want)
			return unavailable(err)
		})
		if err != nil {
			return leases, err
		}
		leases = append(leases, found.leases...)
		o.writeOvertaken(ctx, found.overtaken)
		if found.due < want {
			break
		}
	}
	return leases, nil
}

// foundLanes are due lanes.
type foundLanes struct {
	due    int // how many there are
	leases []webhook.Lease
	// overtaken are events that are pushed later, and that hold back later events.
	overtaken []dispatch.EventID
}

// leaseSome looks at up to n due lanes. It leases those that can be sent, and postpones or deletes the others.
func (o *WebhookOutbox) leaseSome(tx *gorm.DB, w *timedWebhook, n int) (found foundLanes, err error) {
	until, id, now := time.Now().Add(o.LeaseTerm), w.Row.ID, o.dialect.now()
	var lanes []dispatch.ID
	err = tx.Raw("SELECT dispatch_id FROM webhook_lanes"+o.dialect.forceIndex("ix_webhook_lanes_due")+" WHERE webhook_id = ? AND next_at <= "+now+
		" ORDER BY next_at LIMIT ?"+o.dialect.skipLocked, id, n).Scan(&lanes).Error
	if found.due = len(lanes); err != nil || found.due == 0 {
		return found, err
	}
	first, err := o.firstPending(tx, id, lanes)
	if err != nil {
		return found, err
	}
	blocked, overtaken, err := o.blockedLanes(tx, &w.Row, lanes, first)
	if found.overtaken = overtaken; err != nil {
		return found, err
	}
	var send, wait, empty []dispatch.ID
	for _, lane := range lanes {
		row := first[lane]
		switch {
		case row == nil:
			empty = append(empty, lane)
		case blocked[lane]:
			wait = append(wait, lane)
		default:
			send = append(send, lane)
			found.leases = append(found.leases, webhook.Lease{
				Delivery: row.delivery(), Attempt: row.Attempt + 1, LeasedUntil: until, URL: w.Row.URL, Secrets: w.secrets(),
			})
		}
	}
	const these = " WHERE webhook_id = ? AND dispatch_id IN ?"
	if len(send) > 0 {
		err = tx.Exec("UPDATE webhook_lanes"+o.dialect.forceIndex("PRIMARY")+" SET claim = ?, next_at = "+now+" + ?"+these, o.Owner, o.LeaseTerm.Microseconds(), id, send).Error
	}
	if err == nil && len(wait) > 0 {
		err = tx.Exec("UPDATE webhook_lanes"+o.dialect.forceIndex("PRIMARY")+" SET claim = '', next_at = "+now+" + ?"+these, recheckBlocked.Microseconds(), id, wait).Error
	}
	if err == nil && len(empty) > 0 {
		err = tx.Exec("DELETE FROM webhook_lanes"+these, id, empty).Error
	}
	return found, err
}

// firstPending returns the earliest pending delivery of each lane that is still kept, without its attempts.
func (o *WebhookOutbox) firstPending(tx *gorm.DB, id webhook.ID, lanes []dispatch.ID) (map[dispatch.ID]*deliveryRow, error) {
	var rows []deliveryRow
	err := tx.Raw(`SELECT d.dispatch_id, d.webhook_id, d.event_id, d.type, d.status, d.body, d.attempt, d.created_at
		FROM webhook_lanes l`+o.dialect.forceIndex("PRIMARY")+` JOIN webhook_deliveries d`+o.dialect.forceIndex("PRIMARY")+`
		ON d.dispatch_id = l.dispatch_id AND d.webhook_id = l.webhook_id
		WHERE d.event_id = (
			SELECT p.event_id FROM webhook_deliveries p`+o.dialect.forceIndex("PRIMARY")+`
			WHERE p.dispatch_id = l.dispatch_id AND p.webhook_id = l.webhook_id AND p.status = ? AND p.created_at >= `+o.dialect.now()+` - ?
			ORDER BY p.dispatch_id, p.webhook_id, p.event_id LIMIT 1)
		AND l.webhook_id = ? AND l.dispatch_id IN ?`, webhook.Pending, keepDeliveries.Microseconds(), id, lanes).Scan(&rows).Error
	first := make(map[dispatch.ID]*deliveryRow, len(rows))
	for i := range rows {
		first[rows[i].DispatchID] = &rows[i]
	}
	return first, err
}

// blockedLanes returns the lanes whose dispatch has an earlier event that the endpoint has yet to get: one that is not completed and whose
// delivery is not written, or one that a replay has not reached. As the caller has locked the lanes, no such delivery is written meanwhile.
// It also returns those of these events that are pushed later: their deliveries were to be written early.
func (o *WebhookOutbox) blockedLanes(tx *gorm.DB, w *webhookRow, lanes []dispatch.ID, first map[dispatch.ID]*deliveryRow) (
	blocked map[dispatch.ID]bool, overtaken []dispatch.EventID, err error,
) {
	var events []struct {
		ID         dispatch.EventID
		DispatchID dispatch.ID
		Type       dispatch.EventType
		Later      bool
	}
	condition := "e.next_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d" + o.dialect.forceIndex("PRIMARY") +
		" WHERE d.dispatch_id = e.dispatch_id AND d.webhook_id = ? AND d.event_id = e.id)"
	args := []any{lanes, w.ID}
	if w.ReplayFrom != nil && w.ReplayUntil != nil {
		condition, args = condition+" OR e.id > ? AND e.id <= ?", append(args, *w.ReplayFrom, *w.ReplayUntil)
	}
	err = tx.Raw("SELECT e.id, e.dispatch_id, e.type, (e.next_at IS NOT NULL AND e.next_at > "+o.dialect.now()+" AND e.claim = '') later FROM events e"+o.dialect.forceIndex("ix_events_dispatch")+
		" WHERE e.dispatch_id IN ? AND ("+condition+")", args...).Scan(&events).Error
	blocked = map[dispatch.ID]bool{}
	sub := subscription{w.ID, w.Events}
	for _, e := range events {
		if head := first[e.DispatchID]; head != nil && e.ID < head.EventID && sub.wants(e.Type) {
			blocked[e.DispatchID] = true
			if e.Later {
				overtaken = append(overtaken, e.ID)
			}
		}
	}
	return blocked, overtaken, err
}

// ReleaseDeliveries ends leases whose deliveries were not attempted, so that they are due at once. ErrUnavailable.
func (o *WebhookOutbox) ReleaseDeliveries(ctx context.Context, leases []webhook.Lease) error {
	for chunk := range slices.Chunk(leases, resultsPerTransaction) {
		lanes := make([]laneKey, len(chunk))
		for i := range chunk {
			lanes[i] = deliveryLane(&chunk[i].Delivery)
		}
		where, args := lanesSQL(lanes)
		err := o.withRetry(ctx, func() error {
			return unavailable(o.webhooks.WithContext(ctx).Exec("UPDATE webhook_lanes"+o.dialect.forceIndex("PRIMARY")+" SET claim = '', next_at = "+o.dialect.now()+
				" WHERE claim = ? AND "+where, append([]any{o.Owner}, args...)...).Error)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

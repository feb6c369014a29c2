package webhooks

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/journal"
)

// resultsPerTransaction bounds the results that one transaction writes.
const resultsPerTransaction = 100

// CompleteDeliveries ends leases of the owner with their results, and returns the endpoints that it paused. It ignores
// a result whose lease was lost. ErrUnavailable, ErrUnknown: some may not be written, and their deliveries are sent again.
func (o *Outbox) CompleteDeliveries(ctx context.Context, results []webhook.Result) (paused []webhook.Endpoint, err error) {
	for chunk := range slices.Chunk(results, resultsPerTransaction) {
		var ended []Key
		var some []webhook.Endpoint
		err := o.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
			ended, some, err = o.complete(tx, chunk)
			return database.Unavailable(err)
		})
		if err != nil {
			return paused, err
		}
		paused = append(paused, some...)
		if err := o.wakeNext(ctx, ended); err != nil {
			return paused, err
		}
	}
	return paused, nil
}

// address is an endpoint at a URL: an admin may change it while deliveries are under way.
type address struct {
	webhook webhook.ID
	url     string
}

// verdict is what results say about an address. Of several results the greatest verdict counts.
type verdict int

const (
	unknown verdict = iota // nothing was sent
	failed
	succeeded
	gone // the endpoint answered 410
)

// complete writes some results, and returns the deliveries that have ended and the endpoints that it paused.
func (o *Outbox) complete(tx database.Tx, results []webhook.Result) (ended []Key, paused []webhook.Endpoint, err error) {
	keys := make([]Key, len(results))
	for i := range results {
		keys[i] = keyOf(&results[i].Lease.Delivery)
	}
	where, args := theseDeliveries(keys)
	var rows []DeliveryRow
	err = tx.Raw(`SELECT dispatch_id, webhook_id, event_id, status, attempts, attempt FROM webhook_deliveries {force PRIMARY}
		WHERE `+where+" AND status = 'PENDING' AND claim = ? ORDER BY dispatch_id, webhook_id, event_id {for_update}",
		append(args, o.owner)...).
		Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	now, err := database.Clock(tx)
	if err != nil {
		return nil, nil, err
	}
	leased := make(map[Key]*DeliveryRow, len(rows))
	for i := range rows {
		leased[rows[i].Key] = &rows[i]
	}
	verdicts := map[address]verdict{}
	for i := range results {
		r := &results[i]
		row := leased[keys[i]]
		if row == nil || row.Attempt+1 != r.Lease.Attempt {
			continue // the lease was lost, or this result has come twice
		}
		delete(leased, keys[i])
		at := address{r.Lease.Delivery.Endpoint, r.Lease.URL}
		verdicts[at] = max(verdicts[at], row.end(r, now))
		err := tx.Select("status", "attempt", "attempts", "claim", "next_at").Updates(row).Error
		if err != nil {
			return nil, nil, err
		}
		if row.Status != webhook.Pending {
			ended = append(ended, row.Key)
		}
	}
	paused, err = judge(tx, verdicts, now)
	return ended, paused, err
}

// end ends the delivery's lease with the result, and returns what that says about the endpoint.
func (row *DeliveryRow) end(r *webhook.Result, now time.Time) (v verdict) {
	wait := time.Duration(0)
	retryAfter, again := webhook.RetryAfter(r.Lease.Attempt)
	switch {
	case r.Unsent: // as if it had not been leased
	case r.Gone: // sent again when the endpoint is active again, as if this attempt had not been
		v = gone
	case r.Succeeded():
		v, row.Status = succeeded, webhook.Delivered
	case again:
		v, wait = failed, retryAfter+rand.N(retryAfter/10+1)
	default:
		v, row.Status = failed, webhook.Failed
	}
	if v == failed || v == succeeded {
		row.Attempt++
	}
	if !r.Unsent {
		a := r.Attempt
		a.At = a.At.UTC()
		row.Attempts = append(row.Attempts, a)
		row.Attempts = row.Attempts[max(0, len(row.Attempts)-webhook.KeptAttempts):]
	}
	row.Claim, row.NextAt = "", database.Micros(now.Add(wait))
	return v
}

// wakeNext makes the earliest unfinished delivery of the same dispatch and endpoint as each of the ended ones due,
// unless it is leased. It follows the COMMIT: a lease that has seen the ended one unfinished, and puts the next one
// off for it, has locked that one before.
func (o *Outbox) wakeNext(ctx context.Context, ended []Key) error {
	if len(ended) == 0 {
		return nil
	}
	var args []any
	for _, k := range ended {
		args = append(args, k.DispatchID, k.WebhookID)
	}
	db := o.db.Work.With(ctx)
	var next []Key
	err := db.Raw(`SELECT dispatch_id, webhook_id, MIN(event_id) event_id FROM webhook_deliveries {force PRIMARY}
		WHERE `+anyOf("dispatch_id = ? AND webhook_id = ?", len(ended))+" AND status = 'PENDING' GROUP BY dispatch_id, webhook_id",
		args...).
		Scan(&next).Error
	if err != nil || len(next) == 0 {
		return database.Unavailable(err)
	}
	where, args := theseDeliveries(next)
	return database.Retry(ctx, func() error {
		return database.Unavailable(db.Exec(`UPDATE webhook_deliveries {force PRIMARY} SET next_at = {now}
			WHERE claim = '' AND status = 'PENDING' AND `+where, args...).Error)
	})
}

// judge notes since when the endpoints have failed, and pauses those that are gone or have failed for too long. Of an
// endpoint that goes on as before it writes nothing.
func judge(tx database.Tx, verdicts map[address]verdict, now time.Time) (paused []webhook.Endpoint, err error) {
	var ids []webhook.ID
	for at := range verdicts {
		ids = append(ids, at.webhook)
	}
	var rows []Row
	if err := tx.Raw("SELECT * FROM webhooks WHERE id IN ? AND status = ? ORDER BY id", ids, webhook.Active).Scan(&rows).Error; err != nil {
		return nil, err
	}
	for _, w := range rows {
		before := w
		switch verdicts[address{w.ID, w.URL}] { // unknown if an admin has changed the URL meanwhile
		case gone:
			w.Status, w.PauseReason = webhook.Paused, webhook.PausedGone
		case succeeded:
			w.FailingSince = nil
		case failed:
			if w.FailingSince == nil {
				w.FailingSince = database.OptionalMicros(&now)
			} else if !now.Before(database.Time(*w.FailingSince).Add(webhook.PauseAfter)) {
				w.Status, w.PauseReason = webhook.Paused, webhook.PausedFailing
			}
		}
		if w == before {
			continue
		}
		if w.Status == webhook.Paused {
			w.Version, w.UpdatedAt = w.Version+1, database.Micros(now)
		}
		done := tx.Exec(`UPDATE webhooks SET status = ?, pause_reason = ?, failing_since = ?, version = ?, updated_at = ?
			WHERE id = ? AND version = ?`, w.Status, w.PauseReason, w.FailingSince, w.Version, w.UpdatedAt, w.ID, before.Version)
		switch {
		case done.Error != nil:
			return nil, done.Error
		case done.RowsAffected == 0 || w.Status == webhook.Active: // an admin has changed it meanwhile, and the next result decides
			continue
		}
		paused = append(paused, w.endpoint())
		detail := webhookChanges(before.endpoint(), w.endpoint())
		if err := journal.Record(tx, dispatch.AuditWebhookUpdate, string(w.ID), detail, now); err != nil {
			return nil, err
		}
	}
	return paused, nil
}

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/webhook"
)

// resultsPerTransaction bounds the results that one transaction writes.
const resultsPerTransaction = 100

// CompleteDeliveries writes the results of deliveries that the owner leases, and returns the endpoints that it
// paused. It ignores a result whose lease was lost. ErrUnavailable, ErrUnknown: some may not be written, and their
// deliveries are sent again.
func (o *Outbox) CompleteDeliveries(ctx context.Context, results []webhook.Result) (paused []webhook.Endpoint, err error) {
	for chunk := range slices.Chunk(results, resultsPerTransaction) {
		var ended []deliveryKey
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

// fate is what the results say about an address.
type fate struct{ succeeded, failed, gone bool }

// complete writes some results in one transaction, and returns the deliveries that have ended and the endpoints that it paused.
func (o *Outbox) complete(tx database.Tx, results []webhook.Result) (ended []deliveryKey, paused []webhook.Endpoint, err error) {
	leased, err := o.lockLeased(tx, results)
	if err != nil || len(leased) == 0 {
		return nil, nil, err
	}
	now, err := database.Clock(tx)
	if err != nil {
		return nil, nil, err
	}
	fates := map[address]*fate{}
	for i := range results {
		r := &results[i]
		key, at := keyOf(&r.Lease.Delivery), address{r.Lease.Delivery.Endpoint, r.Lease.URL}
		row := leased[key]
		if row == nil || row.Attempt+1 != r.Lease.Attempt {
			continue
		}
		delete(leased, key)
		if fates[at] == nil {
			fates[at] = &fate{}
		}
		pending, err := writeAttempt(tx, r, row, fates[at], now)
		if err != nil {
			return nil, nil, err
		}
		if !pending {
			ended = append(ended, key)
		}
	}
	paused, err = judgeEndpoints(tx, fates, now)
	return ended, paused, err
}

// lockLeased locks those of the results' deliveries that the owner leases.
func (o *Outbox) lockLeased(tx database.Tx, results []webhook.Result) (map[deliveryKey]*DeliveryRow, error) {
	keys := make([]deliveryKey, len(results))
	for i := range results {
		keys[i] = keyOf(&results[i].Lease.Delivery)
	}
	where, args := theseDeliveries(keys)
	var rows []DeliveryRow
	err := tx.Raw(`SELECT dispatch_id, webhook_id, event_id, attempts, attempt FROM webhook_deliveries {force PRIMARY}
		WHERE `+where+" AND status = 'PENDING' AND claim = ? ORDER BY dispatch_id, webhook_id, event_id {for_update}", append(args, o.Owner)...).
		Scan(&rows).Error
	leased := make(map[deliveryKey]*DeliveryRow, len(rows))
	for i := range rows {
		leased[rows[i].key()] = &rows[i]
	}
	return leased, err
}

// writeAttempt writes one result, and notes what it says about the endpoint. Pending says that the delivery is attempted again.
func writeAttempt(tx database.Tx, r *webhook.Result, row *DeliveryRow, f *fate, now time.Time) (pending bool, err error) {
	attempts, err := withAttempt(row.Attempts, r.Attempt)
	if err != nil {
		return false, fmt.Errorf("attempts of %s: %w", r.Lease.Delivery.ID, err)
	}
	status, n := webhook.Pending, r.Lease.Attempt
	wait, again := webhook.RetryAfter(n)
	switch {
	case r.Succeeded():
		f.succeeded, status, wait = true, webhook.Delivered, 0
	case r.Gone: // sent again when the endpoint is active again, as if this attempt had not been
		f.gone, n, wait = true, row.Attempt, 0
	case again:
		f.failed = true
		wait += rand.N(wait/10 + 1)
	default:
		f.failed, status = true, webhook.Failed
	}
	return status == webhook.Pending, tx.Exec(`UPDATE webhook_deliveries SET status = ?, attempt = ?, attempts = ?, claim = '', next_at = ?
		WHERE dispatch_id = ? AND webhook_id = ? AND event_id = ?`,
		status, n, attempts, database.Micros(now.Add(wait)), row.DispatchID, row.WebhookID, row.EventID).Error
}

// wakeNext makes the earliest unfinished delivery of the same dispatch and endpoint as each of the ended ones due,
// unless it is leased. It follows the COMMIT: a lease that has seen the ended one unfinished, and puts the next one
// off for it, has locked that one before.
func (o *Outbox) wakeNext(ctx context.Context, ended []deliveryKey) error {
	if len(ended) == 0 {
		return nil
	}
	var args []any
	for _, k := range ended {
		args = append(args, k.dispatch, k.webhook)
	}
	db := o.db.Work.With(ctx)
	var rows []DeliveryRow
	err := db.Raw(`SELECT dispatch_id, webhook_id, MIN(event_id) event_id FROM webhook_deliveries {force PRIMARY}
		WHERE `+anyOf("dispatch_id = ? AND webhook_id = ?", len(ended))+" AND status = 'PENDING' GROUP BY dispatch_id, webhook_id", args...).
		Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return database.Unavailable(err)
	}
	next := make([]deliveryKey, len(rows))
	for i := range rows {
		next[i] = rows[i].key()
	}
	where, args := theseDeliveries(next)
	return database.Retry(ctx, func() error {
		return database.Unavailable(db.Exec(`UPDATE webhook_deliveries {force PRIMARY} SET next_at = {now}
			WHERE claim = '' AND status = 'PENDING' AND `+where, args...).Error)
	})
}

// judgeEndpoints notes since when the endpoints have failed, and pauses those that are gone or have failed for too
// long. Of an endpoint that goes on as before it writes nothing.
func judgeEndpoints(tx database.Tx, fates map[address]*fate, now time.Time) (paused []webhook.Endpoint, err error) {
	ids := make([]webhook.ID, 0, len(fates))
	for at := range fates {
		ids = append(ids, at.webhook)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []Row
	if err := tx.Raw("SELECT * FROM webhooks WHERE id IN ? AND status = ? ORDER BY id", ids, webhook.Active).Scan(&rows).Error; err != nil {
		return nil, err
	}
	for i := range rows {
		w := &rows[i]
		f := fates[address{w.ID, w.URL}]
		if f == nil {
			continue // an admin has changed the URL meanwhile: nothing is known of the new one
		}
		switch {
		case f.gone:
			paused, err = pause(tx, w, webhook.PausedGone, now, paused)
		case f.succeeded && w.FailingSince != nil:
			err = tx.Exec("UPDATE webhooks SET failing_since = NULL WHERE id = ?", w.ID).Error
		case f.succeeded:
		case f.failed && w.FailingSince == nil:
			err = tx.Exec("UPDATE webhooks SET failing_since = ? WHERE id = ? AND failing_since IS NULL", database.Micros(now), w.ID).Error
		case f.failed && !now.Before(database.Time(*w.FailingSince).Add(webhook.PauseAfter)):
			paused, err = pause(tx, w, webhook.PausedFailing, now, paused)
		}
		if err != nil {
			return nil, err
		}
	}
	return paused, nil
}

// pause pauses an active endpoint whose row is as it was read, and adds it to those that are paused.
func pause(tx database.Tx, w *Row, why webhook.PauseReason, now time.Time, paused []webhook.Endpoint) ([]webhook.Endpoint, error) {
	before := w.endpoint()
	w.Status, w.PauseReason, w.Version, w.UpdatedAt = webhook.Paused, why, w.Version+1, database.Micros(now)
	done := tx.Exec("UPDATE webhooks SET status = ?, pause_reason = ?, version = ?, updated_at = ? WHERE id = ? AND version = ?",
		w.Status, w.PauseReason, w.Version, w.UpdatedAt, w.ID, before.Version)
	if done.Error != nil || done.RowsAffected == 0 { // an admin has changed it meanwhile; the next result decides
		return paused, done.Error
	}
	return append(
		paused,
		w.endpoint(),
	), journal.Record(tx, dispatch.AuditWebhookUpdate, string(w.ID), webhookChanges(before, w.endpoint()), now)
}

// attemptJSON is an attempt as it is stored. The times are microseconds.
type attemptJSON struct {
	At         int64  `json:"at"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Error      string `json:"error,omitempty"`
	Took       int64  `json:"took"`
	Answer     string `json:"answer,omitempty"`
}

// maxAttemptError bounds the text of an attempt's error, in characters.
const maxAttemptError = 500

// withAttempt returns the stored attempts with one more, without the oldest if they are too many.
func withAttempt(stored string, a webhook.Attempt) (string, error) {
	var all []attemptJSON
	if err := json.Unmarshal([]byte(stored), &all); err != nil {
		return "", err
	}
	all = append(all,
		attemptJSON{database.Micros(a.At), a.HTTPStatus, database.Truncate(a.Error, maxAttemptError), a.Took.Microseconds(), a.Answer})
	encoded, err := json.Marshal(all[max(0, len(all)-webhook.KeptAttempts):])
	return string(encoded), err
}

func attemptsOf(stored string) ([]webhook.Attempt, error) {
	var all []attemptJSON
	if err := json.Unmarshal([]byte(stored), &all); err != nil {
		return nil, err
	}
	attempts := make([]webhook.Attempt, len(all))
	for i, a := range all {
		attempts[i] = webhook.Attempt{
			At: database.Time(a.At), HTTPStatus: a.HTTPStatus, Error: a.Error, Took: time.Duration(a.Took) * time.Microsecond, Answer: a.Answer,
		}
	}
	return attempts, nil
}

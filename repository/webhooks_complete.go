package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/webhook"
)

// resultsPerTransaction bounds the results that one transaction writes.
const resultsPerTransaction = 100

// CompleteDeliveries writes the results of deliveries that the owner leases, and returns the endpoints that it paused. It ignores a result
// whose lease was lost. ErrUnavailable, ErrUnknown: some may not be written, and their deliveries are sent again.
func (o *WebhookOutbox) CompleteDeliveries(ctx context.Context, results []webhook.Result) (paused []webhook.Endpoint, err error) {
	for chunk := range slices.Chunk(results, resultsPerTransaction) {
		var c completion
		err := o.transactWithRetry(ctx, o.webhooks, func(tx *gorm.DB) error {
			c = completion{WebhookOutbox: o, tx: tx, fates: map[address]*fate{}}
			return unavailable(c.run(chunk))
		})
		if err != nil {
			return paused, err
		}
		paused = append(paused, c.paused...)
		if len(c.due) > 0 {
			o.wakeWebhooks()
		}
	}
	return paused, nil
}

// completion writes some results in one transaction.
type completion struct {
	*WebhookOutbox
	tx  *gorm.DB
	now time.Time
	// due are the lanes that have another pending delivery, done those that have none.
	due, done []laneKey
	fates     map[address]*fate
	paused    []webhook.Endpoint
}

// address is an endpoint at a URL: an admin may change it while deliveries are under way.
type address struct {
	webhook webhook.ID
	url     string
}

// fate is what the results say about an address.
type fate struct{ succeeded, failed, gone bool }

func deliveryLane(d *webhook.Delivery) laneKey {
	if d.Dispatch == "" { // a test
		return laneKey{d.Endpoint, dispatch.ID(d.Event)}
	}
	return laneKey{d.Endpoint, d.Dispatch}
}

// lanesSQL returns a condition for the lanes.
func lanesSQL(lanes []laneKey) (string, []any) {
	args := make([]any, 0, 2*len(lanes))
	for _, l := range lanes {
		args = append(args, l.webhook, l.dispatch)
	}
	return anyOf("webhook_id = ? AND dispatch_id = ?", len(lanes)), args
}

// anyOf returns the condition n times, with OR between.
func anyOf(condition string, n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat(condition+" OR ", n), " OR ") + ")"
}

func (c *completion) run(results []webhook.Result) error {
	leased, err := c.lockLeased(results)
	if err != nil || len(leased) == 0 {
		return err
	}
	if c.now, err = c.clock(c.tx); err != nil {
		return err
	}
	pending, err := c.pendingDeliveries(results)
	if err != nil {
		return err
	}
	for i := range results {
		r := &results[i]
		lane := deliveryLane(&r.Lease.Delivery)
		row := pending[r.Lease.Delivery.Event]
		if d := row[lane]; leased[lane] && d != nil && d.Row.Attempt+1 == r.Lease.Attempt {
			delete(leased, lane)
			if err := c.complete(r, lane, d); err != nil {
				return err
			}
		}
	}
	if err := c.endLanes(); err != nil {
		return err
	}
	return c.judgeEndpoints()
}

// lockLeased locks those of the results' lanes that the owner leases.
func (c *completion) lockLeased(results []webhook.Result) (map[laneKey]bool, error) {
	lanes := make([]laneKey, len(results))
	for i := range results {
		lanes[i] = deliveryLane(&results[i].Lease.Delivery)
	}
	where, args := lanesSQL(lanes)
	var rows []laneRow
	err := c.tx.Raw("SELECT webhook_id, dispatch_id FROM webhook_lanes"+c.dialect.forceIndex("PRIMARY")+
		" WHERE "+where+" AND claim = ? ORDER BY webhook_id, dispatch_id"+c.dialect.forUpdate, append(args, c.Owner)...).Scan(&rows).Error
	leased := make(map[laneKey]bool, len(rows))
	for _, row := range rows {
		leased[laneKey{row.WebhookID, row.DispatchID}] = true
	}
	return leased, err
}

// pendingDelivery is a pending delivery, and whether its lane has another.
type pendingDelivery struct {
	Row  deliveryRow `gorm:"embedded"`
	More bool
}

// pendingDeliveries reads those of the results' deliveries that are still pending, by event and lane.
func (c *completion) pendingDeliveries(results []webhook.Result) (map[dispatch.EventID]map[laneKey]*pendingDelivery, error) {
	args := []any{webhook.Pending, webhook.Pending}
	for i := range results {
		d := &results[i].Lease.Delivery
		args = append(args, deliveryLane(d).dispatch, d.Endpoint, d.Event)
	}
	var rows []pendingDelivery
	err := c.tx.Raw(`SELECT d.dispatch_id, d.webhook_id, d.event_id, d.attempts, d.attempt, (SELECT 1 FROM webhook_deliveries p`+c.dialect.forceIndex("PRIMARY")+`
		WHERE p.dispatch_id = d.dispatch_id AND p.webhook_id = d.webhook_id AND p.event_id <> d.event_id AND p.status = ? LIMIT 1) IS NOT NULL more
		FROM webhook_deliveries d`+c.dialect.forceIndex("PRIMARY")+` WHERE d.status = ? AND `+
		anyOf("d.dispatch_id = ? AND d.webhook_id = ? AND d.event_id = ?", len(results)), args...).Scan(&rows).Error
	found := map[dispatch.EventID]map[laneKey]*pendingDelivery{}
	for i := range rows {
		row := &rows[i].Row
		if found[row.EventID] == nil {
			found[row.EventID] = map[laneKey]*pendingDelivery{}
		}
		found[row.EventID][laneKey{row.WebhookID, row.DispatchID}] = &rows[i]
	}
	return found, err
}

// complete writes one result, and notes what becomes of the lane and the endpoint.
func (c *completion) complete(r *webhook.Result, lane laneKey, d *pendingDelivery) error {
	at := address{lane.webhook, r.Lease.URL}
	f := c.fates[at]
	if f == nil {
		f = &fate{}
		c.fates[at] = f
	}
	attempts, err := withAttempt(d.Row.Attempts, r.Attempt)
	if err != nil {
		return fmt.Errorf("attempts of %s: %w", r.Lease.Delivery.ID, err)
	}
	status, n := webhook.Pending, r.Lease.Attempt
	wait, again := webhook.RetryAfter(n)
	switch {
	case r.Succeeded():
		f.succeeded, status = true, webhook.Delivered
	case r.Gone: // sent again when the endpoint is active again, as if this attempt had not been
		f.gone, n, wait = true, d.Row.Attempt, 0
	case again:
		f.failed = true
		wait += rand.N(wait/10 + 1)
	default:
		f.failed, status = true, webhook.Failed
	}
	err = c.tx.Exec("UPDATE webhook_deliveries SET status = ?, attempt = ?, attempts = ? WHERE dispatch_id = ? AND webhook_id = ? AND event_id = ?",
		status, n, attempts, lane.dispatch, lane.webhook, d.Row.EventID).Error
	switch {
	case err != nil:
		return err
	case status == webhook.Pending:
		return c.tx.Exec("UPDATE webhook_lanes SET claim = '', next_at = ? WHERE webhook_id = ? AND dispatch_id = ?",
			micros(c.now.Add(wait)), lane.webhook, lane.dispatch).Error
	case d.More:
		c.due = append(c.due, lane)
	default:
		c.done = append(c.done, lane)
	}
	return nil
}

// endLanes ends the leases of the lanes whose delivery has ended.
func (c *completion) endLanes() error {
	if len(c.due) > 0 {
		where, args := lanesSQL(c.due)
		err := c.tx.Exec("UPDATE webhook_lanes"+c.dialect.forceIndex("PRIMARY")+" SET claim = '', next_at = ? WHERE "+where, append([]any{micros(c.now)}, args...)...).Error
		if err != nil {
			return err
		}
	}
	if len(c.done) == 0 {
		return nil
	}
	where, args := lanesSQL(c.done)
	return c.tx.Exec("DELETE FROM webhook_lanes WHERE "+where, args...).Error
}

// judgeEndpoints notes since when the endpoints have failed, and pauses those that are gone or have failed for too long. Of an endpoint that
// goes on as before it writes nothing.
func (c *completion) judgeEndpoints() error {
	ids := make([]webhook.ID, 0, len(c.fates))
	for at := range c.fates {
		ids = append(ids, at.webhook)
	}
	if len(ids) == 0 {
		return nil
	}
	var rows []webhookRow
	if err := c.tx.Raw("SELECT * FROM webhooks WHERE id IN ? AND status = ? ORDER BY id", ids, webhook.Active).Scan(&rows).Error; err != nil {
		return err
	}
	for i := range rows {
		f := c.fates[address{rows[i].ID, rows[i].URL}]
		if f == nil {
			continue // an admin has changed the URL meanwhile: nothing is known of the new one
		}
		if err := c.judge(&rows[i], f); err != nil {
			return err
		}
	}
	return nil
}

func (c *completion) judge(w *webhookRow, f *fate) error {
	switch {
	case f.gone:
		return c.pause(w, webhook.PausedGone)
	case f.succeeded && w.FailingSince != nil:
		return c.tx.Exec("UPDATE webhooks SET failing_since = NULL WHERE id = ?", w.ID).Error
	case f.succeeded:
		return nil
	case f.failed && w.FailingSince == nil:
		return c.tx.Exec("UPDATE webhooks SET failing_since = ? WHERE id = ? AND failing_since IS NULL", micros(c.now), w.ID).Error
	case f.failed && !c.now.Before(fromMicros(*w.FailingSince).Add(webhook.PauseAfter)):
		return c.pause(w, webhook.PausedFailing)
	}
	return nil
}

// pause pauses an active endpoint whose row is as it was read.
func (c *completion) pause(w *webhookRow, why webhook.PauseReason) error {
	before := w.endpoint()
	w.Status, w.PauseReason, w.Version, w.UpdatedAt = webhook.Paused, why, w.Version+1, micros(c.now)
	done := c.tx.Exec("UPDATE webhooks SET status = ?, pause_reason = ?, version = ?, updated_at = ? WHERE id = ? AND version = ?",
		w.Status, w.PauseReason, w.Version, w.UpdatedAt, w.ID, before.Version)
	if done.Error != nil || done.RowsAffected == 0 { // an admin has changed it meanwhile; the next result decides
		return done.Error
	}
	c.paused = append(c.paused, w.endpoint())
	return audit(c.tx, dispatch.AuditWebhookUpdate, string(w.ID), webhookChanges(before, w.endpoint()), c.now)
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
	all = append(all, attemptJSON{micros(a.At), a.HTTPStatus, truncate(a.Error, maxAttemptError), a.Took.Microseconds(), a.Answer})
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
			At: fromMicros(a.At), HTTPStatus: a.HTTPStatus, Error: a.Error, Took: time.Duration(a.Took) * time.Microsecond, Answer: a.Answer,
		}
	}
	return attempts, nil
}

package repository

import (
	"context"
	"slices"

	"firsttap/dispatch"
)

// WithoutRecipients returns the events that have no recipients: the event's driver has no device, and its dispatch has neither a
// notification nor a topic. It returns only events that the owner leases. The caller passes no event of an offer. ErrUnavailable.
//
// A server answers for an event only if it has the event, and so all that was committed before. An expansion that commits
// notifications later checks them against the dispatch: see dropOvertaken.
func (o *Outbox) WithoutRecipients(ctx context.Context, events []dispatch.EventID) (none []dispatch.EventID, err error) {
	// With EXISTS, an optimizer may read a whole table once instead of one row for each event.
	err = o.work.WithContext(ctx).Raw(`SELECT e.id FROM events e {force PRIMARY} WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ?
		AND (SELECT 1 FROM devices WHERE driver_id = e.driver_id AND quarantined_at IS NULL LIMIT 1) IS NULL
		AND (SELECT 1 FROM notifications WHERE dispatch_id = e.dispatch_id LIMIT 1) IS NULL
		AND (SELECT 1 FROM topics WHERE name = CONCAT('dispatch-', e.dispatch_id) AND NOT ended LIMIT 1) IS NULL`,
		events, o.Owner).Scan(&none).Error
	return none, unavailable(err)
}

// CompleteEvents completes those of the events that the owner leases. ErrUnavailable means that none may be completed.
func (o *Outbox) CompleteEvents(ctx context.Context, events []dispatch.EventID) error {
	sorted := slices.Sorted(slices.Values(events)) // two statements that lock the same rows lock them in the same order
	return unavailable(o.withRetry(ctx, func() error {
		return o.work.WithContext(ctx).Exec(`UPDATE events {force PRIMARY} SET next_at = NULL, claim = ''
			WHERE id IN ? AND next_at IS NOT NULL AND claim = ?`, sorted, o.Owner).Error
	}))
}

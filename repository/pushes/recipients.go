package pushes

import (
	"context"
	"slices"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
)

// WithoutRecipients returns the events that have no recipients: the event's driver has no device, and its dispatch has neither a
// notification nor a topic. It returns only events that the owner leases. The caller passes no event of an offer. ErrUnavailable.
//
// A server answers for an event only if it has the event, and so all that was committed before. An expansion that commits
// notifications later checks them against the dispatch: see dropOvertaken.
func (o *Outbox) WithoutRecipients(ctx context.Context, events []dispatch.EventID) (none []dispatch.EventID, err error) {
	// With EXISTS, an optimizer may read a whole table once instead of one row for each event.
	err = o.db.Work.With(ctx).Raw(`SELECT e.id FROM events e {force PRIMARY} WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ?
		AND (SELECT 1 FROM devices WHERE driver_id = e.driver_id AND quarantined_at IS NULL LIMIT 1) IS NULL
		AND (SELECT 1 FROM notifications WHERE dispatch_id = e.dispatch_id LIMIT 1) IS NULL
		AND (SELECT 1 FROM topics WHERE name = CONCAT('dispatch-', e.dispatch_id) AND NOT ended LIMIT 1) IS NULL`,
		events, o.Owner).Scan(&none).Error
	return none, database.Unavailable(err)
}

// CompleteEvents completes those of the events that the owner leases. ErrUnavailable means that none may be completed.
func (o *Outbox) CompleteEvents(ctx context.Context, events []dispatch.EventID) error {
	sorted := slices.Sorted(slices.Values(events)) // two statements that lock the same rows lock them in the same order
	return database.Unavailable(database.Retry(ctx, func() error {
		return o.db.Work.With(ctx).Exec(`UPDATE events {force PRIMARY} SET next_at = NULL, claim = ''
			WHERE id IN ? AND next_at IS NOT NULL AND claim = ?`, sorted, o.Owner).Error
	}))
}

// replaceByTopic leaves out the recipients that are subscribed to the dispatch's topic. In the event's first part it adds one message to
// the topic.
func (e *expansion) replaceByTopic(to []recipient, first bool) ([]recipient, error) {
	topic := outbox.TopicOf(e.result.Dispatch.ID)
	const subscribed = `FROM topic_members m JOIN devices dv ON dv.id = m.device_id AND dv.push_token = m.push_token WHERE m.topic = ?
		AND m.subscribed`
	var rest []recipient
	if first {
		var some bool
		err := e.tx.Raw(
			"SELECT EXISTS (SELECT 1 "+subscribed+") AND NOT EXISTS (SELECT 1 FROM notifications WHERE event_id = ? AND device_id = '')",
			topic, e.result.Event.ID,
		).Scan(&some).Error
		if err != nil {
			return nil, err
		}
		if some {
			rest = append(rest, recipient{topic: topic})
		}
	}
	for part := range slices.Chunk(to, database.RowsPerStatement) {
		ids := make([]dispatch.DeviceID, len(part))
		for i := range part {
			ids[i] = part[i].device.ID
		}
		var found []dispatch.DeviceID
		if err := e.tx.Raw("SELECT dv.id "+subscribed+" AND m.device_id IN ?", topic, ids).Scan(&found).Error; err != nil {
			return nil, err
		}
		reached := make(map[dispatch.DeviceID]bool, len(found))
		for _, id := range found {
			reached[id] = true
		}
		for _, r := range part {
			if !reached[r.device.ID] || r.delay > 0 { // the topic's message may arrive before an offer that is under way
				rest = append(rest, r)
			}
		}
	}
	return rest, nil
}

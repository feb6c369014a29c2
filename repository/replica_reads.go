package repository

import (
	"context"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/webhook"
)

// The reads of this file may be answered by the replica: the backoffice shows what they return, and nothing is decided by it.

// List returns the dispatches that q selects, newest first, and the cursor of the next page, "" after the last. Every page costs the same.
// With q.Text a page may have fewer dispatches than q.Limit, or none, although there is a next one. The primary answers for a driver, who
// decides by the answer. ErrBadCursor.
func (s *Store) List(ctx context.Context, q dispatch.Query) (items []dispatch.Dispatch, next string, err error) {
	if q.Driver != "" {
		return s.listDispatches(ctx, q)
	}
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listDispatches(ctx, q)
		return err
	})
	return items, next, err
}

// Drivers returns the drivers that q selects, either the erased ones or the others, newest first, and the cursor of the next page, "" after the last.
func (s *Store) Drivers(ctx context.Context, q dispatch.DriverQuery) (items []dispatch.DriverRecord, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listDrivers(ctx, q)
		return err
	})
	return items, next, err
}

// Board counts the dispatches of a region, "" for all, and the drivers on duty in each region. It counts the open and recently ended
// dispatches by indexes, and reads the open ones until it has found dispatch.MaxUnseen that nobody has seen.
func (s *Store) Board(ctx context.Context, region string) (b dispatch.Board, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		b, err = s.countBoard(ctx, region)
		return err
	})
	return b, err
}

// Supply returns the counts of a region in the last hours, the oldest first; for "" those of every region and the totals,
// whose region is "". If these are more than maxSupplyPoints, it returns those of every second minute, every fifth, and so on, and at most the newest.
func (s *Store) Supply(ctx context.Context, region string, hours int) (counted []dispatch.Supply, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		counted, err = s.listSupply(ctx, region, hours)
		return err
	})
	return counted, err
}

// Offers returns the offers of the dispatch to each driver in the round, 0 for all, by round and driver, and the cursor of the
// next page, "" after the last. ErrNotFound, ErrBadCursor.
func (s *Store) Offers(ctx context.Context, id dispatch.ID, round int, page dispatch.Page) (items []dispatch.Offered, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listOffers(ctx, id, round, page)
		return err
	})
	return items, next, err
}

// Attempts returns the taps on a dispatch in the round, 0 for all, the oldest first, and the cursor of the next page, ""
// after the last. The reaction time in an earlier round counts from the round's first event. ErrNotFound, ErrBadCursor.
func (s *Store) Attempts(ctx context.Context, id dispatch.ID, round int, page dispatch.Page) (items []dispatch.AttemptRecord, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listAttempts(ctx, id, round, page)
		return err
	})
	return items, next, err
}

// Events returns the events of a dispatch, the oldest first, and the cursor of the next page, "" after the last.
// ErrNotFound, ErrBadCursor.
func (s *Store) Events(ctx context.Context, id dispatch.ID, page dispatch.Page) (items []dispatch.Event, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listEvents(ctx, id, page)
		return err
	})
	return items, next, err
}

// Notifications returns the notifications of a dispatch, the oldest first, and the cursor of the next page, "" after the
// last. An unknown dispatch has none.
func (s *Store) Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) (items []outbox.Notification, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listNotifications(ctx, id, page)
		return err
	})
	return items, next, err
}

// NotificationsBy returns the notifications of all dispatches that have the status, "" for any, and the cursor of the next
// page, "" after the last. Every page costs the same. The order is by next_at, descending: DEAD and DROPPED ones by when they
// ended, PENDING ones by when they are due, SENT ones by when their offer ends. For any status it is the newest first.
func (s *Store) NotificationsBy(ctx context.Context, status outbox.Status, page dispatch.Page) (items []outbox.Notification, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listNotificationsBy(ctx, status, page)
		return err
	})
	return items, next, err
}

// Funnel counts the drivers of each round, the first round first. The counts of notified drivers and of accepted pushes
// last as long as the notifications: in the first forgotten rounds both are 0 and mean nothing. The counts of drivers that
// saw the offer or tapped last as long as Prune keeps those rows. ErrNotFound.
func (s *Store) Funnel(ctx context.Context, id dispatch.ID) (rounds []outbox.Funnel, forgotten int, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		rounds, forgotten, err = s.countFunnel(ctx, id)
		return err
	})
	return rounds, forgotten, err
}

// Runs returns the runs of a job, the latest slot first, and the cursor of the next page, "" after the last.
func (s *Store) Runs(ctx context.Context, job string, page dispatch.Page) (items []cronjob.Run, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listRuns(ctx, job, page)
		return err
	})
	return items, next, err
}

// WebhookDeliveries returns the endpoint's deliveries with the status, "" for any, those of the newest events first, and the cursor of the
// next page, "" after the last. webhook.ErrNotFound, ErrBadCursor.
func (s *Store) WebhookDeliveries(ctx context.Context, id webhook.ID, status webhook.DeliveryStatus, page dispatch.Page) (items []webhook.Delivery, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listDeliveries(ctx, id, status, page)
		return err
	})
	return items, next, err
}

// Audit returns the audit entries that q selects, newest first, and the cursor of the next page, "" after the last.
func (s *Store) Audit(ctx context.Context, q dispatch.AuditQuery) (items []dispatch.AuditEntry, next string, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		items, next, err = s.listAudit(ctx, q)
		return err
	})
	return items, next, err
}

// TapStatistics summarizes the driver's taps of the last thirty days. ErrDriverNotFound.
func (s *Store) TapStatistics(ctx context.Context, driver dispatch.DriverID) (taps dispatch.TapStatistics, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		taps, err = s.countTaps(ctx, driver)
		return err
	})
	return taps, err
}

// Preview counts every driver who is not erased as a candidate for these terms, and returns the database's time. It reads the eligible and the suspended
// drivers, and counts that are kept.
func (s *Store) Preview(ctx context.Context, terms dispatch.Terms) (p dispatch.Preview, now time.Time, err error) {
	err = s.fromReplica(ctx, func(ctx context.Context, s *Store) error {
		p, now, err = s.previewAudience(ctx, terms)
		return err
	})
	return p, now, err
}

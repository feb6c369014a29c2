package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/outbox"
)

// Create writes the dispatch that build returns for the database's time. If the request was carried out before, Create
// returns its dispatch as it is now. ErrDuplicateExternalID, and ErrUnavailable, ErrUnknown.
func (s *Store) Create(ctx context.Context,
	build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error),
) (dispatch.Dispatch, error) {
	general := s.general.WithContext(ctx)
	switch applied, err := alreadyApplied(general, dispatchProof); {
	case err != nil:
		return dispatch.Dispatch{}, err
	case applied:
		return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
	}
	var c creation
	err := s.transactWithRetry(ctx, s.writes, func(tx *gorm.DB) (err error) {
		c, err = s.create(tx, build)
		return err
	})
	if errors.Is(err, dispatch.ErrDuplicateExternalID) {
		// The request may have been carried out just now, by another instance.
		switch applied, failed := alreadyApplied(general, dispatchProof); {
		case failed != nil:
			return dispatch.Dispatch{}, fmt.Errorf("%w: another dispatch, or this request's, has the external_id: %v", dispatch.ErrUnknown, failed) //nolint:errorlint // it is not ErrUnavailable
		case applied:
			return s.Dispatch(ctx, idempotency.DispatchID(ctx, time.Time{}))
		}
	}
	if err = s.settleLost(ctx, c.events, err); err == nil {
		s.announce(c.dispatch, c.events, c.pushes)
	}
	return c.dispatch, err
}

// creation is what one transaction of Create writes.
type creation struct {
	dispatch dispatch.Dispatch
	events   []dispatch.Event
	pushes   []outbox.Push
}

func (s *Store) create(tx *gorm.DB, build func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error)) (c creation, err error) {
	now, turn, err := s.clockAndTurn(tx)
	if err != nil {
		return c, err
	}
	if c.dispatch, c.events, err = build(now); err != nil {
		return c, err
	}
	row := toDispatchRow(c.dispatch)
	err = tx.Create(&row).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return c, dispatch.ErrDuplicateExternalID
	}
	if err != nil {
		return c, unavailable(err)
	}
	if err := s.addWords(tx, s.dispatchWords(), wordEntries(row.ID, row.words())); err != nil {
		return c, err
	}
	if err := s.writeEvents(tx, c.events, 0); err != nil {
		return c, unavailable(err)
	}
	c.pushes, err = s.writeFirstPushes(tx, c, now, turn)
	return c, unavailable(err)
}

// clockAndTurn returns the database's time, and the turn that is being leased in the lane of offers.
func (s *Store) clockAndTurn(tx *gorm.DB) (now time.Time, turn int64, err error) {
	var row struct {
		Now   int64
		Offer *int64
	}
	err = tx.Raw("SELECT " + s.dialect.now() + " now, (" + s.firstDue(outbox.LaneOffer) + ") offer").Scan(&row).Error
	if err != nil {
		return now, 0, unavailable(err)
	}
	return fromMicros(row.Now), currentTurn(outbox.LaneOffer, row.Offer), nil
}

// maxFirstPushes bounds the pushes that a creation writes. A larger audience is left to the relay: nobody waits for that.
const maxFirstPushes = 64

// writeFirstPushes writes the offers of a new dispatch and leases them to this process's relay, so that they are sent as soon as the
// dispatch is committed. It writes all of them, or none if they are more than the relay has room for. The event stays leased and is not
// expanded yet: after the COMMIT the relay looks for drivers who went on duty meanwhile.
func (s *Store) writeFirstPushes(tx *gorm.DB, c creation, now time.Time, turn int64) ([]outbox.Push, error) {
	if s.options.PushRoom == nil || len(c.events) != 1 || c.events[0].PushAt.After(c.events[0].At) {
		return nil, nil
	}
	room := min(s.options.PushRoom(), maxFirstPushes)
	if room == 0 {
		return nil, nil
	}
	var result outbox.Expansion
	result.Dispatch, result.Event = c.dispatch, c.events[0]
	e := expansion{
		Outbox: s.Outbox(OutboxOptions{Owner: s.options.OutboxOwner, LeaseTerm: s.options.OutboxLease}),
		tx:     tx, now: now, leasedUntil: time.Now().Add(s.options.OutboxLease), result: &result,
	}
	e.lastTurns[outbox.LaneOffer] = turn
	for _, t := range c.events[0].Deliveries() {
		p, err := e.read(t, nil, room+1)
		if err != nil || len(p.devices) == 0 || p.drivers > room || len(p.devices) > room {
			return nil, err
		}
		if err := e.insert(t, p.devices, &room); err != nil {
			return nil, err
		}
	}
	return result.Pushes, nil
}

// Notified asks about events whose pushes a creation wrote. It returns those that the owner leases and that need no expansion, because each
// device of each driver who is eligible now has its notification.
func (o *Outbox) Notified(ctx context.Context, events []dispatch.EventID) (all []dispatch.EventID, err error) {
	err = o.relay.WithContext(ctx).Raw(`SELECT e.id FROM events e`+o.dialect.forceIndex("PRIMARY")+` JOIN dispatches d ON d.id = e.dispatch_id
		WHERE e.id IN ? AND e.next_at IS NOT NULL AND e.claim = ?
		AND NOT EXISTS (SELECT 1 FROM driver_regions r`+o.dialect.forceIndex("PRIMARY")+` JOIN devices dv`+o.dialect.forceIndex("uq_devices_installation")+` ON dv.driver_id = r.driver_id
			LEFT JOIN notifications n ON n.event_id = e.id AND n.device_id = dv.id
			WHERE r.region = d.region AND r.vehicle_class = d.vehicle_class AND r.on_duty = 1
			AND (r.suspended_until IS NULL OR r.suspended_until <= `+o.dialect.now()+`)
			AND (d.min_working_height_m IS NULL OR r.working_height_m >= d.min_working_height_m)
			AND dv.quarantined_at IS NULL AND n.id IS NULL AND NOT EXISTS (SELECT 1 FROM dispatches w`+o.dialect.forceIndex("ix_dispatches_driver")+`
				WHERE w.accepted_by = r.driver_id AND w.status IN ('ACCEPTED', 'IN_PROGRESS')
				AND w.work_ends_at > d.work_starts_at AND w.work_starts_at < d.work_ends_at))`, events, o.Owner).Scan(&all).Error
	return all, unavailable(err)
}

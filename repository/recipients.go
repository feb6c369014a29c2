package repository

import (
	"context"
	"strings"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// WithoutRecipients returns the events whose expansion would neither write nor drop a notification: their claimant has no device,
// no device is eligible, and their dispatch has no notification. They need to be completed only. It costs as many statements
// as there are kinds of offers among the events, and one more. ErrUnavailable.
func (o *Outbox) WithoutRecipients(ctx context.Context, events []outbox.Committed) (none []dispatch.EventID, err error) {
	var drivers []dispatch.DriverID
	var dispatches []dispatch.ID
	offered := map[offerKind]bool{} // whether a device is eligible
	for i := range events {
		e := &events[i].Event
		if !endsOffers(e) {
			continue
		}
		dispatches = append(dispatches, e.Dispatch)
		if e.Driver != "" {
			drivers = append(drivers, e.Driver)
		}
	}
	notified, err := o.notified(ctx, drivers, dispatches)
	if err != nil {
		return nil, err
	}
	for i := range events {
		e, kind := &events[i].Event, offerKind{events[i].Dispatch.VehicleClass, events[i].Dispatch.Region}
		if endsOffers(e) {
			if !notified[string(e.Driver)] && !notified[string(e.Dispatch)] {
				none = append(none, e.ID)
			}
			continue
		}
		found, known := offered[kind]
		if !known && len(e.Deliveries()) > 0 {
			if found, err = o.hasEligibleDevice(ctx, kind); err != nil {
				return nil, err
			}
			offered[kind] = found
		}
		if !found || len(e.Deliveries()) == 0 {
			none = append(none, e.ID)
		}
	}
	return none, nil
}

// offerKind is what a driver must have to be offered a dispatch, as far as an index finds it.
type offerKind struct{ vehicleClass, region string }

// endsOffers reports whether earlier offers of the dispatch are dropped with the event. The other events are offers.
func endsOffers(e *dispatch.Event) bool { return !e.Type.IsOffer() && e.Type != dispatch.EventCreated }

// notified returns which of the drivers have a device, and which of the dispatches a notification.
func (o *Outbox) notified(ctx context.Context, drivers []dispatch.DriverID, dispatches []dispatch.ID) (map[string]bool, error) {
	if len(dispatches) == 0 {
		return nil, nil
	}
	if len(drivers) == 0 {
		drivers = []dispatch.DriverID{""} // an empty list is no SQL
	}
	var ids []string
	err := o.relay.WithContext(ctx).Raw(`SELECT DISTINCT driver_id FROM devices WHERE driver_id IN ? AND quarantined_at IS NULL
		UNION ALL SELECT id FROM dispatches d WHERE id IN ? AND EXISTS (SELECT 1 FROM notifications n WHERE n.dispatch_id = d.id)`,
		drivers, dispatches).Scan(&ids).Error
	found := make(map[string]bool, len(ids))
	for _, id := range ids {
		found[id] = true
	}
	return found, unavailable(err)
}

// hasEligibleDevice reports whether a driver with a device may be eligible.
func (o *Outbox) hasEligibleDevice(ctx context.Context, kind offerKind) (bool, error) {
	var found []int
	err := o.relay.WithContext(ctx).Raw(`SELECT 1 FROM drivers v JOIN devices dv ON dv.driver_id = v.id WHERE `+o.eligibleSQL()+` LIMIT 1`,
		eligibleArgs(kind)...).Scan(&found).Error
	return len(found) > 0, unavailable(err)
}

// eligibleSQL selects devices dv of drivers v who may be eligible for a kind of offer, with the arguments of eligibleArgs.
func (o *Outbox) eligibleSQL() string {
	return `v.vehicle_class = ? AND v.on_duty AND (? OR ` + o.dialect.hasRegion + `) AND dv.quarantined_at IS NULL`
}

func eligibleArgs(kind offerKind) []any {
	// MariaDB compares a JSON array as text, and Go writes some characters in it as \u0026. Then every region is selected.
	escaped := strings.ContainsAny(kind.region, "&<>\u2028\u2029")
	return []any{kind.vehicleClass, escaped, kind.region}
}

// CompleteEvents completes those of the events that the owner leases. ErrUnavailable.
func (o *Outbox) CompleteEvents(ctx context.Context, events []dispatch.EventID) error {
	return unavailable(o.relay.WithContext(ctx).Exec(`UPDATE outbox SET state = 1, claim = '', next_at = `+o.dialect.now()+` + ?
		WHERE event_id IN ? AND state = 0 AND claim = ?`, keepDone.Microseconds(), events, o.Owner).Error)
}

package repositorytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/webhooks"
)

// WebhookBody is a body that names what it is made of.
func WebhookBody(d dispatch.Dispatch, e dispatch.Event) []byte {
	return fmt.Appendf(nil, "%s %s %d", e.ID, d.ID, d.Version)
}

// Courier is the database as one instance uses it that sends webhooks.
type Courier struct {
	*Bench
	Sends *webhooks.Outbox
}

// Courier returns an instance of that name.
func (db *Bench) Courier(t testing.TB, name string, edit ...func(*repository.Options)) *Courier {
	t.Helper()
	o := repository.Options{Log: Quiet, Patience: testkit.Patience, Retention: UsualRetention}
	for _, e := range edit {
		e(&o)
	}
	in := &Courier{Bench: db.By(OpenWith(t, db.URL, o))}
	in.Sends = in.Store.WebhookOutbox(name, Term)
	return in
}

// AddEndpoint adds an endpoint that has been active for an hour, for these events, as edit changes it.
func (db *Bench) AddEndpoint(t testing.TB, events string, edit func(*webhooks.Row)) webhook.ID {
	t.Helper()
	now := db.Now(t)
	row := webhooks.Row{
		ID: webhook.ID(dispatch.NewUniqueID(dispatch.WebhookPrefix, now)), URL: "https://example.com/hook", Events: events,
		Status: webhook.Active, Secret: "whsec_c2VjcmV0", Version: 1,
		CreatedAt: database.Micros(now.Add(-time.Hour)), UpdatedAt: database.Micros(now.Add(-time.Hour)),
	}
	if edit != nil {
		edit(&row)
	}
	Must(t, db.Decide.With(t.Context()).Create(&row).Error)
	return row.ID
}

// EventsOf returns the dispatch's events in their order.
func (db *Bench) EventsOf(t testing.TB, id dispatch.ID) []dispatch.EventID {
	t.Helper()
	var events []dispatch.EventID
	Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM events WHERE dispatch_id = ? ORDER BY id", id).Scan(&events).Error)
	return events
}

// WriteAll writes all deliveries, as couriers do.
func (in *Courier) WriteAll(t testing.TB) {
	t.Helper()
	for in.WritePart(t) {
	}
}

// WritePart writes deliveries as a courier does, and reports whether there may be more to write.
func (in *Courier) WritePart(t testing.TB) bool {
	t.Helper()
	more, _, err := in.Sends.WriteDeliveries(t.Context(), WebhookBody)
	Must(t, err)
	return more
}

// MustLease leases so many deliveries.
func (in *Courier) MustLease(t testing.TB, want int) []webhook.Lease {
	t.Helper()
	leases, _, err := in.Sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
	Must(t, err)
	if len(leases) != want {
		t.Fatalf("%d deliveries are leased, want %d: %v", len(leases), want, leases)
	}
	return leases
}

// MustComplete records results, and returns the endpoints that are paused.
func (in *Courier) MustComplete(t testing.TB, results ...webhook.Result) []webhook.Endpoint {
	t.Helper()
	paused, err := in.Sends.CompleteDeliveries(t.Context(), results)
	Must(t, err)
	return paused
}

// UnlockedDeliveries fails the test unless there are deliveries of these events, and of no others.
func (in *Courier) UnlockedDeliveries(t testing.TB, events []dispatch.EventID) {
	t.Helper()
	var written []dispatch.EventID
	Must(t, in.Serve.With(t.Context()).Raw("SELECT event_id FROM webhook_deliveries").Scan(&written).Error)
	slices.Sort(written)
	testkit.Equal(t, "the events with deliveries", events, written)
}

package webhooks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/webhooks"
)

// newEndpoint is an endpoint that is paused.
func newEndpoint(url string) webhook.Endpoint {
	return webhook.Endpoint{
		ID: webhook.ID(dispatch.NewUniqueID(dispatch.WebhookPrefix, time.Now())), URL: url, Events: []string{"dispatch.accepted", "dispatch.taken"},
		Description: "for tests", Status: webhook.Paused, PauseReason: webhook.PausedByAdmin,
	}
}

// keyed is a context of a request with an Idempotency-Key.
func keyed(t testing.TB) context.Context {
	t.Helper()
	return idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
}

// What admins do with endpoints is stored and audited, without a secret.
func TestWebhooksAreManaged(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_1", Request: "req_1"})
		e, err := db.CreateWebhook(ctx, newEndpoint("https://a.example/?token=1"), "whsec_first")
		Must(t, err)
		if !Near(e.CreatedAt, db.Now(t)) || !e.UpdatedAt.Equal(e.CreatedAt) || e.Version != 1 {
			t.Errorf("created: %+v", e)
		}
		testkit.Equal(t, "the endpoint", e, storedWebhook(db, t, e.ID))
		e.Description, e.URL, e.Events = "another", "https://b.example", []string{"*"}
		updated, err := db.UpdateWebhook(ctx, e.ID, func(w *webhook.Endpoint) error {
			w.Description, w.URL, w.Events = e.Description, e.URL, e.Events
			return nil
		})
		Must(t, err)
		if e.Version = 2; !updated.UpdatedAt.After(e.UpdatedAt) {
			t.Errorf("updated at %v", updated.UpdatedAt)
		}
		e.UpdatedAt = updated.UpdatedAt
		testkit.Equal(t, "the changed endpoint", e, updated)
		testkit.Equal(t, "the stored endpoint", e, storedWebhook(db, t, e.ID))
		same, err := db.UpdateWebhook(ctx, e.ID, func(*webhook.Endpoint) error { return nil })
		Must(t, err)
		testkit.Equal(t, "an endpoint that nothing changed", e, same)
		_, err = db.UpdateWebhook(ctx, e.ID, func(w *webhook.Endpoint) error { w.URL = "https://c.example"; return webhook.ErrVersionConflict })
		MustBeError(t, "a change that is refused", err, webhook.ErrVersionConflict)
		Must(t, ErrorOf(db.RotateWebhook(ctx, e.ID, "whsec_second")))
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE', pause_reason = ''")
		Must(t, db.ReplayWebhook(ctx, e.ID, time.Now()))
		newer, err := db.CreateWebhook(ctx, newEndpoint("https://d.example"), "whsec_third")
		Must(t, err)
		all, err := db.Webhooks.Webhooks(ctx)
		Must(t, err)
		testkit.Equal(t, "the list", []webhook.ID{newer.ID, e.ID}, Collect(all, func(e webhook.Endpoint) webhook.ID { return e.ID }))
		Must(t, db.DeleteWebhook(ctx, newer.ID))

		entries, _, err := db.Audit(ctx, dispatch.AuditQuery{Page: dispatch.Page{Limit: 50}})
		Must(t, err)
		slices.Reverse(entries)
		testkit.Equal(t, "the audit", []dispatch.AuditAction{
			dispatch.AuditWebhookCreate, dispatch.AuditWebhookUpdate, dispatch.AuditWebhookRotate, dispatch.AuditWebhookReplay,
			dispatch.AuditWebhookCreate, dispatch.AuditWebhookDelete,
		}, Collect(entries, func(e dispatch.AuditEntry) dispatch.AuditAction { return e.Action }))
		for _, entry := range entries {
			if strings.Contains(entry.Detail, "whsec") || strings.Contains(entry.Detail, "token") || entry.Actor != "key_1" || entry.Request != "req_1" {
				t.Errorf("audited: %+v", entry)
			}
		}
		want := fmt.Sprintf(`"url":{"from":"%s","to":"%s"}`, webhooks.AuditedURL("https://a.example/?token=1"), webhooks.AuditedURL("https://b.example"))
		if !strings.Contains(entries[1].Detail, want) {
			t.Errorf("%s does not contain %s", entries[1].Detail, want)
		}
	})
}

// Of an endpoint that is deleted, or was never there, nothing can be done.
func TestUnknownWebhook(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		gone := db.AddEndpoint(t, "*", nil)
		Must(t, db.DeleteWebhook(t.Context(), gone))
		for _, id := range []webhook.ID{gone, "whk_none"} {
			for what, err := range map[string]error{
				"get":    ErrorOf(db.Webhook(t.Context(), id)),
				"update": ErrorOf(db.UpdateWebhook(t.Context(), id, func(*webhook.Endpoint) error { return nil })),
				"rotate": ErrorOf(db.RotateWebhook(t.Context(), id, "whsec_x")),
				"delete": db.DeleteWebhook(t.Context(), id),
				"log":    ErrorOfPage(db.WebhookDeliveries(t.Context(), id, "", dispatch.Page{Limit: 1})),
				"test":   ErrorOf(db.TestWebhook(t.Context(), id, func(dispatch.EventID, time.Time) []byte { return nil })),
				"resend": db.ResendWebhook(t.Context(), id, "whd_1"),
				"replay": db.ReplayWebhook(t.Context(), id, time.Now()),
			} {
				MustBeError(t, what, err, webhook.ErrNotFound)
			}
		}
		all, err := db.Webhooks.Webhooks(t.Context())
		if err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// There are as many endpoints as there may be, also if several are created at once.
func TestMostWebhooks(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for range webhook.MaxEndpoints - 2 {
			db.AddEndpoint(t, "*", nil)
		}
		Must(t, db.DeleteWebhook(t.Context(), db.AddEndpoint(t, "*", nil)))
		errs := make([]error, 6)
		testkit.Together(len(errs), func(i int) {
			errs[i] = ErrorOf(db.CreateWebhook(t.Context(), newEndpoint("https://a.example"), "whsec_a"))
		})
		created := 0
		for _, err := range errs {
			if err == nil {
				created++
				continue
			}
			MustBeError(t, "one too many", err, webhook.ErrTooMany)
		}
		testkit.Equal(t, "created", 2, created)
	})
}

// A request with an Idempotency-Key is carried out once.
func TestWebhookRequestsThatAreSentTwice(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		ctx, e := keyed(t), newEndpoint("https://a.example")
		first, err := db.CreateWebhook(ctx, e, "whsec_a")
		Must(t, err)
		again, err := db.CreateWebhook(ctx, e, "whsec_a")
		Must(t, err)
		testkit.Equal(t, "the endpoint of the repetition", first, again)
		MustBeError(t, "a repetition with another secret", ErrorOf(db.CreateWebhook(ctx, e, "whsec_b")), idempotency.ErrKeyReused)
		db.MustCount(t, 1, "webhooks")

		to := db.AddEndpoint(t, "*", nil)
		body := func(event dispatch.EventID, at time.Time) []byte { return fmt.Appendf(nil, "test %s", event) }
		ctx = keyed(t)
		test, err := in.TestWebhook(ctx, to, body)
		Must(t, err)
		repeated, err := in.TestWebhook(ctx, to, body)
		Must(t, err)
		testkit.Equal(t, "the test of the repetition", test, repeated)
		l := in.MustLease(t, 1)[0]
		if string(l.Delivery.Body) != "test "+string(test.Event) || l.Delivery.Type != webhook.TestEvent || string(l.Delivery.Dispatch) != string(test.Event) {
			t.Errorf("the test: %+v", l.Delivery)
		}
		in.MustComplete(t, succeeded(l))
		ctx = keyed(t)
		Must(t, in.ResendWebhook(ctx, to, test.ID))
		in.MustComplete(t, succeeded(in.MustLease(t, 1)[0]))
		Must(t, in.ResendWebhook(ctx, to, test.ID))
		in.MustLease(t, 0)
		db.MustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
		MustBeError(t, "a test of a paused endpoint", ErrorOf(in.TestWebhook(t.Context(), e.ID, body)), webhook.ErrPaused)
		db.MustCount(t, 1, "audit WHERE action = 'webhook.resend'")
	})
}

// A delivery is sent again, whatever became of it; what is being sent is left alone.
func TestResend(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to, other := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "dispatch.accepted", nil)
		_, events := changed(in.Bench, t, 2)
		fanOut(in, t)
		first := webhook.DeliveryOf(events[0])
		resend := func() {
			t.Helper()
			Must(t, in.ResendWebhook(t.Context(), to, first))
		}
		MustBeError(t, "another endpoint's delivery", in.ResendWebhook(t.Context(), other, first), webhook.ErrDeliveryNotFound)
		MustBeError(t, "no delivery", in.ResendWebhook(t.Context(), to, "whd_none"), webhook.ErrDeliveryNotFound)

		l := in.MustLease(t, 1)[0]
		resend()
		in.MustLease(t, 0)
		in.MustComplete(t, failed(l)) // counts all the same
		testkit.Equal(t, "attempts", 1, deliveries(in.Bench, t, to)[0].Attempt)
		in.MustLease(t, 0)
		resend() // instead of its next attempt
		l = in.MustLease(t, 1)[0]
		testkit.Equal(t, "the event", events[0], l.Delivery.Event)
		testkit.Equal(t, "the attempt", 1, l.Attempt)
		in.MustComplete(t, succeeded(l))
		l = in.MustLease(t, 1)[0]
		testkit.Equal(t, "the next event", events[1], l.Delivery.Event)
		resend() // while the next one is being sent
		in.MustComplete(t, succeeded(l))
		l = in.MustLease(t, 1)[0]
		testkit.Equal(t, "sent again", events[0], l.Delivery.Event)
		db.Exec(t, "UPDATE webhook_deliveries SET attempt = 7 WHERE event_id = ?", events[0])
		l.Attempt = 8
		in.MustComplete(t, failed(l))
		testkit.Equal(t, "the status", webhook.Failed, deliveries(in.Bench, t, to)[0].Status)
		db.MustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
		resend()
		in.MustComplete(t, succeeded(in.MustLease(t, 1)[0]))
		db.MustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
	})
}

// The log has the newest events first, in pages, by status.
func TestLogOfDeliveries(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		db.AddEndpoint(t, "*", nil)
		_, events := changed(in.Bench, t, 7)
		fanOut(in, t)
		db.Exec(t, "UPDATE webhook_deliveries SET status = 'DELIVERED' WHERE event_id < ?", events[4])
		slices.Reverse(events)
		for status, want := range map[webhook.DeliveryStatus][]dispatch.EventID{"": events, webhook.Pending: events[:3], webhook.Delivered: events[3:], webhook.Failed: nil} {
			var got []dispatch.EventID
			for page := (dispatch.Page{Limit: 2}); ; {
				items, next, err := in.WebhookDeliveries(t.Context(), to, status, page)
				Must(t, err)
				for _, d := range items {
					got = append(got, d.ID.Event())
					if d.Event != d.ID.Event() || d.Endpoint != to || (d.Status == webhook.Pending) != (d.NextAt != nil) {
						t.Errorf("%+v", d)
					}
				}
				if page.Cursor = next; next == "" {
					break
				}
			}
			testkit.Equal(t, fmt.Sprintf("events of deliveries %q", status), want, got)
		}
		_, _, err := in.WebhookDeliveries(t.Context(), to, "", dispatch.Page{Limit: 2, Cursor: database.Cursor(database.EventList, 0, events[0])})
		MustBeError(t, "another list's cursor", err, dispatch.ErrBadCursor)
	})
}

// A repeated rotation does not return a secret that was replaced meanwhile.
func TestARotationOfAnotherSecret(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		e, err := db.CreateWebhook(t.Context(), newEndpoint("https://a.example"), "whsec_first")
		Must(t, err)
		ctx := idempotency.WithSeed(t.Context(), idempotency.NewSeed(time.Now()))
		for range 2 {
			Must(t, ErrorOf(db.RotateWebhook(ctx, e.ID, "whsec_second")))
		}
		Must(t, ErrorOf(db.RotateWebhook(t.Context(), e.ID, "whsec_third")))
		MustBeError(t, "the first rotation again", ErrorOf(db.RotateWebhook(ctx, e.ID, "whsec_second")), idempotency.ErrKeyReused)
	})
}

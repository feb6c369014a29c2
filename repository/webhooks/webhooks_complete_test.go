package webhooks_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// stored is the endpoint as it is stored.
func storedWebhook(db *Bench, t testing.TB, id webhook.ID) webhook.Endpoint {
	t.Helper()
	e, err := db.Webhook(t.Context(), id)
	Must(t, err)
	return e
}

// mustBeIn fails the test unless the delivery is due after that time, and a tenth of it at most.
func mustBeIn(db *Bench, t testing.TB, event dispatch.EventID, wait time.Duration, from, to time.Time) {
	t.Helper()
	var next int64
	Must(t, db.Raw.QueryRowContext(t.Context(), "SELECT next_at FROM webhook_deliveries WHERE event_id = ?", event).Scan(&next))
	if at := database.Time(next); at.Before(from.Add(wait)) || at.After(to.Add(wait+wait/10+time.Millisecond)) {
		t.Errorf("the next attempt is in %s, want %s and a tenth at most", at.Sub(from), wait)
	}
}

// A delivery that fails is tried again as the contract says, then it has failed, and the next of its dispatch is sent.
func TestAttemptsOfADelivery(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		_, events := changed(in.Bench, t, 2)
		fanOut(in, t)
		waits := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour}
		for i, wait := range append(slices.Clone(waits), 0) {
			l := in.MustLease(t, 1)[0]
			testkit.Equal(t, "the attempt", i+1, l.Attempt)
			testkit.Equal(t, "the event", events[0], l.Delivery.Event)
			from := db.Now(t)
			in.MustComplete(t, failed(l))
			if wait > 0 {
				mustBeIn(db, t, events[0], wait, from, db.Now(t))
				if wait >= time.Minute { // which does not pass meanwhile
					in.MustLease(t, 0)
				}
				allDue(db, t)
			}
		}
		rows := deliveries(in.Bench, t, to)
		testkit.Equal(t, "the first", webhook.Failed, rows[0].Status)
		testkit.Equal(t, "attempts that are kept", len(waits)+1, len(rows[0].Attempts))
		l := in.MustLease(t, 1)[0]
		if l.Delivery.Event != events[1] || l.Attempt != 1 {
			t.Errorf("the next: %+v", l)
		}
		in.MustComplete(t, succeeded(l))
		db.MustCount(t, 0, "webhook_deliveries WHERE status = 'PENDING'")
	})
}

// The log keeps the latest attempts, as they were.
func TestLogOfAttempts(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		changed(in.Bench, t, 1)
		fanOut(in, t)
		at := db.Now(t)
		for i := range webhook.KeptAttempts + 3 {
			db.Exec(t, "UPDATE webhook_deliveries SET next_at = 1, attempt = 0")
			l := in.MustLease(t, 1)[0]
			in.MustComplete(t, webhook.Result{Lease: l, Attempt: webhook.Attempt{
				At: at.Add(time.Duration(i) * time.Second), HTTPStatus: 500 + i, Error: "too bad", Took: time.Duration(i) * time.Millisecond, Answer: "nein \x00 안녕 😀",
			}})
		}
		items, next, err := db.WebhookDeliveries(t.Context(), to, "", dispatch.Page{Limit: 10})
		Must(t, err)
		if len(items) != 1 || next != "" || len(items[0].Attempts) != webhook.KeptAttempts {
			t.Fatalf("%d items, %q, %+v", len(items), next, items)
		}
		for i, got := range items[0].Attempts {
			n := i + 3
			testkit.Equal(t, "an attempt", webhook.Attempt{
				At: at.Add(time.Duration(n) * time.Second), HTTPStatus: 500 + n, Error: "too bad", Took: time.Duration(n) * time.Millisecond, Answer: "nein \x00 안녕 😀",
			}, got)
		}
		if next := items[0].NextAt; next == nil || !next.After(db.Now(t)) {
			t.Errorf("the next attempt is at %v", next)
		}
	})
}

// An endpoint that has failed for three days without a success is paused, and keeps what waits; one success in between, and it is not.
func TestEndpointThatFailsIsPaused(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to, other := db.AddEndpoint(t, "*", nil), db.AddEndpoint(t, "dispatch.accepted", nil)
		changed(in.Bench, t, 3)
		fanOut(in, t)
		attempt := func(how func(webhook.Lease) webhook.Result) []webhook.Endpoint {
			t.Helper()
			allDue(db, t)
			return in.MustComplete(t, how(in.MustLease(t, 1)[0]))
		}
		attempt(failed)
		first := storedWebhook(db, t, to).FailingSince
		if first == nil || !Near(*first, db.Now(t)) {
			t.Fatalf("failing since %v", first)
		}
		attempt(failed)
		testkit.Equal(t, "failing since", first, storedWebhook(db, t, to).FailingSince)
		attempt(succeeded)
		if e := storedWebhook(db, t, to); e.FailingSince != nil {
			t.Errorf("failing since %v after a success", e.FailingSince)
		}
		attempt(failed)
		since := func(ago time.Duration) {
			db.Exec(t, "UPDATE webhooks SET failing_since = ? WHERE id = ?", database.Micros(db.Now(t).Add(-ago)), to)
		}
		since(webhook.PauseAfter - time.Minute)
		if paused := attempt(failed); len(paused) != 0 {
			t.Errorf("paused too early: %v", paused)
		}
		since(webhook.PauseAfter)
		paused := attempt(failed)
		if len(paused) != 1 || paused[0].ID != to || paused[0].PauseReason != webhook.PausedFailing {
			t.Fatalf("paused: %v", paused)
		}
		got := storedWebhook(db, t, to)
		testkit.Equal(t, "the endpoint", paused[0], got)
		testkit.Equal(t, "its status", webhook.Paused, got.Status)
		testkit.Equal(t, "the other one's", webhook.Active, storedWebhook(db, t, other).Status)
		db.MustCount(t, 1, "audit WHERE action = 'webhook.update' AND target = ? AND actor = 'system'", to)
		allDue(db, t)
		in.MustLease(t, 0)
		due, err := in.Sends.Due(t.Context())
		Must(t, err)
		if !due.Webhooks.IsZero() {
			t.Errorf("due at %v", due.Webhooks)
		}
		db.MustCount(t, 2, "webhook_deliveries WHERE status = 'PENDING'")
		// Active again, it gets what waits, and has three more days.
		Must(t, ErrorOf(in.UpdateWebhook(t.Context(), to, func(e *webhook.Endpoint) error { e.SetStatus(webhook.Active); return nil })))
		if paused := attempt(failed); len(paused) != 0 {
			t.Errorf("paused again: %v", paused)
		}
	})
}

// An endpoint that answers 410 is paused at once; its delivery waits and has lost no attempt.
func TestEndpointThatIsGoneIsPaused(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		changed(in.Bench, t, 1)
		fanOut(in, t)
		l := in.MustLease(t, 1)[0]
		gone := webhook.Result{Lease: l, Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 410, Error: "gone"}, Gone: true}
		paused := in.MustComplete(t, gone)
		if len(paused) != 1 || paused[0].PauseReason != webhook.PausedGone {
			t.Fatalf("paused: %v", paused)
		}
		testkit.Equal(t, "results after the pause", 0, len(in.MustComplete(t, gone)))
		allDue(db, t)
		in.MustLease(t, 0)
		db.Exec(t, "UPDATE webhooks SET status = 'ACTIVE', pause_reason = ''")
		again := in.MustLease(t, 1)[0]
		testkit.Equal(t, "the attempt", 1, again.Attempt)
		in.MustComplete(t, succeeded(again))
		testkit.Equal(t, "attempts", 2, len(deliveries(in.Bench, t, to)[0].Attempts))

		// The answer of a URL that an admin has replaced says nothing of the new one.
		changed(in.Bench, t, 1)
		fanOut(in, t)
		gone.Lease = in.MustLease(t, 1)[0]
		Must(t, ErrorOf(in.UpdateWebhook(t.Context(), to, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil })))
		testkit.Equal(t, "endpoints that are paused", 0, len(in.MustComplete(t, gone)))
		allDue(db, t)
		gone.Lease = in.MustLease(t, 1)[0]
		Must(t, ErrorOf(in.UpdateWebhook(t.Context(), to, func(e *webhook.Endpoint) error { e.URL = "https://newer.example"; return nil })))
		changed(in.Bench, t, 1)
		fanOut(in, t)
		testkit.Equal(t, "endpoints that are paused by both answers", 0, len(in.MustComplete(t, succeeded(in.MustLease(t, 1)[0]), gone)))
	})
}

// An endpoint that an admin deletes or changes while an answer that would pause it is written stays deleted, or active.
func TestADeletedEndpointIsNotPaused(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		var to webhook.ID
		var meanwhile func() error
		in := db.Courier(t, "ins_a", func(o *repository.Options) {
			o.Observer = func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				if s.Pool == "work" && strings.HasPrefix(s.Query, "UPDATE webhooks SET status") {
					Must(t, meanwhile())
				}
				return ctx, func(error) {}
			}
		})
		mustNotPause := func(admin func() error) {
			t.Helper()
			to, meanwhile = db.AddEndpoint(t, "*", nil), admin
			changed(in.Bench, t, 1)
			fanOut(in, t)
			gone := webhook.Result{Lease: in.MustLease(t, 1)[0], Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 410, Error: "gone"}, Gone: true}
			testkit.Equal(t, "endpoints that are paused", 0, len(in.MustComplete(t, gone)))
		}
		mustNotPause(func() error { return db.DeleteWebhook(t.Context(), to) })
		db.MustCount(t, 0, "webhooks")
		mustNotPause(func() error {
			return ErrorOf(db.UpdateWebhook(t.Context(), to, func(e *webhook.Endpoint) error { e.URL = "https://new.example"; return nil }))
		})
		testkit.Equal(t, "the status", webhook.Active, storedWebhook(db, t, to).Status)
	})
}

// A lease has both secrets of a rotation, and its end.
func TestSecretsOfALease(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		in := db.Courier(t, "ins_a")
		to := db.AddEndpoint(t, "*", nil)
		lease := func() webhook.Secrets {
			t.Helper()
			changed(in.Bench, t, 1)
			fanOut(in, t)
			return in.MustLease(t, 1)[0].Secrets
		}
		testkit.Equal(t, "the secrets", webhook.Secrets{Current: "whsec_c2VjcmV0"}, lease())
		for range 2 { // the second time it is the same request
			e, err := in.RotateWebhook(t.Context(), to, "whsec_new")
			Must(t, err)
			testkit.Equal(t, "the version", 2, e.Version)
		}
		s := lease()
		if s.Current != "whsec_new" || s.Previous != "whsec_c2VjcmV0" || !Near(s.PreviousUntil, time.Now().Add(webhook.RotationOverlap)) {
			t.Errorf("during the rotation: %+v", s)
		}
	})
}

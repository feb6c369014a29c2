package handler

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
)

const webhooks = "/v1/admin/webhooks"

// addresses are those of a small world: http, the host 10.0.0.1 and what redirects there are refused, and no name ends in .invalid.
type addresses struct{}

func (addresses) Check(_ context.Context, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(u.Hostname(), ".away"):
		return fmt.Errorf("%w: the name server does not answer", webhook.ErrNotLookedUp)
	case strings.HasSuffix(u.Hostname(), ".invalid"):
		return fmt.Errorf("no such host %s", u.Hostname())
	case u.Scheme != "https" || u.Hostname() == "10.0.0.1":
		return fmt.Errorf("%w: %s", webhook.ErrNotAllowed, raw)
	}
	return nil
}

// webhook returns the id of a new endpoint.
func (w *world) webhook(fields ...string) string {
	w.t.Helper()
	return w.call("POST", webhooks, key, endpoint(fields...)).want(201).text("id")
}

// anyWebhook returns the id of an endpoint, a new one if there is none.
func (w *world) anyWebhook() string {
	w.t.Helper()
	if all := items(w.call("GET", webhooks, key, "").want(200)); len(all) > 0 {
		return fmt.Sprint(all[0]["id"])
	}
	return w.webhook()
}

func endpoint(changes ...string) string {
	return fields(map[string]any{"url": "https://example.com/webhooks", "events": []string{"*"}}, changes...)
}

// TestWebhooks: an endpoint from its creation to its deletion. Its secret is in no answer but those that make one.
func TestWebhooks(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		made := w.call("POST", webhooks, key, endpoint(`"events":["dispatch.accepted","dispatch.completed"]`, `"description":"Billing"`))
		made.want(201, "url", "https://example.com/webhooks", "events", []any{"dispatch.accepted", "dispatch.completed"}, "description", "Billing",
			"status", "ACTIVE", "pause_reason", nil, "failing_since", nil, "version", 1.0)
		id, secret := made.text("id"), made.text("secret")
		at := webhooks + "/" + id
		made.wantHeader("Location", at).wantHeader("ETag", `"1"`)
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err != nil || len(raw) != 32 {
			t.Errorf("the secret %q: %v", secret, err)
		}

		w.call("GET", at, key, "").want(200, "id", id, "secret", nil).wantHeader("ETag", `"1"`)
		w.call("PATCH", at, key, `{"url":"https://example.com/2","events":["*"],"description":null}`, "If-Match", `"1"`).
			want(200, "url", "https://example.com/2", "events", []any{"*"}, "description", nil, "version", 2.0, "secret", nil)
		w.refused("a change of an earlier version", w.call("PATCH", at, key, `{"status":"PAUSED"}`, "If-Match", `"1"`), 412, "VERSION_MOVED")
		w.refused("a change of no version", w.call("PATCH", at, key, `{"status":"PAUSED"}`, "If-Match", `"x"`), 412, "VERSION_MOVED")
		w.call("PATCH", at, key, `{"status":"PAUSED"}`).want(200, "status", "PAUSED", "pause_reason", "ADMIN", "url", "https://example.com/2")
		w.refused("a test while it is paused", w.call("POST", at+"/test", key, ""), 409, "INVALID_STATE")
		w.refused("a replay while it is paused", w.call("POST", at+"/replay", key, `{"since":"2026-01-01T00:00:00Z"}`), 409, "INVALID_STATE")
		w.call("PATCH", at, key, `{"status":"ACTIVE"}`, "If-Match", "*").want(200, "status", "ACTIVE", "pause_reason", nil)

		rotated := w.call("POST", at+"/rotate", key, "{}").want(200, "id", id)
		if next := rotated.text("secret"); next == secret || !strings.HasPrefix(next, "whsec_") {
			t.Errorf("the secret after %s is %s", secret, next)
		}

		list := w.call("GET", webhooks, key, "").want(200, "next_cursor", nil).wantItems(1)
		wantMembers(t, "the list", list.item(), "id", id, "secret", nil)
		w.call("DELETE", at, key, "").want(204).wantBody("")
		w.refused("a deleted one", w.call("GET", at, key, ""), 404, "WEBHOOK_NOT_FOUND")
		w.refused("again", w.call("DELETE", at, key, ""), 404, "WEBHOOK_NOT_FOUND")
		w.call("GET", webhooks, key, "").wantItems(0)

		if raw := w.call("GET", "/v1/admin/audit", key, "").raw + w.log.String(); strings.Contains(raw, secret) || strings.Contains(raw, rotated.text("secret")) {
			t.Error("a secret is in the audit or in the log")
		}
	})
}

// TestWebhookFields: what is wrong with a field is said of that field, and nothing is written.
func TestWebhookFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := webhooks + "/" + w.webhook()
	wrote := w.writes(t)
	for body, field := range map[string]string{
		endpoint(`"url":"absent"`):                                          "url",
		endpoint(`"url":""`):                                                "url",
		endpoint(`"url":"example.com/x"`):                                   "url",
		endpoint(`"url":"ftp://example.com"`):                               "url",
		endpoint(`"url":"https://"`):                                        "url",
		endpoint(`"url":"https://example.com/#x"`):                          "url",
		endpoint(`"url":"https://example.com/a b"`):                         "url",
		endpoint(`"url":"https://exämple.com"`):                             "url",
		endpoint(`"url":"https://nowhere.invalid"`):                         "url",
		endpoint(`"url":"https://x.com/` + strings.Repeat("x", 2000) + `"`): "url",
		endpoint(`"events":[]`):                                             "events",
		endpoint(`"events":["*","dispatch.opened"]`):                        "events",
		endpoint(`"events":["dispatch.opened","dispatch.opened"]`):          "events",
		endpoint(`"events":["dispatch.opened","dispatch.lost"]`):            "events[1]",
		endpoint(`"events":["webhook.test"]`):                               "events[0]",
		endpoint(`"events":"*"`):                                            "events",
		endpoint(`"description":"x\u202e"`):                                 "description",
		endpoint(`"secret":"whsec_x"`):                                      "secret",
	} {
		w.refused(body, w.call("POST", webhooks, key, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	both := w.call("POST", webhooks, key, endpoint(`"url":"x"`, `"events":[]`)).want(422)
	both.hasField("url")
	both.hasField("events")
	for body, field := range map[string]string{
		`{"url":null}`: "url", `{"events":null}`: "events", `{"status":null}`: "status", `{"status":"GONE"}`: "status", `{"events":["x"]}`: "events[0]",
		`{"url":"x"}`: "url", `{"url":"https://nowhere.invalid"}`: "url", `{"pause_reason":"GONE"}`: "pause_reason", `{"secret":"x"}`: "secret",
	} {
		w.refused(body, w.call("PATCH", at, key, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	away := endpoint(`"url":"https://hooks.away"`)
	w.refused("a name that was not looked up", w.call("POST", webhooks, key, away), 503, "UNAVAILABLE")
	for _, bad := range []string{"http://example.com", "https://10.0.0.1"} {
		w.refused(bad, w.call("POST", webhooks, key, endpoint(fmt.Sprintf(`"url":%q`, bad))), 422, "ENDPOINT_NOT_ALLOWED")
		w.refused(bad, w.call("PATCH", at, key, fmt.Sprintf(`{"url":%q}`, bad)), 422, "ENDPOINT_NOT_ALLOWED")
	}
	for body, field := range map[string]string{
		`{}`: "since", `{"since":"yesterday"}`: "since", `{"since":null}`: "since", fmt.Sprintf(`{"since":%q}`, inFuture(time.Hour)): "since",
	} {
		w.refused(body, w.call("POST", at+"/replay", key, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	w.refused("a state", w.call("GET", at+"/deliveries?status=SENT", key, ""), 422, "VALIDATION_FAILED").hasField("status")
	if wrote() {
		t.Error("what was refused has changed the database")
	}
	w.call("PATCH", at, key, `{}`).want(200, "status", "ACTIVE", "events", []any{"*"})
}

// TestUnknownWebhooks: none, and ids that are none, on each route.
func TestUnknownWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"whk_0pgbv3614k2s9v1q7d0e5h8m3j", "x", "whk_", "drv_0pgbv3614k2s9v1q7d0e5h8m3j", "whk_'%20OR%201=1--"} {
		at := webhooks + "/" + id
		for _, call := range []string{
			"GET ", "PATCH ", "DELETE ", "POST /rotate", "POST /test", "GET /deliveries", "POST /replay", "POST /deliveries/whd_0pgbv3614k2s9v1q7d0e5h8m3d/resend",
		} {
			method, path, _ := strings.Cut(call, " ")
			body := map[string]string{"PATCH ": `{}`, "POST /replay": `{"since":"2026-01-01T00:00:00Z"}`}[call]
			w.refused(call+" of "+id, w.call(method, at+path, key, body), 404, "WEBHOOK_NOT_FOUND")
		}
	}
	at := webhooks + "/" + w.webhook()
	for _, id := range []string{"whd_0pgbv3614k2s9v1q7d0e5h8m3d", "x", "whd_", "evt_0pgbv3614k2s9v1q7d0e5h8m3d"} {
		w.refused(id, w.call("POST", at+"/deliveries/"+id+"/resend", key, ""), 404, "DELIVERY_NOT_FOUND")
	}
	w.refused("a cursor", w.call("GET", webhooks+"?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	w.refused("a cursor of deliveries", w.call("GET", at+"/deliveries?cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	w.noErrorLogged()
}

// TestPagesOfWebhooks: the newest first, and the page after a deleted one begins where it would.
func TestPagesOfWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := []string{w.webhook(), w.webhook(), w.webhook(), w.webhook(), w.webhook()}
	slices.Reverse(want)
	var got []string
	for _, e := range slices.Concat(w.pages(webhooks+"?limit=2", key)...) {
		got = append(got, fmt.Sprint(e["id"]))
	}
	testkit.Equal(t, "the pages", want, got)
	w.call("DELETE", webhooks+"/"+want[1], key, "").want(204)
	r := w.call("GET", webhooks+"?limit=1&cursor="+want[1], key, "").want(200, "next_cursor", want[2])
	wantMembers(t, "the page", r.item(), "id", want[2])
}

// TestDeliveriesOfATest: what was asked for is listed with its body, by its state, and is sent again.
func TestDeliveriesOfATest(t *testing.T) {
	w := newWorld(t)
	at, other := webhooks+"/"+w.webhook(), webhooks+"/"+w.webhook()
	d := w.call("POST", at+"/test", key, "").want(202, "type", "webhook.test", "status", "PENDING", "dispatch_id", nil, "attempts", []any{})
	event, _ := strings.CutPrefix(d.text("id"), "whd_")
	body := fmt.Sprintf(`{"type":"webhook.test","timestamp":%q,"data":{"event_id":"evt_%s"}}`, d.text("created_at"), event)
	wantMembers(t, "the test", d.json, "event_id", "evt_"+event, "body", body)
	again := at + "/deliveries/" + d.text("id") + "/resend"
	w.refused("another webhook's", w.call("POST", strings.Replace(again, at, other, 1), key, ""), 404, "DELIVERY_NOT_FOUND")
	w.exec("UPDATE webhook_deliveries SET status = 'FAILED'")
	w.call("GET", at+"/deliveries?status=PENDING", key, "").wantItems(0)
	w.call("POST", again, key, "").want(202).wantBody("")
	wantMembers(t, "sent again", w.call("GET", at+"/deliveries?status=PENDING", key, "").item(), "id", d.text("id"), "body", body)
	w.call("POST", at+"/test", key, "{}").want(202)
	w.pagesOf(at+"/deliveries?limit=1", 1, 2)
	w.call("POST", at+"/replay", key, `{"since":"0001-01-01T00:00:00Z"}`).want(202).wantBody("")
}

// TestWebhookBody: a delivery's body is the event as the admins' stream sends it, with the dispatch as an admin reads it, and as
// documented.
func TestWebhookBody(t *testing.T) {
	l := newLive(t, stream.Options{})
	d := l.drivers(1)[0]
	id := l.dispatch(1, `"min_working_height_m":40`, `"site_lat":37.5`, `"site_lng":127`, `"external_id":"order-1"`)
	l.accept(id, d, `{"round":1}`).want(200)
	shown := l.call("GET", "/v1/admin/dispatches/"+id, key, "").want(200)
	stored, err := l.store.Dispatches.Dispatch(t.Context(), dispatch.ID(id))
	noError(t, err)
	admin := l.open("/v1/admin/stream", key, "")
	for _, kind := range []dispatch.EventType{
		dispatch.EventCreated, dispatch.EventOpened, dispatch.EventAccepted, dispatch.EventDeclined, dispatch.EventWithdrawn, dispatch.EventReopened,
		dispatch.EventUnassigned, dispatch.EventUpdated, dispatch.EventExpired, dispatch.EventCanceled, dispatch.EventStarted, dispatch.EventCompleted,
	} {
		e := dispatch.Event{
			ID: dispatch.NewEventID(time.Now()), Type: kind, Dispatch: stored.ID, Round: stored.Round, Driver: dispatch.DriverID(d.id),
			Actor: "key_first", ReasonCode: "TOO_FAR", At: time.Now(),
		}
		l.hub.Publish(stored, []dispatch.Event{e})
		name, streamed := admin.next()
		body := must(jsonschema.UnmarshalJSON(strings.NewReader(string(WebhookBody(stored, e)))))
		if err := documented().schemas["/components/schemas/WebhookEvent"].Validate(body); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		wantMembers(t, "the body", body.(map[string]any), "type", name, "timestamp", at(body, "data", "at"))
		data := at(body, "data").(map[string]any)
		testkit.Equal(t, name+": the dispatch", must(jsonschema.UnmarshalJSON(strings.NewReader(shown.raw))), data["dispatch"])
		delete(data, "dispatch")
		testkit.Equal(t, name+": the event", must(jsonschema.UnmarshalJSON(strings.NewReader(streamed))), any(data))
	}
	test := must(jsonschema.UnmarshalJSON(strings.NewReader(string(webhookTestBody(dispatch.NewEventID(time.Now()), time.Now())))))
	if err := documented().schemas["/components/schemas/WebhookTest"].Validate(test); err != nil {
		t.Error(err)
	}
}

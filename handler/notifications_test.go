package handler

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch/outbox"
	"firsttap/repository/pushes"
)

func (w *world) outbox() *pushes.Outbox {
	return w.store.Outbox(pushes.Options{Owner: "the test", LeaseTerm: time.Hour})
}

// tell expands the events of the outbox, and returns the pushes.
func (w *world) tell() []outbox.Push {
	w.t.Helper()
	events, err := w.outbox().LeaseEvents(w.t.Context(), 100)
	noError(w.t, err)
	var all []outbox.Push
	for len(events) > 0 {
		told, err := w.outbox().Expand(w.t.Context(), events, 1000)
		noError(w.t, err)
		all, events = append(all, told.Pushes...), told.Rest
	}
	return all
}

func (w *world) settle(p outbox.Push, status outbox.Status) {
	w.t.Helper()
	err := w.outbox().RecordResults(w.t.Context(), []outbox.SendResult{{
		ID: p.ID, Status: status, RetryAfter: time.Hour, Attempts: 2, Result: "poison", Reason: "INVALID_ARGUMENT",
	}}, nil)
	noError(w.t, err)
}

// told is a dispatch whose offer was pushed to one device for each status.
func (w *world) told(statuses ...outbox.Status) (id string, d []caller, pushes []outbox.Push) {
	w.t.Helper()
	d = w.drivers(len(statuses))
	for i := range d {
		w.device(d[i], "phone", d[i].id)
	}
	id = w.dispatch(1)
	byDriver := map[string]outbox.Push{}
	for _, p := range w.tell() {
		byDriver[string(p.Driver)] = p
	}
	for i, s := range statuses {
		p := byDriver[d[i].id]
		w.settle(p, s)
		pushes = append(pushes, p)
	}
	if len(byDriver) != len(statuses) {
		w.t.Fatalf("%d drivers were notified", len(byDriver))
	}
	return id, d, pushes
}

// TestNotificationsOfADispatch: the list has every member that an operator sees, and no others.
func TestNotificationsOfADispatch(t *testing.T) {
	w := newWorld(t)
	id, d, pushes := w.told("SENT", "DEAD", "DROPPED", "PENDING")
	w.dispatch(3)
	path := "/v1/admin/dispatches/" + id + "/notifications"
	r := w.call("GET", path, key, "")
	r.want(200, "next_cursor", nil).wantItems(4)
	for _, n := range items(r) {
		i := slices.IndexFunc(d, func(d caller) bool { return d.id == n["driver_id"] })
		p, status := pushes[i], []string{"SENT", "DEAD", "DROPPED", "PENDING"}[i]
		wantMembers(t, "a notification", n, "id", string(p.ID), "event_id", string(p.Event), "device_id", string(p.Device.ID), "status", status,
			"type", "dispatch.opened", "dispatch_id", id, "round", 1.0, "topic", nil, "silent", false, "attempts", 2.0, "result", "poison",
			"reason", "INVALID_ARGUMENT")
		if delay, ok := n["delay_ms"].(float64); ok != (status == "SENT") || delay < 0 || delay > 60_000 || (n["sent_at"] == nil) == ok {
			t.Errorf("%s: sent at %v, delay %v", status, n["sent_at"], n["delay_ms"])
		}
		if (n["next_at"] == nil) != (status != "PENDING") {
			t.Errorf("%s: next at %v", status, n["next_at"])
		}
		if strings.Contains(fmt.Sprint(n["device_id"]), d[i].id) {
			t.Error("a push token is shown")
		}
	}
	if got := fmt.Sprint(r.at("funnel")); got != "[map[accepted_by_fcm:1 round:1 seen:0 tapped:0 told:4 won:0]]" {
		t.Errorf("the funnel: %s", got)
	}
	w.on(id, "seen", d[0])
	w.accept(id, d[0], "")
	w.on(id, "withdraw", d[0])
	if got := fmt.Sprint(w.call("GET", path, key, "").at("funnel")); got != "[map[accepted_by_fcm:1 round:1 seen:1 tapped:0 told:4 won:1]"+
		" map[accepted_by_fcm:0 round:2 seen:0 tapped:0 told:0 won:0]]" {
		t.Errorf("the funnel: %s", got)
	}
	for _, other := range []string{"x", "dsp_" + strings.Repeat("0", 26)} {
		w.refused(other, w.call("GET", "/v1/admin/dispatches/"+other+"/notifications", key, ""), 404, "DISPATCH_NOT_FOUND")
	}
}

// TestFunnelOfLongAgo: numbers that are no longer known are null, not 0.
func TestFunnelOfLongAgo(t *testing.T) {
	w := newWorld(t)
	id, _, _ := w.told("SENT")
	w.expire(id, 100*time.Hour, 99*time.Hour)
	r := w.call("GET", "/v1/admin/dispatches/"+id+"/notifications", key, "")
	if got := fmt.Sprint(r.at("funnel")); got != "[map[accepted_by_fcm:<nil> round:1 seen:0 tapped:0 told:<nil> won:0]]" {
		t.Errorf("the funnel: %s", got)
	}
}

// TestNotificationLists: by status, and in pages.
func TestNotificationLists(t *testing.T) {
	w := newWorld(t)
	id, _, _ := w.told("DEAD", "SENT", "DEAD", "PENDING")
	for query, want := range map[string]int{"": 4, "?status=DEAD": 2, "?status=SENT": 1, "?status=DROPPED": 0} {
		w.call("GET", "/v1/admin/notifications"+query, key, "").want(200).wantItems(want)
	}
	for list, want := range map[string]int{"/v1/admin/notifications?status=DEAD&": 2, "/v1/admin/dispatches/" + id + "/notifications?": 4} {
		w.pagesOf(list+"limit=1", 1, want)
		w.refused(list, w.call("GET", list+"cursor=x", key, ""), 400, "MALFORMED_REQUEST")
	}
	for _, s := range []string{"dead", "ACCEPTED", "%00", "DEAD%20"} {
		w.refused(s, w.call("GET", "/v1/admin/notifications?status="+s, key, ""), 422, "VALIDATION_FAILED").hasField("status")
	}
}

// TestRedriveOverHTTP: a dead notification is due again, once, and the relay is woken.
func TestRedriveOverHTTP(t *testing.T) {
	var woken atomic.Int32
	w := newWorld(t, func(a *API) { a.OnDue = func() { woken.Add(1) } })
	id, _, pushes := w.told("DEAD", "SENT", "DEAD")
	redrive := func(push, body string) reply {
		return w.call("POST", "/v1/admin/notifications/"+push+"/redrive", key, body)
	}
	w.refused("with a field", redrive(string(pushes[0].ID), `{"force":true}`), 422, "VALIDATION_FAILED")
	w.refused("not dead", redrive(string(pushes[1].ID), ""), 409, "INVALID_STATE")
	for _, other := range []string{"x", "ntf_" + strings.Repeat("0", 26), id} {
		w.refused(other, redrive(other, ""), 404, "NOTIFICATION_NOT_FOUND")
	}
	if n := woken.Load(); n != 0 {
		t.Errorf("woken %d times for nothing", n)
	}
	redrive(string(pushes[0].ID), "{}").want(200, "id", string(pushes[0].ID), "status", "PENDING", "attempts", 0.0).time("next_at")
	r := w.refused("the second", redrive(string(pushes[0].ID), ""), 409, "INVALID_STATE")
	if n := woken.Load(); n != 1 || !strings.Contains(r.text("detail"), "PENDING") {
		t.Errorf("woken %d times: %s", n, r.raw)
	}
	w.expire(id, time.Hour, time.Minute)
	r = w.refused("an offer that is over", redrive(string(pushes[2].ID), ""), 409, "INVALID_STATE")
	if !strings.Contains(r.text("detail"), "obsolete") {
		t.Errorf("the detail is missing: %s", r.raw)
	}
}

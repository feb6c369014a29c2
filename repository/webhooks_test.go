package repository

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
	"firsttap/webhook"
)

// webhookBody is a body that names what it is made of.
func webhookBody(d dispatch.Dispatch, e dispatch.Event) []byte {
	return fmt.Appendf(nil, "%s %s %d", e.ID, d.ID, d.Version)
}

// courier is the database as one instance uses it, which writes deliveries and sends them.
type courier struct {
	*database
	sends   *WebhookOutbox
	relay   *Outbox
	watched *watched
}

// courier returns an instance of that name. All events are leased to "ins_a", as if all were committed there.
func (db *database) courier(t testing.TB, name string, edit ...func(*Options)) *courier {
	t.Helper()
	in := &courier{watched: &watched{}}
	o := Options{
		Log: quiet, Patience: testkit.Patience, Retention: usualRetention, OutboxOwner: "ins_a", OutboxLease: term,
		WebhookBody: webhookBody, Observer: in.watched.watch,
	}
	for _, e := range edit {
		e(&o)
	}
	in.database = db.by(openWith(t, db.url, o))
	in.sends = in.WebhookOutbox(WebhookOptions{Owner: name, LeaseTerm: term})
	in.relay = in.as("ins_a")
	return in
}

// endpoint adds an endpoint that has been active for an hour, for these events, as edit changes it.
func (db *database) endpoint(t testing.TB, events string, edit func(*webhookRow)) webhook.ID {
	t.Helper()
	now := db.now(t)
	row := webhookRow{
		ID: webhook.ID(dispatch.NewUniqueID(dispatch.WebhookPrefix, now)), URL: "https://example.com/hook", Events: events, Status: webhook.Active,
		Secret: "whsec_c2VjcmV0", Version: 1, CreatedAt: micros(now.Add(-time.Hour)), UpdatedAt: micros(now.Add(-time.Hour)),
	}
	if edit != nil {
		edit(&row)
	}
	must(t, db.writes.WithContext(t.Context()).Create(&row).Error)
	return row.ID
}

// changed adds a dispatch and changes it, so that it has n events. It returns them in their order.
func (db *database) changed(t testing.TB, n int) (dispatch.Dispatch, []dispatch.EventID) {
	t.Helper()
	d := db.add(t, nil)
	for range n - 1 {
		d = db.mustUpdate(t, d.ID, touch)
	}
	return d, db.eventsOf(t, d.ID)
}

func (db *database) eventsOf(t testing.TB, id dispatch.ID) []dispatch.EventID {
	t.Helper()
	var events []dispatch.EventID
	must(t, db.general.WithContext(t.Context()).Raw("SELECT id FROM events WHERE dispatch_id = ? ORDER BY id", id).Scan(&events).Error)
	return events
}

// expanded completes the events by expanding them, one after the other.
func (in *courier) expanded(t testing.TB, events ...dispatch.EventID) {
	t.Helper()
	for _, e := range events {
		must(t, errorOf(in.relay.expandFully(t.Context(), e, 0)))
	}
}

// completions are the ways in which an event is completed.
var completions = map[string]func(t testing.TB, in *courier, events ...dispatch.EventID){
	"expanded": func(t testing.TB, in *courier, events ...dispatch.EventID) { in.expanded(t, events...) },
	"completed": func(t testing.TB, in *courier, events ...dispatch.EventID) {
		t.Helper()
		must(t, in.relay.CompleteEvents(t.Context(), events))
	},
}

// deliveries is what is stored of the endpoint's deliveries, in the order of the events.
func (db *database) deliveries(t testing.TB, id webhook.ID) (rows []deliveryRow) {
	t.Helper()
	must(t, db.general.WithContext(t.Context()).Where("webhook_id = ?", id).Order("event_id").Find(&rows).Error)
	return rows
}

func (in *courier) mustLease(t testing.TB, want int) []webhook.Lease {
	t.Helper()
	leases, err := in.sends.LeaseDeliveries(t.Context(), 100, nil, 1000)
	must(t, err)
	if len(leases) != want {
		t.Fatalf("%d deliveries are leased, want %d: %v", len(leases), want, leases)
	}
	return leases
}

func succeeded(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 204, Took: time.Millisecond}}
}

func failed(l webhook.Lease) webhook.Result {
	return webhook.Result{Lease: l, Attempt: webhook.Attempt{At: time.Now(), HTTPStatus: 500, Error: "the answer is 500", Took: time.Millisecond, Answer: "no"}}
}

func (in *courier) mustComplete(t testing.TB, results ...webhook.Result) []webhook.Endpoint {
	t.Helper()
	paused, err := in.sends.CompleteDeliveries(t.Context(), results)
	must(t, err)
	return paused
}

// However an event is completed, each active endpoint that wants it has one delivery of it then, and a lane that is due.
func TestDeliveriesOfEvents(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for name, complete := range completions {
			woken := 0
			in := db.courier(t, "ins_a", func(o *Options) { o.OnWebhooks = func() { woken++ } })
			db.exec(t, "DELETE FROM webhooks")
			all := db.endpoint(t, "*", nil)
			some := db.endpoint(t, "dispatch.accepted,dispatch.updated", nil)
			paused := db.endpoint(t, "*", func(w *webhookRow) { w.Status = webhook.Paused })
			deleted := db.endpoint(t, "*", func(w *webhookRow) { w.Status = deletedWebhook })
			d, events := in.changed(t, 2)
			complete(t, in, events...)
			if woken == 0 {
				t.Errorf("%s: nobody is told", name)
			}
			for i, row := range in.deliveries(t, all) {
				want := deliveryRow{
					DispatchID: d.ID, WebhookID: all, EventID: events[i], Type: []dispatch.EventType{dispatch.EventCreated, dispatch.EventUpdated}[i],
					Status: webhook.Pending, Body: fmt.Appendf(nil, "%s %s %d", events[i], d.ID, d.Version), Attempts: "[]", CreatedAt: row.CreatedAt,
				}
				testkit.Equal(t, name+": a delivery", want, row)
			}
			want := map[webhook.ID][]dispatch.EventID{all: events, some: events[1:], paused: {}, deleted: {}}
			for id, events := range want {
				testkit.Equal(t, name+": the events", events, collect(in.deliveries(t, id), func(r deliveryRow) dispatch.EventID { return r.EventID }))
				db.mustCount(t, min(1, len(events)), "webhook_lanes WHERE webhook_id = ? AND dispatch_id = ? AND next_at <= ?", id, d.ID, micros(db.now(t)))
			}
			// Repeated, as the parts of a large expansion are, it changes nothing.
			db.exec(t, "UPDATE webhook_deliveries SET status = 'DELIVERED', body = ?", []byte("sent"))
			db.exec(t, "UPDATE events SET next_at = 1, claim = 'ins_a'")
			complete(t, in, events...)
			db.mustCount(t, 3, "webhook_deliveries WHERE status = 'DELIVERED' AND body = ?", []byte("sent"))
			in.mustLease(t, 0)
			db.mustCount(t, 0, "webhook_lanes")
			db.exec(t, "DELETE FROM webhook_deliveries")
		}
	})
}

// An event that another process leases gets no delivery by a completion, and is not completed.
func TestDeliveriesOfOwnEventsOnly(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.courier(t, "ins_a")
		to := db.endpoint(t, "*", nil)
		_, events := in.changed(t, 3)
		db.exec(t, "UPDATE events SET claim = 'ins_b' WHERE id = ?", events[1])
		must(t, in.relay.CompleteEvents(t.Context(), events))
		db.mustCount(t, 2, "webhook_deliveries WHERE webhook_id = ?", to)
		db.mustCount(t, 1, "events WHERE next_at IS NOT NULL")
		mustBeError(t, "the expansion", errorOf(in.relay.expandFully(t.Context(), events[1], 0)), dispatch.ErrNotLeased)
		db.mustCount(t, 2, "webhook_deliveries WHERE webhook_id = ?", to)
		// An event and its deliveries are completed together or not at all.
		db.exec(t, "UPDATE events SET claim = 'ins_a', next_at = 1")
		db.exec(t, "DELETE FROM webhook_deliveries")
		db.without(t, "webhook_deliveries", func() {
			mustBeError(t, "a completion", in.relay.CompleteEvents(t.Context(), events), dispatch.ErrUnavailable)
			mustBeError(t, "an expansion", errorOf(in.relay.expandFully(t.Context(), events[0], 0)), dispatch.ErrUnavailable)
		})
		db.mustCount(t, 3, "events WHERE next_at IS NOT NULL")
	})
}

// While no endpoint is active, a completion costs no more statements than without webhooks; with one it costs three more.
func TestStatementsOfDeliveries(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		cost := func(in *courier, complete func(testing.TB, *courier, ...dispatch.EventID)) int {
			t.Helper()
			_, events := in.changed(t, 1)
			must(t, errorOf(in.look(t.Context(), 0, nil)))
			seen := *in.looks.latest.Load()
			seen.SentAt = seen.SentAt.Add(testkit.Patience) // a look that does not grow old meanwhile
			in.looks.latest.Store(&seen)
			in.watched.take()
			complete(t, in, events...)
			return len(slices.DeleteFunc(in.watched.take(), func(s string) bool { return strings.HasSuffix(s, "begin") || strings.HasSuffix(s, "commit") }))
		}
		without := db.courier(t, "ins_a", func(o *Options) { o.WebhookBody = nil })
		with := db.courier(t, "ins_a")
		before := map[string]int{}
		for name, complete := range completions {
			before[name] = cost(without, complete)
			testkit.Equal(t, name+": statements without an active endpoint", before[name], cost(with, complete))
		}
		db.endpoint(t, "*", nil)
		for name, complete := range completions {
			if n := cost(with, complete); n > before[name]+3 || n == before[name] {
				t.Errorf("%s: %d statements with an endpoint, %d without", name, n, before[name])
			}
		}
		db.mustCount(t, 2, "webhook_deliveries")
	})
}

// The answer to the change that makes the first endpoint active comes after every instance knows of it: an event after it is delivered,
// also where another instance completes it that had just seen no endpoint.
func TestFirstEndpointIsKnown(t *testing.T) {
	url := pooled(t, servertest.SQLite).url
	synctest.Test(t, func(t *testing.T) {
		db := (&database{url: url}).by(open(t, url))
		admin, other := db.courier(t, "ins_a"), db.courier(t, "ins_b")
		change := func(do func() error) (took time.Duration) {
			t.Helper()
			must(t, errorOf(other.look(t.Context(), 0, nil))) // the other instance's last look is before the change
			began := time.Now()
			must(t, do())
			return time.Since(began)
		}
		delivered := func(want int, to webhook.ID) {
			t.Helper()
			_, events := other.changed(t, 1)
			other.expanded(t, events...)
			testkit.Equal(t, "deliveries after the answer", want, len(other.deliveries(t, to)))
		}
		create := func(id webhook.ID) func() error {
			return func() error {
				return errorOf(admin.CreateWebhook(t.Context(), webhook.Endpoint{ID: id, URL: "https://a.example", Events: []string{"*"}, Status: webhook.Active}, "whsec_a"))
			}
		}
		status := func(id webhook.ID, s webhook.Status) func() error {
			return func() error {
				return errorOf(admin.UpdateWebhook(t.Context(), id, func(e *webhook.Endpoint) error { e.SetStatus(s); return nil }))
			}
		}
		testkit.Equal(t, "the first endpoint takes", webhookKnowledge, change(create("whk_1")))
		delivered(1, "whk_1")
		testkit.Equal(t, "the second takes", 0, change(create("whk_2")))
		delivered(1, "whk_2")
		testkit.Equal(t, "a pause takes", 0, change(status("whk_1", webhook.Paused)))
		testkit.Equal(t, "the other pause takes", 0, change(status("whk_2", webhook.Paused)))
		time.Sleep(time.Minute)
		testkit.Equal(t, "another start takes", webhookKnowledge, change(status("whk_2", webhook.Active)))
		delivered(2, "whk_2")
		// A request that finds it active waits, too, if it became active just now.
		must(t, status("whk_2", webhook.Paused)())
		first := make(chan error)
		go func() { first <- status("whk_2", webhook.Active)() }()
		time.Sleep(webhookKnowledge / 2)
		testkit.Equal(t, "the same start, asked for again, takes", webhookKnowledge, change(status("whk_2", webhook.Active)))
		must(t, <-first)
		time.Sleep(time.Minute)
		testkit.Equal(t, "the start of another takes", 0, change(status("whk_1", webhook.Active)))
		must(t, admin.DeleteWebhook(t.Context(), "whk_1"))
		must(t, admin.DeleteWebhook(t.Context(), "whk_2"))
		must(t, errorOf(other.look(t.Context(), 0, nil)))
		if other.webhooksMayExist() {
			t.Error("a deleted endpoint may exist")
		}
		time.Sleep(webhookKnowledge)
		if !other.webhooksMayExist() {
			t.Error("an old look says that none exists")
		}
	})
}

// An event that is pushed later is delivered at once, and once.
func TestEventsThatArePushedLater(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		woken := 0
		in := db.courier(t, "ins_a", func(o *Options) { o.OnWebhooks = func() { woken++ } })
		to := db.endpoint(t, "*", nil)
		d := in.add(t, nil)
		in.expanded(t, in.eventsOf(t, d.ID)...)
		in.mustComplete(t, succeeded(in.mustLease(t, 1)[0]))
		woken = 0
		later := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, err := touch(d, now)
			events[0].PushAt = now.Add(time.Hour)
			return events, err
		}
		in.mustUpdate(t, d.ID, later)
		testkit.Equal(t, "calls for an event that is pushed later", 1, woken)
		l := in.mustLease(t, 1)[0]
		in.mustComplete(t, succeeded(l))
		second := in.eventsOf(t, d.ID)[1]
		testkit.Equal(t, "the event", second, l.Delivery.Event)
		// An event whose delivery was not written early, as its instance has ended, holds back no later event for longer than a look.
		in.mustUpdate(t, d.ID, later)
		<-in.early
		in.mustUpdate(t, d.ID, touch)
		all := in.eventsOf(t, d.ID)
		in.expanded(t, all[3])
		in.mustLease(t, 0)
		for _, want := range all[2:] {
			db.exec(t, "UPDATE webhook_lanes SET next_at = 1")
			l := in.mustLease(t, 1)[0]
			testkit.Equal(t, "the event", want, l.Delivery.Event)
			in.mustComplete(t, succeeded(l))
		}
		// Its completion finds the delivery written.
		db.exec(t, "UPDATE events SET claim = 'ins_a' WHERE id = ?", second)
		in.expanded(t, second)
		in.mustLease(t, 0)
		db.mustCount(t, 4, "webhook_deliveries WHERE webhook_id = ? AND status = 'DELIVERED'", to)
		// One whose time has come while it waited is left to its completion, which may have been long ago.
		in.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			events, err := touch(d, now)
			events[0].PushAt = now.Add(time.Microsecond)
			return events, err
		})
		in.mustLease(t, 0)
		db.mustCount(t, 4, "webhook_deliveries")
	})
}

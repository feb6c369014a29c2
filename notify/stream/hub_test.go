package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

func TestAloneOnOneInstance(t *testing.T) {
	h := runHub(t, Options{})
	winner, loser := kim(), kim()
	won, lost, admin := driverStream(t, h, winner, ""), driverStream(t, h, loser, ""), adminStream(t, h, "")
	d := job()
	happens(h, d, dispatch.EventCreated, "")
	d.Status = dispatch.Accepted
	happens(h, d, dispatch.EventAccepted, winner.ID)
	last := happens(h, d, dispatch.EventStarted, winner.ID)
	over := happens(h, d, dispatch.EventCanceled, winner.ID)
	for _, c := range []*client{won, lost, admin} {
		c.get(over)
	}
	for _, c := range []struct {
		what string
		got  *client
		want []string
	}{
		{"winner", won, []string{"dispatch.opened", "dispatch.accepted", "dispatch.started", "dispatch.canceled"}},
		{"loser", lost, []string{"dispatch.opened", "dispatch.taken", "dispatch.canceled"}},
		{"admin", admin, []string{"dispatch.created", "dispatch.accepted", "dispatch.started", "dispatch.canceled"}},
	} {
		testkit.Equal(t, c.what, c.want, c.got.names())
	}
	for _, e := range lost.all() {
		for _, secret := range []string{string(winner.ID), "driver_id", "actor", "BECAUSE"} {
			if strings.Contains(e.raw, secret) {
				t.Errorf("a loser's event contains %s: %s", secret, e.raw)
			}
		}
	}
	if e := admin.all()[2]; e.data["driver_id"] != string(winner.ID) || e.data["reason_code"] != "BECAUSE" || e.subject() != string(last.ID) {
		t.Errorf("an admin's event contains %s", e.raw)
	}
}

// TestResume: a client that resumes gets the events that it missed, each once. With an unknown id it gets one resync.
func TestResume(t *testing.T) {
	h := runHub(t, Options{RingSize: 16})
	v, d := kim(), job()
	c := driverStream(t, h, v, "")
	start := c.lastID()
	if start == "" {
		t.Fatal("the client got no event, so it has no id to resume from")
	}
	first := happens(h, d, dispatch.EventOpened, "")
	c.get(first)
	at := c.hangUp()
	missed := []dispatch.Event{happens(h, d, dispatch.EventOpened, ""), happens(h, d, dispatch.EventOpened, "")}
	happens(h, d, dispatch.EventStarted, "drv_another") // not for this one

	back := driverStream(t, h, v, at)
	back.get(missed...)
	testkit.Equal(t, "the missed events", subjects(missed), heardSubjects(back))
	if fromStart := driverStream(t, h, v, start); true {
		testkit.Eventually(t, "everything", func() bool { return len(fromStart.all()) == 3 })
	}
	for what, id := range map[string]string{
		"unknown": "1-1", "malformed": "'; DROP", "of the future": "99999999999999-0", "too long": fmt.Sprintf("%0512d", 1),
	} {
		c := driverStream(t, h, v, id)
		testkit.Eventually(t, what, func() bool { return c.count("resync") == 1 })
		opens(h, c)
		testkit.Equal(t, what, []string{"resync", "dispatch.opened"}, c.names())
	}
	for range 20 {
		opens(h, back)
	}
	if old := driverStream(t, h, v, at); true {
		testkit.Eventually(t, "too old", func() bool { return old.count("resync") == 1 })
		testkit.Equal(t, "where the late client goes on", back.lastID(), old.lastID())
	}
}

func subjects(events []dispatch.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, string(e.ID))
	}
	return ids
}

func heardSubjects(c *client) (ids []string) {
	for _, e := range c.all() {
		ids = append(ids, e.subject())
	}
	return ids
}

func TestTheSameEventTwice(t *testing.T) {
	h := runHub(t, Options{})
	c := adminStream(t, h, "")
	d := job()
	e := happens(h, d, dispatch.EventCreated, "")
	h.Publish(d, []dispatch.Event{e, e})
	opens(h, c)
	testkit.Equal(t, "events", 2, len(c.all()))
}

// TestDutyMatters: a change of the driver's duty applies to open streams at once.
func TestDutyMatters(t *testing.T) {
	h := runHub(t, Options{})
	v := kim()
	c, admin := driverStream(t, h, v, ""), adminStream(t, h, "")
	change := func(version int, change func(*dispatch.Driver)) {
		v.Version = version
		change(&v)
		h.DriverChanged(v)
	}
	offered := func() bool {
		d := job()
		e := happens(h, d, dispatch.EventOpened, "")
		// Every eligible driver gets the end event, so a missing opening is distinguishable from a late one.
		end := happens(h, d, dispatch.EventExpired, "")
		admin.get(end)
		if len(v.Ineligible(d.Terms, time.Now())) == 0 || v.MatchesTerms(d.Terms) {
			c.get(end)
		}
		return c.has(e.ID)
	}
	if !offered() {
		t.Error("on duty: no event")
	}
	if change(2, offDuty); offered() {
		t.Error("off duty: an event")
	}
	if change(3, func(v *dispatch.Driver) { v.OnDuty = true }); !offered() {
		t.Error("on duty again: no event")
	}
	later := time.Now().Add(time.Hour)
	if change(4, func(v *dispatch.Driver) { v.SuspendedUntil = &later }); offered() {
		t.Error("suspended: an event")
	}
	stale := kim(func(old *dispatch.Driver) { old.ID, old.Version = v.ID, 3 })
	if h.DriverChanged(stale); offered() {
		t.Error("an older version has come back")
	}
	if change(5, func(v *dispatch.Driver) { v.SuspendedUntil, v.Regions = nil, []string{"busan"} }); offered() {
		t.Error("another region: an event")
	}
}

// TestChangeWhileOpening: a driver who goes off duty while the stream opens gets no offer.
func TestChangeWhileOpening(t *testing.T) {
	h := runHub(t, Options{})
	v := kim()
	s, err := h.OpenDriver(t.Context(), v.ID, "", func(context.Context) (dispatch.Driver, error) {
		read := v // and now it changes
		off := kim(offDuty, func(o *dispatch.Driver) { o.ID, o.Version = v.ID, 2 })
		h.DriverChanged(off)
		testkit.Eventually(t, "the change", func() bool { return waiting(h) == 0 })
		return read, nil
	})
	c := listen(t, s, err).greeted()
	d := job()
	opened, end := happens(h, d, dispatch.EventOpened, ""), happens(h, d, dispatch.EventExpired, "")
	c.get(end)
	if c.has(opened.ID) {
		t.Error("offered to a driver off duty")
	}
}

// TestOneSlowClient: a slow client's stream is cut; the others get everything, without delay.
func TestOneSlowClient(t *testing.T) {
	h := runHub(t, Options{RingSize: 128, Metrics: prometheus.NewRegistry()})
	stuck := make(chan struct{})
	writes := 0
	s, err := h.OpenAdmin(t.Context(), "key_slow", "")
	slow := listenSlowly(t, s, err, func() error {
		if writes++; writes > 1 {
			<-stuck
		}
		return nil
	}).greeted()
	var quick []*client
	for range 5 {
		quick = append(quick, driverStream(t, h, kim(), ""))
	}
	var published []dispatch.Event
	for range testkit.Scale(4, 10) {
		for range 100 {
			published = append(published, opens(h))
		}
		for _, c := range quick {
			testkit.Eventually(t, "everything", func() bool { return len(c.all()) == len(published) })
		}
	}
	for _, c := range quick {
		if diff := cmp.Diff(subjects(published), heardSubjects(c)); diff != "" {
			t.Fatalf("(-published +heard):\n%s", diff)
		}
	}
	close(stuck)
	<-slow.ended
	if !errors.Is(slow.err, ErrLagging) {
		t.Errorf("the slow one ended with %v", slow.err)
	}
	if n := len(slow.all()); n >= len(published) {
		t.Errorf("the slow one has heard %d", n)
	}
	testkit.Equal(t, "streams cut for lagging", 1, testutil.ToFloat64(h.metrics.lagging))
	// It comes back too late to resume.
	if back := adminStream(t, h, slow.lastID()); true {
		testkit.Eventually(t, "to read again", func() bool { return back.count("resync") == 1 })
	}
}

// TestBurst: many events at once do not cut a client that keeps up.
func TestBurst(t *testing.T) {
	h := NewHub(Options{})
	for range 4000 {
		opens(h)
	}
	c := driverStream(t, h, kim(), "")
	testkit.Run(t, h.Run)
	testkit.Eventually(t, "all", func() bool { return len(c.all()) == 4000 })
}

// TestNoRoom: events beyond the queue's limit are counted, delay no publisher, and cause a resync of every client.
func TestNoRoom(t *testing.T) {
	h := NewHub(Options{QueueSize: 10})
	v := kim()
	c := driverStream(t, h, v, "")
	var kept []dispatch.Event
	for i := range 25 {
		if e := opens(h); i < 10 {
			kept = append(kept, e)
		}
	}
	testkit.Run(t, h.Run)
	testkit.Eventually(t, "to read again", func() bool { return c.count("resync") == 1 })
	testkit.Equal(t, "the kept events, and a resync", append(subjects(kept), ""), heardSubjects(c))
	testkit.Equal(t, "counted events", 15, testutil.ToFloat64(h.metrics.overflow))
	opens(h, c)
	testkit.Equal(t, "resyncs", 1, testutil.ToFloat64(h.metrics.resyncs)) // counted before the next event is sent
}

package stream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// TestEventsPerClient checks every event against every kind of client. "" means that the client gets nothing.
func TestEventsPerClient(t *testing.T) {
	mine, free, off, far := kim(), kim(), kim(offDuty), kim(elsewhere)
	later := time.Now().Add(time.Hour)
	suspended := kim(func(v *dispatch.Driver) { v.SuspendedUntil = &later })
	type row struct{ mine, free, off, suspended, far string }
	for _, c := range []struct {
		event dispatch.EventType
		about bool // the first driver
		want  row
	}{
		{dispatch.EventCreated, false, row{"dispatch.opened", "dispatch.opened", "", "", ""}},
		{dispatch.EventOpened, false, row{"dispatch.opened", "dispatch.opened", "", "", ""}},
		{dispatch.EventReopened, false, row{"dispatch.reopened", "dispatch.reopened", "", "", ""}},
		{dispatch.EventUpdated, false, row{"dispatch.updated", "dispatch.updated", "", "", ""}},
		{dispatch.EventUpdated, true, row{"dispatch.updated", "dispatch.updated", "", "", ""}},
		{dispatch.EventAccepted, true, row{"dispatch.accepted", "dispatch.taken", "dispatch.taken", "dispatch.taken", ""}},
		{dispatch.EventDeclined, true, row{mine: "dispatch.declined"}},
		{dispatch.EventWithdrawn, true, row{mine: "dispatch.withdrawn"}},
		{dispatch.EventUnassigned, true, row{mine: "dispatch.unassigned"}},
		{dispatch.EventStarted, true, row{mine: "dispatch.started"}},
		{dispatch.EventCompleted, true, row{mine: "dispatch.completed"}},
		{dispatch.EventCanceled, true, row{"dispatch.canceled", "dispatch.canceled", "dispatch.canceled", "dispatch.canceled", ""}},
		{dispatch.EventCanceled, false, row{"dispatch.canceled", "dispatch.canceled", "dispatch.canceled", "dispatch.canceled", ""}},
		{dispatch.EventExpired, false, row{"dispatch.expired", "dispatch.expired", "dispatch.expired", "dispatch.expired", ""}},
	} {
		e := dispatch.Event{ID: "evt_1", Type: c.event, Round: 1, At: time.Now(), Actor: "key_1"}
		if c.about {
			e.Driver, e.Actor = mine.ID, string(mine.ID)
		}
		m := newMessage("1-1", newAnnouncement(job(), e))
		hears := func(v dispatch.Driver) string { return nameIn(m.forDriver(&v, time.Now())) }
		got := row{hears(mine), hears(free), hears(off), hears(suspended), hears(far)}
		testkit.Equal(t, string(c.event), c.want, got, cmp.AllowUnexported(row{}))
		testkit.Equal(t, "what an admin gets", string(c.event), nameIn(m.forAdmin))
	}
}

// nameIn returns the event name of frame f, "" for no frame. If the type in the data differs, it returns a text that says so.
func nameIn(f []byte) string {
	_, rest, _ := strings.Cut(string(f), "\nevent: ")
	name, data, _ := strings.Cut(rest, "\ndata: ")
	if name != "" && !strings.Contains(data, `"type":"`+name+`"`) {
		return "two names: " + string(f)
	}
	return name
}

// TestOverdueIsShown: when a job is closed or canceled as overdue, no phone gets a push, but open streams get the event.
func TestOverdueIsShown(t *testing.T) {
	mine, free := kim(), kim()
	for _, c := range []struct {
		event dispatch.EventType
		free  string
	}{{dispatch.EventCanceled, "dispatch.canceled"}, {dispatch.EventCompleted, ""}} {
		e := dispatch.Event{
			ID: "evt_1", Type: c.event, Round: 1, Driver: mine.ID, Actor: dispatch.System, ReasonCode: dispatch.ReasonOverdue, At: time.Now(),
		}
		m := newMessage("1-1", newAnnouncement(job(), e))
		got := []string{nameIn(m.forDriver(&mine, time.Now())), nameIn(m.forDriver(&free, time.Now())), nameIn(m.forAdmin)}
		if diff := cmp.Diff([]string{string(c.event), c.free, string(c.event)}, got); diff != "" || len(e.Deliveries()) > 0 {
			t.Errorf("%s (-want +got):\n%s", c.event, diff)
		}
	}
}

// TestDeclinedIsTheDecliners: of all drivers, only the one who declined gets the event, although the event names the winner.
func TestDeclinedIsTheDecliners(t *testing.T) {
	winner, decliner := kim(), kim()
	e := dispatch.Event{ID: "evt_1", Type: dispatch.EventDeclined, Round: 1, Driver: winner.ID, Actor: string(decliner.ID)}
	m := newMessage("1-1", newAnnouncement(job(), e))
	if m.forDriver(&winner, time.Now()) != nil || m.forDriver(&decliner, time.Now()) == nil {
		t.Error("the driver who declined is not the only one with the event")
	}
}

// TestOvertakenOffer: drivers do not get an offer that is published after the dispatch is no longer open.
func TestOvertakenOffer(t *testing.T) {
	v := kim()
	for what, change := range map[string]func(*dispatch.Dispatch){
		"taken":           func(d *dispatch.Dispatch) { d.Status = dispatch.Accepted },
		"expired":         func(d *dispatch.Dispatch) { d.Status = dispatch.Expired },
		"the next round":  func(d *dispatch.Dispatch) { d.Round++ },
		"not open as yet": func(d *dispatch.Dispatch) { d.Status = dispatch.Scheduled },
	} {
		d := job()
		change(&d)
		m := newMessage("1-1", newAnnouncement(d, dispatch.Event{ID: "evt_1", Type: dispatch.EventOpened, Round: 1}))
		testkit.Equal(t, what+": it is sent", what == "not open as yet", m.forDriver(&v, time.Now()) != nil)
		if m.forAdmin == nil {
			t.Errorf("%s: an admin gets every event", what)
		}
	}
}

// An admin's event says who did it and why. A driver's event names no other person.
func TestWire(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_999_999, time.FixedZone("KST", 9*3600))
	d := dispatch.Dispatch{
		ID: "dsp_1", Terms: dispatch.Terms{Region: "서울\n\"강남\"", VehicleClass: "45m"},
		Window: dispatch.Window{OpensAt: at, ExpiresAt: at.Add(time.Minute)}, Status: dispatch.Accepted, Round: 2, Version: 7,
	}
	e := dispatch.Event{
		ID: "evt_1", Type: dispatch.EventAccepted, Dispatch: "dsp_1", Round: 2, Driver: "drv_1", Actor: "drv_1", At: at, ReasonCode: "RAIN",
	}
	m := newMessage("17-3", newAnnouncement(d, e))
	common := `"dispatch_id":"dsp_1","round":2,"version":7,"status":"ACCEPTED","region":"서울\n\"강남\"","vehicle_class":"45m",` +
		`"opens_at":"2026-03-03T20:06:07.089Z","expires_at":"2026-03-03T20:07:07.089Z","at":"2026-03-03T20:06:07.089Z"`
	for _, c := range []struct{ what, got, name, rest string }{
		{"admin", string(m.forAdmin), "dispatch.accepted", `,"driver_id":"drv_1","actor":"drv_1","reason_code":"RAIN"`},
		{"winner", string(m.forSubject), "dispatch.accepted", ""},
		{"loser", string(m.forOthers), "dispatch.taken", ""},
	} {
		want := "id: 17-3\nevent: " + c.name + "\ndata: " + `{"event_id":"evt_1","type":"` + c.name + `",` + common + c.rest + "}\n\n"
		testkit.Equal(t, c.what, want, c.got)
	}
	e.Driver, e.Actor, e.ReasonCode = "", "", ""
	m = newMessage("17-4", newAnnouncement(d, e))
	if !strings.HasSuffix(string(m.forAdmin), `,"driver_id":null,"actor":null,"reason_code":null}`+"\n\n") {
		t.Errorf("what an event lacks is no null: %s", m.forAdmin)
	}
}

// TestThroughRedis: a message is the same with and without Redis.
func TestThroughRedis(t *testing.T) {
	height := 45.5
	d := job()
	d.MinWorkingHeightM = &height
	a := newAnnouncement(d, dispatch.Event{ID: "evt_1", Type: dispatch.EventCanceled, Dispatch: d.ID, Round: 1, Driver: "drv_1", Actor: "key_1", ReasonCode: "RAIN", At: time.Now()})
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := received{id: "1-1", kind: kindEvent, body: string(raw)}.decode()
	testkit.Equal(t, "the message through Redis", newMessage("1-1", a), got, cmp.AllowUnexported(message{}))
	for _, broken := range []string{"", "{", `[]`, `{"at":"x"}`} {
		if m, _ := (received{id: "1-1", kind: kindEvent, body: broken}).decode(); m == nil || !m.resync {
			t.Errorf("%q was lost in silence", broken)
		}
	}
	if m, p := (received{id: "1-1", kind: "of tomorrow", body: "{}"}).decode(); m != nil || p != nil {
		t.Error("an unknown message was delivered")
	}
}

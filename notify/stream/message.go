package stream

import (
	"encoding/json"
	"time"

	"firsttap/dispatch"
)

// announcement is an event with the data of its dispatch that clients get. The tags are its form in Redis, which instances
// of two versions may share.
type announcement struct {
	ID           dispatch.EventID   `json:"id"`
	Type         dispatch.EventType `json:"type"`
	Dispatch     dispatch.ID        `json:"dispatch"`
	Round        int                `json:"round"`
	Driver       dispatch.DriverID  `json:"driver,omitempty"`
	Actor        string             `json:"actor,omitempty"`
	Reason       string             `json:"reason,omitempty"`
	At           time.Time          `json:"at"`
	Version      int                `json:"version"`
	Status       dispatch.Status    `json:"status"`
	Region       string             `json:"region"`
	VehicleClass string             `json:"class"`
	MinHeight    *float64           `json:"height,omitempty"`
	OpensAt      time.Time          `json:"opens"`
	ExpiresAt    time.Time          `json:"expires"`
	Superseded   bool               `json:"overtaken,omitempty"`
}

func newAnnouncement(d dispatch.Dispatch, e dispatch.Event) *announcement {
	return &announcement{
		ID: e.ID, Type: e.Type, Dispatch: e.Dispatch, Round: e.Round, Driver: e.Driver, Actor: e.Actor, Reason: e.ReasonCode,
		At: e.At, Version: d.Version, Status: d.Status, Region: d.Region, VehicleClass: d.VehicleClass,
		MinHeight: d.MinWorkingHeightM, OpensAt: d.OpensAt, ExpiresAt: d.ExpiresAt,
		Superseded: d.Round != e.Round || d.Status != dispatch.Pending && d.Status != dispatch.Scheduled,
	}
}

// subject returns the driver who is concerned personally, "" if none. For a decline that is the driver who declined, as
// another one may have the dispatch by then.
func (a *announcement) subject() dispatch.DriverID {
	if a.Type == dispatch.EventDeclined {
		return dispatch.DriverID(a.Actor)
	}
	return a.Driver
}

// message is an entry of the ring: an event, encoded once for each kind of client.
type message struct {
	id     string // in the stream
	event  dispatch.EventID
	resync bool // asks every client to read its data again, as messages may have been lost

	subject dispatch.DriverID
	terms   dispatch.Terms
	offer   bool // forOthers is for drivers who could accept now, not for all who may see the dispatch

	forAdmin, forSubject, forOthers []byte
}

// forDriver returns the frame that the driver gets, nil if none.
func (m *message) forDriver(v *dispatch.Driver, now time.Time) []byte {
	switch {
	case m.resync:
		return m.forOthers
	case m.forSubject != nil && m.subject == v.ID:
		return m.forSubject
	case m.forOthers == nil, !v.MatchesTerms(m.terms): // checked first, as it excludes most drivers
		return nil
	case m.offer && len(v.Ineligible(m.terms, now)) > 0:
		return nil
	}
	return m.forOthers
}

// marker returns a message that no client gets. A stream that is past it can be resumed from its id.
func marker(id string) *message { return &message{id: id} }

func resyncMessage(id string) *message {
	f := resyncFrame(id)
	return &message{id: id, resync: true, forAdmin: f, forSubject: f, forOthers: f}
}

func resyncFrame(id string) []byte {
	return []byte("id: " + id + "\nevent: resync\ndata: {}\n\n")
}

func newMessage(id string, a *announcement) *message {
	m := &message{
		id: id, event: a.ID, subject: a.subject(), forAdmin: a.frame(id, a.Type, true),
		terms: dispatch.Terms{Region: a.Region, VehicleClass: a.VehicleClass, MinWorkingHeightM: a.MinHeight},
	}
	for _, t := range a.Type.Deliveries() {
		switch t.Audience {
		case dispatch.AudienceClaimant:
			m.forSubject = a.frame(id, t.Type, false)
		case dispatch.AudienceOffered:
			m.forOthers = a.frame(id, t.Type, false)
		case dispatch.AudienceEligible:
			m.offer = true
			if !a.Superseded {
				m.forOthers = a.frame(id, t.Type, false)
			}
		}
	}
	switch a.Type {
	case dispatch.EventWithdrawn, dispatch.EventDeclined, dispatch.EventStarted, dispatch.EventCompleted, dispatch.EventUpdated:
		// The driver gets no push of these, but may have them on another device's screen.
		m.forSubject = a.frame(id, a.Type, false)
	}
	return m
}

// driverData is the data that drivers get. It names no other person.
type driverData struct {
	EventID      dispatch.EventID   `json:"event_id"`
	Type         dispatch.EventType `json:"type"`
	DispatchID   dispatch.ID        `json:"dispatch_id"`
	Round        int                `json:"round"`
	Version      int                `json:"version"`
	Status       dispatch.Status    `json:"status"`
	Region       string             `json:"region"`
	VehicleClass string             `json:"vehicle_class"`
	OpensAt      string             `json:"opens_at"`
	ExpiresAt    string             `json:"expires_at"`
	At           string             `json:"at"`
}

// AdminEvent is the data of an event that admins get, as JSON.
type AdminEvent struct {
	driverData
	DriverID   *string `json:"driver_id"`
	Actor      *string `json:"actor"`
	ReasonCode *string `json:"reason_code"`
}

// NewAdminEvent returns the event of d as the admins' stream sends it.
func NewAdminEvent(d dispatch.Dispatch, e dispatch.Event) AdminEvent {
	return newAnnouncement(d, e).adminEvent(e.Type)
}

func (a *announcement) adminEvent(t dispatch.EventType) AdminEvent {
	return AdminEvent{a.driverData(t), nullable(string(a.Driver)), nullable(a.Actor), nullable(a.Reason)}
}

func (a *announcement) driverData(t dispatch.EventType) driverData {
	return driverData{
		EventID: a.ID, Type: t, DispatchID: a.Dispatch, Round: a.Round, Version: a.Version, Status: a.Status,
		Region: a.Region, VehicleClass: a.VehicleClass,
		OpensAt: dispatch.WireTime(a.OpensAt), ExpiresAt: dispatch.WireTime(a.ExpiresAt), At: dispatch.WireTime(a.At),
	}
}

// frame returns the event as a server-sent event of the name t.
func (a *announcement) frame(id string, t dispatch.EventType, admin bool) []byte {
	var data any = a.driverData(t)
	if admin {
		data = a.adminEvent(t)
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // strings and numbers
	}
	f := make([]byte, 0, len(id)+len(t)+len(body)+24)
	f = append(f, "id: "...)
	f = append(f, id...)
	f = append(f, "\nevent: "...)
	f = append(f, t...)
	f = append(f, "\ndata: "...)
	f = append(f, body...)
	return append(f, "\n\n"...)
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

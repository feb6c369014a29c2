// Package dispatch is the domain: jobs offered to drivers, who may take them, and when.
//
// It knows no database, no network and no clock. Every rule is a pure function of what it is given, so that the
// storage can run it wherever it holds the row.
package dispatch

import "time"

// Status is where a dispatch stands.
type Status string

// The states. SCHEDULED and EXPIRED follow from the clock as well as from a transition: see [Dispatch.Status].
const (
	Scheduled  Status = "SCHEDULED"
	Pending    Status = "PENDING"
	Accepted   Status = "ACCEPTED"
	InProgress Status = "IN_PROGRESS"
	Completed  Status = "COMPLETED"
	Canceled   Status = "CANCELED"
	Expired    Status = "EXPIRED"
)

// Valid reports whether s is one of the states.
func (s Status) Valid() bool {
	switch s {
	case Scheduled, Pending, Accepted, InProgress, Completed, Canceled, Expired:
		return true
	}
	return false
}

// Money is an amount in the currency's minor unit.
type Money struct {
	Amount   int64
	Currency string // ISO 4217
}

// Site is where the work is.
type Site struct {
	Address  string
	Lat, Lng *float64
}

// Terms is what a driver agrees to by accepting.
type Terms struct {
	Region            string
	VehicleClass      string
	MinWorkingHeightM *float64
	Site              Site
	WorkStartsAt      time.Time
	WorkEndsAt        time.Time
	Fee               Money
	Note              string
}

// Window is when drivers may accept: from OpensAt, up to but not including ExpiresAt.
type Window struct {
	OpensAt   time.Time
	ExpiresAt time.Time
}

// DefaultWindow is how long an offer stands when nobody says otherwise.
const DefaultWindow = 10 * time.Minute

// Dispatch is one job offered to drivers.
type Dispatch struct {
	ID         ID
	ExternalID string
	Terms
	Window
	// Status is the state as of the moment the dispatch was read: one that is not open yet is SCHEDULED, one whose
	// window has passed is EXPIRED, whether or not anybody has written that down.
	Status Status
	// Round counts the openings, from 1. Whatever is decided about a dispatch is decided about one round of it, so
	// that nothing said in one round can win the next.
	Round int
	// Version moves with every change; an admin's change names the version it was made for.
	Version int
	// Claim is the active claim: nil unless the dispatch is ACCEPTED, IN_PROGRESS or COMPLETED, or was when it was
	// canceled.
	Claim     *Claim
	CreatedAt time.Time
	UpdatedAt time.Time
}

// New returns a dispatch in its first round, and the event of its creation.
func New(id ID, externalID string, terms Terms, window Window, actor string, now time.Time) (Dispatch, []Event) {
	d := Dispatch{
		ID: id, ExternalID: externalID, Terms: terms, Window: window,
		Round: 1, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	d.Status = d.statusAt(Pending, now)
	return d, []Event{d.event(EventCreated, actor, "", now)}
}

// At returns the dispatch as it stands at now, given the state that was last written.
func (d Dispatch) At(written Status, now time.Time) Dispatch {
	d.Status = d.statusAt(written, now)
	return d
}

func (d *Dispatch) statusAt(written Status, now time.Time) Status {
	switch {
	case written != Pending:
		return written
	case now.Before(d.OpensAt):
		return Scheduled
	case !now.Before(d.ExpiresAt):
		return Expired
	}
	return Pending
}

// HeldBy reports whether driver has the active claim.
func (d *Dispatch) HeldBy(driver DriverID) bool {
	return d.Claim != nil && d.Claim.Driver == driver
}

// Overlaps reports whether both jobs want the driver at the same time. Back to back is no overlap.
func (t Terms) Overlaps(o Terms) bool {
	return t.WorkStartsAt.Before(o.WorkEndsAt) && o.WorkStartsAt.Before(t.WorkEndsAt)
}

// WireTime is a time as the API, the stream and pushes write it: UTC, to the millisecond.
func WireTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Query selects dispatches for a list.
type Query struct {
	Status Status   // as of now; "" for any
	Region string   // "" for any
	Text   string   // in the id, the external id, the address or the note; "" for any
	Driver DriverID // who has it; "" for anyone or no one
	Page
}

// Page is a part of a list: after where Cursor points, and at most Limit long. A cursor comes with the page before.
type Page struct {
	Limit  int
	Cursor string
}

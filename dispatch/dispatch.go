// Package dispatch is the domain: jobs offered to drivers, and the rules for accepting them.
//
// It uses no database, no network and no clock. Every rule is a pure function of its arguments, so that the storage can run
// it while it holds the row's lock.
package dispatch

import "time"

// Status is a dispatch's state.
type Status string

// The states. SCHEDULED and EXPIRED also follow from the clock: see [Dispatch.Status].
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

// Site is the place of the work.
type Site struct {
	Address  string
	Lat, Lng *float64
}

// Terms are the conditions that a driver agrees to by accepting.
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

// DefaultWindow is the length of an offer without an explicit end.
const DefaultWindow = 10 * time.Minute

// Dispatch is one job offered to drivers.
type Dispatch struct {
	ID         ID
	ExternalID string
	Terms
	Window
	// Status is the state at the time of reading: SCHEDULED before the window and EXPIRED after it, even where PENDING is
	// stored.
	Status Status
	// Round counts the openings, from 1. Every decision is about one round, so that a tap on one round cannot win the next.
	Round int
	// Version grows with every change. An admin's change names the version that it is based on.
	Version int
	// Claim is the active claim, or the one that was active when the dispatch was canceled. Otherwise it is nil unless the
	// dispatch is ACCEPTED, IN_PROGRESS or COMPLETED.
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

// At returns the dispatch with its state at now, given the stored state.
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

// WireTime formats a time as the API, the stream and pushes send it: UTC, in milliseconds.
func WireTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Query selects dispatches for a list.
type Query struct {
	Status Status   // as of now; "" for any
	Region string   // "" for any
	Text   string   // in the id, the external id, the address or the note; "" for any
	Driver DriverID // the holder, and then Text is ignored; "" for any or none
	Page
}

// Page selects at most Limit items of a list after Cursor, which the previous page returned.
type Page struct {
	Limit  int
	Cursor string
}

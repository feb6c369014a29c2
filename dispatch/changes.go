package dispatch

import "time"

// The reasons of a dispatch.updated that opens no round: drivers keep the offer that they have.
const (
	ReasonWindowChanged = "WINDOW_CHANGED"
	ReasonExtended      = "EXTENDED"
)

// Update replaces the terms and the window. Changed terms open the next round, so that a tap on the old offer cannot accept
// the new terms. A changed window keeps the round. No event where nothing changes.
//
// The errors, in this order: ErrVersionConflict; ErrInvalidState unless the dispatch is SCHEDULED or PENDING, and for a new
// opening time of an open one; ErrWindow. Where the work is moved to before the end of the offer, and that end is not, the offer
// ends with the work.
func (d *Dispatch) Update(version int, terms Terms, window Window, actor string, now time.Time) ([]Event, error) {
	if err := d.checkUntaken(version); err != nil {
		return nil, err
	}
	if window.ExpiresAt.Equal(d.ExpiresAt) && window.ExpiresAt.After(terms.WorkEndsAt) {
		window.ExpiresAt = terms.WorkEndsAt
	}
	agreed, same := terms.Equal(d.Terms), window.Equal(d.Window)
	switch {
	case agreed && same:
		return nil, nil
	case d.Status == Pending && !window.OpensAt.Equal(d.OpensAt):
		return nil, &StateError{Status: d.Status}
	}
	if err := window.Check(terms, now); err != nil {
		return nil, err
	}
	reason := ReasonWindowChanged
	if !agreed {
		d.Round++
		reason = ""
	}
	d.Terms, d.Window = terms, window
	d.Status = d.statusAt(Pending, now)
	d.bumpVersion(now)
	return []Event{d.event(EventUpdated, actor, reason, now)}, nil
}

// Extend postpones the offer's end, in the same round. The errors, in this order: ErrVersionConflict, ErrInvalidState unless the
// dispatch is SCHEDULED or PENDING, ErrWindow.
func (d *Dispatch) Extend(version int, until time.Time, actor string, now time.Time) ([]Event, error) {
	if err := d.checkUntaken(version); err != nil {
		return nil, err
	}
	window := Window{OpensAt: d.OpensAt, ExpiresAt: until}
	if !until.After(d.ExpiresAt) {
		return nil, &TimeError{"expires_at", "must be later than it is"}
	}
	if err := window.Check(d.Terms, now); err != nil {
		return nil, err
	}
	d.Window = window
	d.bumpVersion(now)
	return []Event{d.event(EventUpdated, actor, ReasonExtended, now)}, nil
}

// Reopen opens the next round of an expired dispatch: at opens, nil for now, until expires, nil for the length of the last
// round, or to the end of the work. The errors, in this order: ErrVersionConflict, ErrInvalidState unless the dispatch is EXPIRED,
// ErrWindow.
func (d *Dispatch) Reopen(version int, opens, expires *time.Time, actor string, now time.Time) ([]Event, error) {
	switch {
	case version != d.Version:
		return nil, ErrVersionConflict
	case d.Status != Expired:
		return nil, &StateError{Status: d.Status}
	}
	window := d.reopenedAt(now)
	if opens != nil {
		window = d.reopenedAt(*opens)
	}
	if expires != nil {
		window.ExpiresAt = *expires
	}
	if err := window.Check(d.Terms, now); err != nil {
		return nil, err
	}
	d.reopen(window, now)
	return []Event{d.event(EventReopened, actor, "", now)}, nil
}

// Assign gives the dispatch to the candidate under the claim id, on behalf of actor, before its opening too. The candidate
// may be off duty: the office has asked them. It returns no event and no error if the candidate already has the dispatch.
//
// The errors, in this order: ErrVersionConflict, ErrCanceled, ErrAlreadyTaken, ErrExpired, ErrNotEligible, ErrDriverBusy.
func (d *Dispatch) Assign(version int, c Candidate, claim ClaimID, actor string, now time.Time) ([]Event, error) {
	switch {
	case version != d.Version:
		return nil, ErrVersionConflict
	case d.Status == Canceled:
		return nil, ErrCanceled
	case d.HeldBy(c.ID):
		return nil, nil
	case d.Claim != nil:
		return nil, &TakenError{Final: true}
	case d.Status == Expired:
		return nil, ErrExpired
	}
	c.OnDuty = true
	if reasons := c.Ineligible(d.Terms, now); len(reasons) > 0 {
		return nil, &NotEligibleError{Reasons: reasons}
	}
	if c.Busy {
		return nil, ErrDriverBusy
	}
	d.claimFor(c.ID, claim, now)
	return []Event{d.event(EventAccepted, actor, "", now)}, nil
}

// Unassign ends the driver's claim and opens the next round at once, of the same length as the last. The errors, in this
// order: ErrVersionConflict, ErrInvalidState unless the dispatch is ACCEPTED.
func (d *Dispatch) Unassign(version int, actor, reason string, now time.Time) ([]Event, error) {
	switch {
	case version != d.Version:
		return nil, ErrVersionConflict
	case d.Status != Accepted:
		return nil, &StateError{Status: d.Status}
	}
	return d.release(EventUnassigned, actor, reason, now), nil
}

// checkUntaken returns nil for a dispatch at that version that a driver may still accept.
func (d *Dispatch) checkUntaken(version int) error {
	switch {
	case version != d.Version:
		return ErrVersionConflict
	case d.Status != Scheduled && d.Status != Pending:
		return &StateError{Status: d.Status}
	}
	return nil
}

// Equal reports whether t and o are the same terms.
func (t Terms) Equal(o Terms) bool {
	return t.Region == o.Region && t.VehicleClass == o.VehicleClass && equal(t.MinWorkingHeightM, o.MinWorkingHeightM) &&
		t.Site.Address == o.Site.Address && equal(t.Site.Lat, o.Site.Lat) && equal(t.Site.Lng, o.Site.Lng) &&
		t.WorkStartsAt.Equal(o.WorkStartsAt) && t.WorkEndsAt.Equal(o.WorkEndsAt) && t.Fee == o.Fee && t.Note == o.Note
}

func equal(a, b *float64) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Equal reports whether both windows are the same.
func (w Window) Equal(o Window) bool {
	return w.OpensAt.Equal(o.OpensAt) && w.ExpiresAt.Equal(o.ExpiresAt)
}

// Check returns a TimeError unless a driver could accept within the window, now or later, and the work is not over by then. An
// offer ends with the work at the latest.
func (w Window) Check(terms Terms, now time.Time) error {
	switch {
	case !terms.WorkEndsAt.After(now):
		return &TimeError{"work_ends_at", "must be in the future"}
	case !w.OpensAt.Before(terms.WorkEndsAt):
		return &TimeError{"opens_at", "must be before work_ends_at"}
	case !w.ExpiresAt.After(w.OpensAt) || !w.ExpiresAt.After(now):
		return &TimeError{"expires_at", "must be after opens_at and in the future"}
	case w.ExpiresAt.After(terms.WorkEndsAt):
		return &TimeError{"expires_at", "must not be after work_ends_at"}
	}
	return nil
}

// reopenedAt returns a window of the last round's length that opens at that time, and ends with the work at the latest.
func (d *Dispatch) reopenedAt(at time.Time) Window {
	return d.Terms.Window(at, d.ExpiresAt.Sub(d.OpensAt))
}

// Window returns a window that opens at that time for so long, and ends with the work at the latest.
func (t Terms) Window(opens time.Time, length time.Duration) Window {
	w := Window{OpensAt: opens, ExpiresAt: opens.Add(length)}
	if w.ExpiresAt.After(t.WorkEndsAt) {
		w.ExpiresAt = t.WorkEndsAt
	}
	return w
}

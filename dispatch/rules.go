package dispatch

import "time"

// Accept gives the dispatch to the candidate under the claim id. Round is the round the driver was offered, 0 for
// whichever is current.
//
// It returns no event and no error when the candidate already has the dispatch in that round: a repeated tap
// changes nothing and is told so by d.Claim. Otherwise, in this order: ErrCanceled, ErrAlreadyTaken, ErrExpired,
// ErrOfferStale, ErrNotOpenYet, ErrNotEligible, ErrDriverBusy.
func (d *Dispatch) Accept(c Candidate, round int, claim ClaimID, now time.Time) ([]Event, error) {
	current := round == 0 || round == d.Round
	if d.Status == Canceled {
		return nil, ErrCanceled
	}
	if d.Claim != nil {
		switch {
		case d.Claim.Driver != c.ID:
			return nil, &TakenError{Final: true}
		case !current:
			return nil, ErrOfferStale
		}
		return nil, nil
	}
	if d.Status == Expired {
		return nil, ErrExpired
	}
	if !current || round == 0 && c.GaveBack {
		// Without a round, the late retry of a claim that was given back looks like a fresh tap. Whoever gave a
		// dispatch back names the round to take it again.
		return nil, ErrOfferStale
	}
	if d.Status == Scheduled {
		return nil, &NotOpenYetError{OpensAt: d.OpensAt}
	}
	if reasons := c.Ineligible(d.Terms, now); len(reasons) > 0 {
		return nil, &NotEligibleError{Reasons: reasons}
	}
	if c.Busy {
		return nil, ErrDriverBusy
	}
	d.claimFor(c.ID, claim, now)
	return []Event{d.event(EventAccepted, string(c.ID), "", now)}, nil
}

// Withdraw gives the driver's claim back and opens the next round at once, for as long as the last one stood. A driver who is
// suspended may: somebody else can have it then.
// ErrNotYours, ErrInvalidState once the work has started.
func (d *Dispatch) Withdraw(driver DriverID, reason string, now time.Time) ([]Event, error) {
	if !d.HeldBy(driver) {
		return nil, ErrNotYours
	}
	if d.Status != Accepted {
		return nil, &StateError{Status: d.Status}
	}
	return d.release(EventWithdrawn, string(driver), reason, now), nil
}

// Start begins the work. Starting what the driver has already started changes nothing. ErrNotYours, ErrInvalidState, and
// ErrNotEligible while the driver is suspended.
func (d *Dispatch) Start(v Driver, now time.Time) ([]Event, error) {
	if d.HeldBy(v.ID) && d.Status == Accepted && v.Suspended(now) {
		return nil, &NotEligibleError{Reasons: []Reason{Suspended}}
	}
	return d.advance(v.ID, Accepted, InProgress, EventStarted, now)
}

// Complete ends the work, also that of a driver who is suspended meanwhile. Completing what the driver has already completed
// changes nothing.
func (d *Dispatch) Complete(driver DriverID, now time.Time) ([]Event, error) {
	return d.advance(driver, InProgress, Completed, EventCompleted, now)
}

func (d *Dispatch) advance(driver DriverID, from, to Status, t EventType, now time.Time) ([]Event, error) {
	switch {
	case !d.HeldBy(driver):
		return nil, ErrNotYours
	case d.Status == to:
		return nil, nil
	case d.Status != from:
		return nil, &StateError{Status: d.Status}
	}
	d.Status = to
	d.bumpVersion(now)
	return []Event{d.event(t, string(driver), "", now)}, nil
}

// Cancel ends the dispatch for everyone. version is the one the caller has seen: ErrVersionMoved if it is not the
// current one. ErrInvalidState once it is over.
func (d *Dispatch) Cancel(version int, actor, reason string, now time.Time) ([]Event, error) {
	if version != d.Version {
		return nil, ErrVersionMoved
	}
	switch d.Status {
	case Scheduled, Pending, Accepted, InProgress:
	default:
		return nil, &StateError{Status: d.Status}
	}
	d.Status = Canceled
	d.bumpVersion(now)
	return []Event{d.event(EventCanceled, actor, reason, now)}, nil
}

// Expire ends an offer whose window has passed, given the state that was last written. No event while it stands, and
// none when its end is written already.
func (d *Dispatch) Expire(written Status, now time.Time) []Event {
	if written != Pending || d.Status != Expired {
		return nil
	}
	d.bumpVersion(now)
	return []Event{d.event(EventExpired, System, "", now)}
}

// Remind returns the reminder of accepted work that starts within before, and changes nothing. None of work that has
// started, or that was accepted when the time of its reminder had come.
func (d *Dispatch) Remind(before time.Duration, now time.Time) []Event {
	due := d.WorkStartsAt.Add(-before)
	if d.Status != Accepted || !d.Claim.AcceptedAt.Before(due) || now.Before(due) || !now.Before(d.WorkStartsAt) {
		return nil
	}
	return []Event{d.event(EventReminder, System, "", now)}
}

// CloseOverdue ends what nobody has closed although its work was to end more than after ago: CANCELED if it never began,
// COMPLETED if it did. No event for anything else.
func (d *Dispatch) CloseOverdue(after time.Duration, now time.Time) []Event {
	if !d.WorkEndsAt.Before(now.Add(-after)) {
		return nil
	}
	t := EventCanceled
	switch d.Status {
	case Accepted:
		d.Status = Canceled
	case InProgress:
		d.Status, t = Completed, EventCompleted
	default:
		return nil
	}
	d.bumpVersion(now)
	return []Event{d.event(t, System, ReasonOverdue, now)}
}

// Reannounce says again that the dispatch is open, for drivers who were turned away by a claim that came to
// nothing. Round is the one they tapped on, 0 for the current one. No event when it is no longer open in that round.
// The dispatch and its version stay as they are: an admin's change is not in vain because of it.
func (d *Dispatch) Reannounce(round int, now time.Time) []Event {
	if d.Status != Pending || round != 0 && round != d.Round {
		return nil
	}
	return []Event{d.event(EventOpened, System, ReasonClaimFailed, now)}
}

// The reasons of what the service does by itself.
const (
	// ReasonClaimFailed marks a dispatch.opened that follows a claim which came to nothing.
	ReasonClaimFailed = "CLAIM_FAILED"
	// ReasonOverdue marks the end of a dispatch that nobody has closed.
	ReasonOverdue = "OVERDUE"
)

func (d *Dispatch) claimFor(driver DriverID, claim ClaimID, now time.Time) {
	d.Status = Accepted
	d.Claim = &Claim{ID: claim, Driver: driver, Round: d.Round, AcceptedAt: now}
	d.bumpVersion(now)
}

// release ends the claim and opens the next round at once, for as long as the last one stood.
func (d *Dispatch) release(t EventType, actor, reason string, now time.Time) []Event {
	released := d.event(t, actor, reason, now)
	d.reopen(d.reopenedAt(now), now)
	// A microsecond later, so that the trail shows the two in their order.
	return []Event{released, d.event(EventReopened, System, "", now.Add(time.Microsecond))}
}

func (d *Dispatch) reopen(w Window, now time.Time) {
	d.Window = w
	d.Status = d.statusAt(Pending, now)
	d.Claim = nil
	d.Round++
	d.bumpVersion(now)
}

func (d *Dispatch) bumpVersion(now time.Time) {
	d.Version++
	d.UpdatedAt = now
}

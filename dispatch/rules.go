package dispatch

import "time"

// Accept gives the dispatch to the candidate under the claim id. round is the round of the driver's offer, 0 for the current
// one.
//
// It returns no event and no error if the candidate already has the dispatch in that round: a repeated tap changes nothing,
// and d.Claim has another id. The errors, in this order: ErrCanceled, ErrAlreadyTaken, ErrExpired, ErrOfferStale,
// ErrNotOpenYet, ErrNotEligible, ErrDriverBusy.
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
	if !current || round == 0 && c.HadIt {
		// Without a round, a late retry of a withdrawn claim looks like a fresh tap. So a driver who has withdrawn must name
		// the round to accept the dispatch again.
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

// Withdraw ends the driver's claim and opens the next round at once, of the same length as the last, unless the work is over. A suspended
// driver may withdraw. ErrNotHolder, ErrInvalidState once the work has started.
func (d *Dispatch) Withdraw(driver DriverID, reason string, now time.Time) ([]Event, error) {
	if !d.HeldBy(driver) {
		return nil, ErrNotHolder
	}
	if d.Status != Accepted {
		return nil, &StateError{Status: d.Status}
	}
	return d.release(EventWithdrawn, string(driver), reason, now), nil
}

// Start starts the work. A repeated start changes nothing. ErrNotHolder, ErrInvalidState, and ErrNotEligible while the driver
// is suspended.
func (d *Dispatch) Start(v Driver, now time.Time) ([]Event, error) {
	if d.HeldBy(v.ID) && d.Status == Accepted && v.Suspended(now) {
		return nil, &NotEligibleError{Reasons: []IneligibleReason{Suspended}}
	}
	return d.advance(v.ID, Accepted, InProgress, EventStarted, now)
}

// Complete completes the work, also for a suspended driver. A repeated call changes nothing. ErrNotHolder, ErrInvalidState.
func (d *Dispatch) Complete(driver DriverID, now time.Time) ([]Event, error) {
	return d.advance(driver, InProgress, Completed, EventCompleted, now)
}

func (d *Dispatch) advance(driver DriverID, from, to Status, t EventType, now time.Time) ([]Event, error) {
	switch {
	case !d.HeldBy(driver):
		return nil, ErrNotHolder
	case d.Status == to:
		return nil, nil
	case d.Status != from:
		return nil, &StateError{Status: d.Status}
	}
	d.Status = to
	d.bumpVersion(now)
	return []Event{d.event(t, string(driver), "", now)}, nil
}

// Cancel cancels the dispatch at that version. ErrVersionConflict, ErrInvalidState once it is over.
func (d *Dispatch) Cancel(version int, actor, reason string, now time.Time) ([]Event, error) {
	if version != d.Version {
		return nil, ErrVersionConflict
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

// Expire writes down that an offer has expired. A dispatch is Expired as soon as its window has passed, though it is still stored as
// PENDING. Expire changes no other dispatch, and returns no event of it.
func (d *Dispatch) Expire(now time.Time) []Event {
	if d.Status != Expired {
		return nil
	}
	d.bumpVersion(now)
	return []Event{d.event(EventExpired, System, "", now)}
}

// Remind returns the reminder of accepted work that starts within before. The version stays as it is. UpdatedAt does not, so that later
// events sort behind this one. No event for work that has started, or that was accepted after its reminder was due.
func (d *Dispatch) Remind(before time.Duration, now time.Time) []Event {
	due := d.WorkStartsAt.Add(-before)
	if d.Status != Accepted || !d.Claim.AcceptedAt.Before(due) || now.Before(due) || !now.Before(d.WorkStartsAt) {
		return nil
	}
	d.UpdatedAt = now
	return []Event{d.event(EventReminder, System, "", now)}
}

// CloseOverdue closes a dispatch whose work was to end more than after ago: as CANCELED if the work did not start, as COMPLETED
// if it did. No event for any other dispatch.
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

// Reannounce announces an open dispatch again, for drivers whose taps on that round, 0 for the current one, were refused by
// a claim that failed. No event if the dispatch is not open in that round, and a NotOpenYetError before its opening. The version
// stays as it is, so that no admin's change is refused because of it. UpdatedAt does not: a claim that was decided before is decided again,
// and its event sorts behind this one.
func (d *Dispatch) Reannounce(round int, now time.Time) ([]Event, error) {
	switch {
	case round != 0 && round != d.Round:
		return nil, nil
	case d.Status == Scheduled:
		return nil, &NotOpenYetError{OpensAt: d.OpensAt}
	case d.Status != Pending:
		return nil, nil
	}
	d.UpdatedAt = now
	return []Event{d.event(EventOpened, System, ReasonClaimFailed, now)}, nil
}

// The reasons of the service's own changes.
const (
	// ReasonClaimFailed marks a dispatch.opened after a claim that failed.
	ReasonClaimFailed = "CLAIM_FAILED"
	// ReasonOverdue marks the end of an overdue dispatch.
	ReasonOverdue = "OVERDUE"
)

func (d *Dispatch) claimFor(driver DriverID, claim ClaimID, now time.Time) {
	d.Status = Accepted
	d.Claim = &Claim{ID: claim, Driver: driver, Round: d.Round, AcceptedAt: now}
	d.bumpVersion(now)
}

// release ends the claim and opens the next round at once, of the same length as the last, to the end of the work at most. The next round
// of work that is over is EXPIRED, in the window of the last.
func (d *Dispatch) release(t EventType, actor, reason string, now time.Time) []Event {
	released := d.event(t, actor, reason, now)
	window, next := d.reopenedAt(now), EventReopened
	if !d.WorkEndsAt.After(now) {
		window, next = d.Window, EventExpired
	}
	d.reopen(window, now)
	// The second event is a microsecond later, so that the trail sorts them in this order.
	return []Event{released, d.event(next, System, "", now.Add(time.Microsecond))}
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

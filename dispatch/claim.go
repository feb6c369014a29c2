package dispatch

import "time"

// Claim is a winning acceptance. A dispatch has at most one claim per round, and at most one active claim at any time.
type Claim struct {
	ID         ClaimID
	Driver     DriverID
	Round      int
	AcceptedAt time.Time
}

// Outcome is a dispatch's outcome for one driver.
type Outcome string

// The outcomes. A claim itself is WON until it ends as WITHDRAWN, UNASSIGNED or CANCELED.
const (
	OutcomeWon        Outcome = "WON"
	OutcomeLost       Outcome = "LOST"
	OutcomeWithdrawn  Outcome = "WITHDRAWN"
	OutcomeUnassigned Outcome = "UNASSIGNED"
	OutcomeExpired    Outcome = "EXPIRED"
	OutcomeCanceled   Outcome = "CANCELED"
	OutcomePending    Outcome = "PENDING"
	OutcomeDeclined   Outcome = "DECLINED"
	OutcomeNoAttempt  Outcome = "NO_ATTEMPT"
)

// Receipt is a dispatch's outcome for one driver. It says nothing about other drivers.
type Receipt struct {
	Outcome Outcome
	Round   int
	// Rank is 1 for the winner; the others are ranked by their first tap in the round. 0 where unknown.
	Rank int
	// Behind is the time from the winner's first tap to the driver's, at least 0; nil where unknown.
	Behind    *time.Duration
	DecidedAt *time.Time
}

// PastClaim is a driver's claim with its end.
type PastClaim struct {
	Claim
	Outcome Outcome
	EndedAt *time.Time
}

// CurrentHolder is the holder of a dispatch in its current round.
type CurrentHolder struct {
	Status Status // as stored, not adjusted by the clock
	Round  int
	Driver DriverID // "" for none
}

// RaceStanding summarizes the stored attempts of one round for a driver.
type RaceStanding struct {
	Tapped bool
	// FirstTap is the driver's first tap in the race, nil for none. Taps before the opening are not in the race.
	FirstTap       *time.Time
	WinnerFirstTap *time.Time // the winner's first tap
	Ahead          int        // how many drivers besides the winner tapped earlier
	Now            time.Time
}

// attemptDelay is how long an attempt may take to be stored.
const attemptDelay = 2 * time.Second

// ReceiptFor returns a driver's receipt. past is the driver's newest claim on the dispatch, nil for none: the receipt is about
// that claim, unless the driver has tapped or declined in a later round. c and s are of the current round.
func (d *Dispatch) ReceiptFor(past *PastClaim, c OfferHistory, s RaceStanding) Receipt {
	if past != nil && (past.Round == d.Round || !s.Tapped && c.DeclinedAt == nil) {
		r := Receipt{Outcome: past.Outcome, Round: past.Round, Rank: 1, Behind: new(time.Duration), DecidedAt: &past.AcceptedAt}
		if past.EndedAt != nil {
			r.DecidedAt = past.EndedAt
		}
		return r
	}
	r := Receipt{Outcome: OutcomePending, Round: d.Round}
	switch d.Status {
	case Scheduled, Pending:
		if c.DeclinedAt != nil {
			r.Outcome, r.DecidedAt = OutcomeDeclined, c.DeclinedAt
		}
	case Expired:
		r.Outcome, r.DecidedAt = OutcomeExpired, &d.ExpiresAt
	case Canceled:
		r.Outcome, r.DecidedAt = OutcomeCanceled, &d.UpdatedAt
	case Accepted, InProgress, Completed:
		d.addLoss(&r, c, s)
	}
	return r
}

// addLoss sets the outcome of a driver when another driver has the dispatch.
func (d *Dispatch) addLoss(r *Receipt, c OfferHistory, s RaceStanding) {
	r.DecidedAt = &d.Claim.AcceptedAt
	switch {
	case s.Tapped:
		r.Outcome = OutcomeLost
		if s.FirstTap != nil {
			r.Rank = s.Ahead + 2
		}
		if s.FirstTap != nil && s.WinnerFirstTap != nil {
			behind := max(0, s.FirstTap.Sub(*s.WinnerFirstTap))
			r.Behind = &behind
		}
	case s.Now.Sub(d.Claim.AcceptedAt) < attemptDelay: // a tap of this driver may not be stored yet
		r.Outcome, r.DecidedAt = OutcomePending, nil
	case c.DeclinedAt != nil:
		r.Outcome = OutcomeDeclined
	default:
		r.Outcome = OutcomeNoAttempt
	}
}

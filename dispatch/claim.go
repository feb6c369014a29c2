package dispatch

import "time"

// Claim is a winning acceptance. A dispatch has at most one in each round and at most one active claim ever.
type Claim struct {
	ID         ClaimID
	Driver     DriverID
	Round      int
	AcceptedAt time.Time
}

// Outcome is what became of a driver's interest in a dispatch.
type Outcome string

// The outcomes. A claim itself is WON until it ends as WITHDRAWN, UNASSIGNED or CANCELED.
const (
	Won              Outcome = "WON"
	Lost             Outcome = "LOST"
	Withdrawn        Outcome = "WITHDRAWN"
	Unassigned       Outcome = "UNASSIGNED"
	OutcomeExpired   Outcome = "EXPIRED"
	OutcomeCanceled  Outcome = "CANCELED"
	Undecided        Outcome = "PENDING"
	OutcomeDeclined  Outcome = "DECLINED"
	OutcomeNoAttempt Outcome = "NO_ATTEMPT"
)

// Receipt tells one driver how a dispatch went for them, and nothing about anybody else.
type Receipt struct {
	Outcome Outcome
	Round   int
	// Rank is 1 for who got it; the others are ranked by their first tap in the round. 0 where it is not known.
	Rank int
	// Behind is the driver's first tap after the winner's, at least 0; nil where it is not known.
	Behind    *time.Duration
	DecidedAt *time.Time
}

// PastClaim is the newest claim that a driver has had on a dispatch, ended or not.
type PastClaim struct {
	Claim
	Outcome Outcome
	EndedAt *time.Time
}

// Holding is who has a dispatch in its newest round.
type Holding struct {
	Status Status // as it is stored: the clock has not been asked
	Round  int
	Driver DriverID // "" for nobody
}

// Standing is what the ledger of taps knows of a driver in one round.
type Standing struct {
	Tapped bool
	// Mine is the driver's first tap in the race, nil if there was none. Taps before the opening are in no race.
	Mine    *time.Time
	Winners *time.Time // the first tap of who got it
	Before  int        // drivers, but for who got it, that tapped before this one
	Now     time.Time
}

// attemptDelay is how long a tap may take to get into the ledger.
const attemptDelay = 2 * time.Second

// ReceiptFor returns the receipt of a driver whose newest claim on the dispatch is past, nil if there was none: it is
// about that claim, unless they have come back to the dispatch in a later round. c and s are of the current one.
func (d *Dispatch) ReceiptFor(past *PastClaim, c Contact, s Standing) Receipt {
	if past != nil && (past.Round == d.Round || !s.Tapped && c.DeclinedAt == nil) {
		r := Receipt{Outcome: past.Outcome, Round: past.Round, Rank: 1, Behind: new(time.Duration), DecidedAt: &past.AcceptedAt}
		if past.EndedAt != nil {
			r.DecidedAt = past.EndedAt
		}
		return r
	}
	r := Receipt{Outcome: Undecided, Round: d.Round}
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

// addLoss says what it was to a driver that another one got the dispatch.
func (d *Dispatch) addLoss(r *Receipt, c Contact, s Standing) {
	r.DecidedAt = &d.Claim.AcceptedAt
	switch {
	case s.Tapped:
		r.Outcome = Lost
		if s.Mine != nil {
			r.Rank = s.Before + 2
		}
		if s.Mine != nil && s.Winners != nil {
			behind := max(0, s.Mine.Sub(*s.Winners))
			r.Behind = &behind
		}
	case s.Now.Sub(d.Claim.AcceptedAt) < attemptDelay: // who has declined may have tapped after all
		r.Outcome, r.DecidedAt = Undecided, nil
	case c.DeclinedAt != nil:
		r.Outcome = OutcomeDeclined
	default:
		r.Outcome = OutcomeNoAttempt
	}
}

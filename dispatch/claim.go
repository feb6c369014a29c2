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
	Outcome   Outcome
	Round     int
	DecidedAt *time.Time
}

// PastClaim is the newest claim that a driver has had on a dispatch, ended or not.
type PastClaim struct {
	Claim
	Outcome Outcome
	EndedAt *time.Time
}

// ReceiptFor returns the receipt of a driver whose newest claim on the dispatch is past, nil if there was none.
func (d *Dispatch) ReceiptFor(past *PastClaim) Receipt {
	if past != nil {
		r := Receipt{Outcome: past.Outcome, Round: past.Round, DecidedAt: &past.AcceptedAt}
		if past.EndedAt != nil {
			r.DecidedAt = past.EndedAt
		}
		return r
	}
	switch d.Status {
	case Scheduled, Pending:
		return Receipt{Outcome: Undecided, Round: d.Round}
	case Expired:
		return Receipt{Outcome: OutcomeExpired, Round: d.Round, DecidedAt: &d.ExpiresAt}
	case Canceled:
		return Receipt{Outcome: OutcomeCanceled, Round: d.Round, DecidedAt: &d.UpdatedAt}
	}
	return Receipt{Outcome: Lost, Round: d.Round, DecidedAt: &d.Claim.AcceptedAt}
}

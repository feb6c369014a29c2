package dispatch_test

import (
	"errors"
	"testing"
	"time"

	. "firsttap/dispatch"
)

func TestWhereAnOfferStands(t *testing.T) {
	at := new(noon)
	before, after := new(noon.Add(-time.Second)), new(noon.Add(time.Second))
	told := OfferHistory{NotifiedAt: at}
	sent := OfferHistory{NotifiedAt: at, SentAt: at}
	seen := OfferHistory{NotifiedAt: at, SentAt: at, SeenAt: at}
	seenOnly := OfferHistory{SeenAt: at}
	declined := OfferHistory{SentAt: at, SeenAt: at, DeclinedAt: at}
	tappedBefore := OfferHistory{DeclinedAt: at, TappedAt: before}
	tappedAfter := OfferHistory{DeclinedAt: at, TappedAt: after}
	gaveBack := OfferHistory{Withdrew: true, SentAt: at}
	with := func(c OfferHistory, claim Outcome) OfferHistory { c.Claim = claim; return c }
	cameBack := func(c OfferHistory) OfferHistory { c.Withdrew = true; return c }
	for name, c := range map[string]struct {
		status Status
		holder DriverID
		c      OfferHistory
		want   OfferStatus
	}{
		"no notification sent":             {Pending, "", OfferHistory{}, OfferPending},
		"a push is written":                {Pending, "", told, OfferPending},
		"pushed":                           {Pending, "", sent, OfferSent},
		"pushed before the opening":        {Scheduled, "", sent, OfferSent},
		"seen":                             {Pending, "", seen, OfferSeen},
		"seen in the list":                 {Scheduled, "", seenOnly, OfferSeen},
		"declined":                         {Pending, "", declined, OfferDeclined},
		"declined before the opening":      {Scheduled, "", declined, OfferDeclined},
		"declined, then tapped in vain":    {Pending, "", tappedAfter, OfferDeclined},
		"declined, taken by another":       {Accepted, other, declined, OfferDeclined},
		"declined after a tap, taken":      {Accepted, other, tappedBefore, OfferDeclined},
		"tapped after declining, taken":    {Accepted, other, tappedAfter, OfferTaken},
		"declined, canceled":               {Canceled, "", declined, OfferDeclined},
		"tapped after declining, canceled": {Canceled, "", tappedAfter, OfferRevoked},
		"mine":                             {Accepted, me, seen, OfferAccepted},
		"mine, by the claim":               {Accepted, me, with(seen, OutcomeWon), OfferAccepted},
		"mine although declined":           {InProgress, me, declined, OfferAccepted},
		"mine, done":                       {Completed, me, with(seen, OutcomeWon), OfferAccepted},
		"mine, canceled":                   {Canceled, me, with(seen, OutcomeCanceled), OfferRevoked},
		"mine, canceled, by the row":       {Canceled, me, seen, OfferRevoked},
		"taken by another":                 {Accepted, other, seen, OfferTaken},
		"taken by another, begun":          {InProgress, other, OfferHistory{}, OfferTaken},
		"taken by another, done":           {Completed, other, sent, OfferTaken},
		"canceled":                         {Canceled, "", seen, OfferRevoked},
		"canceled after another had it":    {Canceled, other, seen, OfferRevoked},
		"expired":                          {Expired, "", seen, OfferExpired},
		"gave it back":                     {Pending, "", gaveBack, OfferWithdrawn},
		"withdrawn, taken by another":      {Accepted, other, gaveBack, OfferWithdrawn},
		"gave it back, saw the next round": {Pending, "", cameBack(seen), OfferSeen},
		"gave it back, declined the next":  {Pending, "", cameBack(declined), OfferDeclined},
		"gave it back, lost the next":      {Accepted, other, cameBack(OfferHistory{TappedAt: at}), OfferTaken},
		"gave it back, has it again":       {Accepted, me, gaveBack, OfferAccepted},
	} {
		o := Offered{Dispatch: inState(c.status, c.holder), Contact: c.c}
		o.Contact.Driver, o.Contact.Round = me, o.Round
		if got := o.OfferStatus(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The dispatch's current state does not affect an offer of an earlier round.
func TestWhereAnOldOfferStands(t *testing.T) {
	at := new(noon)
	for name, c := range map[string]struct {
		c    OfferHistory
		want OfferStatus
	}{
		"changed terms":              {OfferHistory{SeenAt: at}, OfferRevoked},
		"revoked":                    {OfferHistory{Ended: OfferRevoked}, OfferRevoked},
		"another had it":             {OfferHistory{Ended: OfferTaken, SeenAt: at}, OfferTaken},
		"no driver took it":          {OfferHistory{Ended: OfferExpired, SentAt: at}, OfferExpired},
		"declined":                   {OfferHistory{Ended: OfferTaken, DeclinedAt: at}, OfferDeclined},
		"gave it back":               {OfferHistory{Ended: OfferTaken, Claim: OutcomeWithdrawn}, OfferWithdrawn},
		"gave it back, had declined": {OfferHistory{Ended: OfferTaken, Claim: OutcomeWithdrawn, DeclinedAt: at}, OfferWithdrawn},
		"taken away":                 {OfferHistory{Ended: OfferTaken, Claim: OutcomeUnassigned}, OfferRevoked},
	} {
		for _, now := range []Dispatch{inState(Pending, ""), inState(Accepted, me), inState(Accepted, other), inState(Canceled, ""), inState(Expired, "")} {
			o := Offered{Dispatch: now, Contact: c.c}
			o.Contact.Driver, o.Contact.Round = me, o.Round-1
			if got := o.OfferStatus(); got != c.want {
				t.Errorf("%s, %s now: %s, want %s", name, now.Status, got, c.want)
			}
		}
	}
}

func TestDecline(t *testing.T) {
	for name, c := range map[string]struct {
		d     Dispatch
		round int
		err   error
		says  bool
	}{
		"open":                      {inState(Pending, ""), 0, nil, true},
		"the current round":         {inState(Pending, ""), 2, nil, true},
		"not open yet":              {inState(Scheduled, ""), 2, nil, true},
		"an earlier round":          {inState(Pending, ""), 1, nil, false},
		"a round that has not been": {inState(Pending, ""), 3, ErrOfferStale, false},
		"taken by another":          {inState(Accepted, other), 0, nil, false},
		"mine":                      {inState(Accepted, me), 2, ErrInvalidState, false},
		"mine, done":                {inState(Completed, me), 0, ErrInvalidState, false},
		"expired":                   {inState(Expired, ""), 0, nil, false},
		"canceled":                  {inState(Canceled, ""), 2, nil, false},
	} {
		was := c.d
		events, err := c.d.Decline(me, c.round, "TOO_FAR", noon)
		if !errors.Is(err, c.err) || c.err == nil && err != nil || len(events) == 1 != c.says {
			t.Errorf("%s: %v, %v", name, events, err)
		}
		if c.d != was {
			t.Errorf("%s: it changed the dispatch", name)
		}
		if !c.says {
			continue
		}
		want := Event{Type: EventDeclined, Dispatch: c.d.ID, Round: 2, Driver: me, Actor: string(me), ReasonCode: "TOO_FAR", At: noon}
		if events[0].ID = ""; events[0] != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, events[0], want)
		}
	}
}

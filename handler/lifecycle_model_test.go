package handler

import (
	"fmt"
	"slices"
	"time"
)

// The model of the API: one goroutine, one clock, no database.

type modelDriver struct {
	caller
	regions []string
	onDuty  bool
}

type modelClaim struct {
	driver  *modelDriver
	round   int
	outcome string
	ended   time.Time
}

type modelTerms struct {
	region       string
	starts, ends time.Time
	amount       int
	note         string
	lat          float64 // 0 for none, and so is the longitude
}

type modelDispatch struct {
	id string
	modelTerms
	opens, expires time.Time
	written        string // PENDING although the clock says more
	round, version int
	claim          *modelClaim
	claims         []*modelClaim
	events         []string
}

type model struct {
	fleet      []*modelDriver
	dispatches []*modelDispatch
}

// verdict is the result of a call: a status, and the code of a problem.
type verdict struct {
	status int
	code   string
}

var fine = verdict{200, ""}

func (d *modelDispatch) status(now time.Time) string {
	switch {
	case d.written != "PENDING":
		return d.written
	case now.Before(d.opens):
		return "SCHEDULED"
	case !now.Before(d.expires):
		return "EXPIRED"
	}
	return "PENDING"
}

// happens notes an event as the API lists it.
func (d *modelDispatch) happens(kind, actor, reason string) {
	driver := "-"
	if d.claim != nil {
		driver = d.claim.driver.id
	}
	d.events = append(d.events, fmt.Sprintf("dispatch.%s %d %s %s %s", kind, d.round, driver, actor, reason))
}

func (d *modelDispatch) had(v *modelDriver) (newest *modelClaim) {
	for _, c := range d.claims {
		if c.driver == v {
			newest = c
		}
	}
	return newest
}

func (d *modelDispatch) hadIn(v *modelDriver, round int) *modelClaim {
	for _, c := range d.claims {
		if c.driver == v && c.round == round {
			return c
		}
	}
	return nil
}

func (d *modelDispatch) sees(v *modelDriver) bool {
	return d.had(v) != nil || slices.Contains(v.regions, d.region)
}

func (m *model) busy(v *modelDriver, with *modelDispatch) bool {
	return slices.ContainsFunc(m.dispatches, func(d *modelDispatch) bool {
		return d != with && d.claim != nil && d.claim.driver == v && (d.written == "ACCEPTED" || d.written == "IN_PROGRESS") &&
			d.starts.Before(with.ends) && with.starts.Before(d.ends)
	})
}

func (m *model) win(d *modelDispatch, v *modelDriver, actor string) verdict {
	d.claim = &modelClaim{driver: v, round: d.round, outcome: "WON"}
	d.claims = append(d.claims, d.claim)
	d.written = "ACCEPTED"
	d.version++
	d.happens("accepted", actor, "")
	return fine
}

func (m *model) accept(d *modelDispatch, v *modelDriver, round int, now time.Time) verdict {
	had := d.had(v)
	switch status := d.status(now); {
	case status == "CANCELED":
		return verdict{410, "DISPATCH_CANCELED"}
	case d.claim != nil && d.claim.driver != v:
		return verdict{409, "ALREADY_TAKEN"}
	case d.claim != nil && round != 0 && round != d.round:
		return verdict{409, "OFFER_STALE"}
	case d.claim != nil:
		return fine
	case status == "EXPIRED":
		return verdict{410, "DISPATCH_EXPIRED"}
	case round != 0 && round != d.round, round == 0 && had != nil:
		return verdict{409, "OFFER_STALE"}
	case status == "SCHEDULED":
		return verdict{409, "NOT_OPEN_YET"}
	case !v.onDuty || !slices.Contains(v.regions, d.region):
		return verdict{403, "NOT_ELIGIBLE"}
	case m.busy(v, d):
		return verdict{409, "DRIVER_BUSY"}
	}
	return m.win(d, v, v.id)
}

func (m *model) assign(d *modelDispatch, version int, v *modelDriver, now time.Time) verdict {
	switch status := d.status(now); {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case status == "CANCELED":
		return verdict{410, "DISPATCH_CANCELED"}
	case d.claim != nil && d.claim.driver == v:
		return fine
	case d.claim != nil:
		return verdict{409, "ALREADY_TAKEN"}
	case status == "EXPIRED":
		return verdict{410, "DISPATCH_EXPIRED"}
	case !slices.Contains(v.regions, d.region):
		return verdict{403, "NOT_ELIGIBLE"}
	case m.busy(v, d):
		return verdict{409, "DRIVER_BUSY"}
	}
	return m.win(d, v, "key_first")
}

// release ends the claim and opens the next round.
func (d *modelDispatch) release(kind, actor, reason, outcome string, now time.Time) verdict {
	d.happens(kind, actor, reason)
	d.claim.outcome, d.claim.ended, d.claim = outcome, now, nil
	d.opens, d.expires = now, now.Add(d.expires.Sub(d.opens))
	d.written = "PENDING"
	d.round++
	d.version++
	d.happens("reopened", "system", "")
	return fine
}

func (d *modelDispatch) notHolders(v *modelDriver) verdict {
	if !d.sees(v) {
		return verdict{404, "DISPATCH_NOT_FOUND"}
	}
	return verdict{403, "FORBIDDEN"}
}

func (m *model) withdraw(d *modelDispatch, v *modelDriver, round int, now time.Time) verdict {
	had, holds := d.had(v), d.claim != nil && d.claim.driver == v
	if round != 0 {
		had = d.hadIn(v, round)
	}
	switch named := round == 0 || round == d.round; {
	case (!holds || !named) && had != nil && had.outcome == "WITHDRAWN":
		return fine
	case holds && !named:
		return verdict{409, "OFFER_STALE"}
	case !holds:
		return d.notHolders(v)
	case d.written != "ACCEPTED":
		return verdict{409, "INVALID_STATE"}
	case withdrawals(v, []*modelDispatch{d}, now) >= 2 || withdrawals(v, m.dispatches, now) >= 5:
		return verdict{429, "RATE_LIMITED"}
	}
	return d.release("withdrawn", v.id, "", "WITHDRAWN", now)
}

// withdrawals counts the driver's in the last hour.
func withdrawals(v *modelDriver, from []*modelDispatch, now time.Time) (n int) {
	for _, d := range from {
		for _, c := range d.claims {
			if c.driver == v && c.outcome == "WITHDRAWN" && now.Sub(c.ended) < time.Hour {
				n++
			}
		}
	}
	return n
}

func (m *model) unassign(d *modelDispatch, version int, now time.Time) verdict {
	switch {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case d.written != "ACCEPTED":
		return verdict{409, "INVALID_STATE"}
	}
	return d.release("unassigned", "key_first", "ILL", "UNASSIGNED", now)
}

func (m *model) advance(d *modelDispatch, v *modelDriver, from, to, kind string) verdict {
	switch {
	case d.claim == nil || d.claim.driver != v:
		return d.notHolders(v)
	case d.written == to:
		return fine
	case d.written != from:
		return verdict{409, "INVALID_STATE"}
	}
	d.written = to
	d.version++
	d.happens(kind, v.id, "")
	return fine
}

func (m *model) cancel(d *modelDispatch, version int, now time.Time) verdict {
	switch status := d.status(now); {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case status == "COMPLETED" || status == "CANCELED" || status == "EXPIRED":
		return verdict{409, "INVALID_STATE"}
	}
	d.written = "CANCELED"
	d.version++
	d.happens("canceled", "key_first", "RAIN")
	if d.claim != nil {
		d.claim.outcome = "CANCELED"
	}
	return fine
}

func (m *model) patch(d *modelDispatch, version int, terms modelTerms, opens, expires, now time.Time) verdict {
	status := d.status(now)
	other, moved := terms != d.modelTerms, !opens.Equal(d.opens) || !expires.Equal(d.expires)
	switch {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case status != "SCHEDULED" && status != "PENDING":
		return verdict{409, "INVALID_STATE"}
	case !other && !moved:
		return fine
	case status == "PENDING" && !opens.Equal(d.opens):
		return verdict{409, "INVALID_STATE"}
	case !expires.After(opens) || !expires.After(now):
		return verdict{422, "VALIDATION_FAILED"}
	}
	d.modelTerms, d.opens, d.expires = terms, opens, expires
	d.version++
	reason := "WINDOW_CHANGED"
	if other {
		d.round++
		reason = ""
	}
	d.happens("updated", "key_first", reason)
	return fine
}

func (m *model) extend(d *modelDispatch, version int, until, now time.Time) verdict {
	switch status := d.status(now); {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case status != "SCHEDULED" && status != "PENDING":
		return verdict{409, "INVALID_STATE"}
	case !until.After(d.expires):
		return verdict{422, "VALIDATION_FAILED"}
	}
	d.expires = until
	d.version++
	d.happens("updated", "key_first", "EXTENDED")
	return fine
}

func (m *model) reopen(d *modelDispatch, version int, opens, expires *time.Time, now time.Time) verdict {
	from := now
	if opens != nil {
		from = *opens
	}
	until := from.Add(d.expires.Sub(d.opens))
	if expires != nil {
		until = *expires
	}
	switch {
	case version != d.version:
		return verdict{412, "VERSION_MOVED"}
	case d.status(now) != "EXPIRED":
		return verdict{409, "INVALID_STATE"}
	case !until.After(from) || !until.After(now):
		return verdict{422, "VALIDATION_FAILED"}
	}
	d.opens, d.expires, d.written = from, until, "PENDING"
	d.round++
	d.version++
	d.happens("reopened", "key_first", "")
	return fine
}

// expire is the scheduled job's.
func (m *model) expire(now time.Time) {
	for _, d := range m.dispatches {
		if d.written == "PENDING" && d.status(now) == "EXPIRED" {
			d.written = "EXPIRED"
			d.version++
			d.happens("expired", "system", "")
		}
	}
}

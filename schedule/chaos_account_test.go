package schedule_test

import (
	"slices"
	"time"

	"firsttap/cronjob"
)

// account counts the results of the slots.
type account struct {
	slots, once, twice, missed, takenOver, overlaps, kills, stops, flushes int
	latest                                                                 float64 // the longest time from a slot to its end, in seconds
}

// account checks the slots from first to last, and fails the test if a promise was broken.
func (s *storm) account(first, last time.Time) *account {
	s.t.Helper()
	a := &account{kills: s.kills, stops: s.stops, flushes: s.flushes}
	effects := s.effects()
	s.checkSlots(a, first, last, effects)
	s.compare(a, s.attempts(effects))
	return a
}

// checkSlots compares the committed effects with the slots and with the ledger.
func (s *storm) checkSlots(a *account, first, last time.Time, effects map[int64][]string) {
	s.t.Helper()
	ledger := map[int64]cronjob.Run{}
	for _, run := range s.runs(chaosJob) {
		slot := run.Slot.UnixMicro()
		ledger[slot] = run
		if owners := effects[slot]; (run.Status == cronjob.Succeeded) != slices.Equal(owners, []string{run.Owner}) {
			s.t.Errorf("slot %s is %s of %s, %q, and was committed by %v", clockTime(run.Slot), run.Status, run.Owner, run.Error, owners)
		}
	}
	for slot, owners := range effects {
		if _, ok := ledger[slot]; !ok {
			s.t.Errorf("slot %s was committed by %v, and is not in the ledger", clockTime(time.UnixMicro(slot)), owners)
		}
	}
	for slot := first; !slot.After(last); slot = slot.Add(time.Second) {
		a.slots++
		run, owners := ledger[slot.UnixMicro()], effects[slot.UnixMicro()]
		switch len(owners) {
		case 0:
			a.missed++
			s.t.Errorf("slot %s was missed: %s %q", clockTime(slot), run.Status, run.Error)
		case 1:
			a.once++
		default:
			a.twice++
			s.t.Errorf("slot %s was committed by %v", clockTime(slot), owners)
		}
		if run.EndedAt != nil {
			a.latest = max(a.latest, run.EndedAt.Sub(slot).Seconds())
		}
	}
}

// attempt is one instance's part in a run. An attempt that commits ends just before its COMMIT. Any other ends when its
// context has ended, when it has noticed that it was overtaken, or when its process died or stood still: what it does
// afterwards does not count, as it is not committed.
type attempt struct {
	report  // of its beginning
	commits bool
	refused time.Time // zero if its commit was not refused
	end     time.Time
}

// endBy ends the attempt at that time, unless it ended before.
func (a *attempt) endBy(at time.Time) {
	if a.end.IsZero() || at.Before(a.end) {
		a.end = at
	}
}

// attempts returns the attempts in the order of their beginnings.
func (f *fleet) attempts(effects map[int64][]string) (found []*attempt) {
	reports, _ := f.journal.all()
	byOwner := map[string]*attempt{}
	for _, r := range reports {
		a := byOwner[r.Owner]
		switch {
		case r.What == hasBegun:
			a = &attempt{report: r, commits: slices.Contains(effects[r.Slot.UnixMicro()], r.Owner)}
			found, byOwner[r.Owner] = append(found, a), a
		case a == nil:
		case a.commits && r.What == commits:
			a.end = r.At // of the last try
		case a.commits:
		case r.What == refused:
			a.refused = r.At
			a.endBy(r.At)
		case r.What == wasTold || r.What == gaveUp:
			a.endBy(r.At)
		}
	}
	for _, a := range found {
		for _, p := range f.all {
			if a.Who == p.Name && !a.commits {
				a.endWith(p)
			}
		}
	}
	slices.SortFunc(found, func(a, b *attempt) int { return a.BeganAt.Compare(*b.BeganAt) })
	return found
}

// endWith ends an attempt when its process died or first stood still.
func (a *attempt) endWith(p *process) {
	if !p.killed.IsZero() {
		a.endBy(p.killed)
	}
	for _, stand := range p.stands {
		if stand.to.After(*a.BeganAt) {
			a.endBy(stand.from)
		}
	}
}

// stoodStill reports whether the instance stood still in the tenth of the TTL before that time, as it may on a busy machine. The context of
// work ends in that tenth, before another instance begins; and it can't end in time where nothing runs.
func (f *fleet) stoodStill(name string, at time.Time) bool {
	reports, _ := f.journal.all()
	return slices.ContainsFunc(reports, func(r report) bool {
		return r.What == stood && r.Who == name && r.BeganAt.Before(at) && r.At.After(at.Add(-f.TTL/10))
	})
}

// compare fails the test for attempts that overlap or were overtaken without a reason, and counts the slots with several.
func (s *storm) compare(a *account, attempts []*attempt) {
	s.t.Helper()
	slots := map[int64]int{}
	var last *attempt // the one so far that ended last
	for _, one := range attempts {
		if !one.refused.IsZero() && one.end.Equal(one.refused) && !s.stoodStill(one.Who, one.refused) {
			s.t.Errorf("overtaken while awake, without a canceled context: %s", one)
		}
		if slots[one.Slot.UnixMicro()]++; slots[one.Slot.UnixMicro()] == 2 {
			a.takenOver++
		}
		if one.end.IsZero() {
			s.t.Errorf("no process reported the end: %s", one)
			continue
		}
		if last != nil && one.BeganAt.Before(last.end) && !s.stoodStill(last.Who, *one.BeganAt) {
			a.overlaps++
			s.t.Errorf("two at a time:\n%s, until %s\n%s, until %s", last, clockTime(last.end), one, clockTime(one.end))
		}
		if last != nil && one.Fence <= last.Fence {
			s.t.Errorf("the fence of a later attempt is not larger:\n%s: %d\n%s: %d", last, last.Fence, one, one.Fence)
		}
		if last == nil || one.end.After(last.end) {
			last = one
		}
	}
}

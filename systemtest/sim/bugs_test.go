package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bug is a fault that is planted in the product: in a file of it, the text before is replaced by after.
type bug struct {
	name          string
	file          string // from the module's root
	before, after string
}

var bugs = []bug{
	{"the claim's write has no condition on the dispatch", "repository/dispatches/claim.go", "AND status = 'PENDING' AND round = ? AND version = ? AND updated_at = ? AND ", "AND ? + ? + ? > 0 AND "},
	{"the claim's write names neither round nor version nor the time of the last change", "repository/dispatches/claim.go", "AND round = ? AND version = ? AND updated_at = ? AND ", "AND ? + ? + ? > 0 AND "},
	{"the claim's write does not look at the end of the offer", "repository/dispatches/claim.go", "+` AND expires_at > {now}", "+`"},
	{"the claims of a driver are not numbered", "repository/dispatches/claim.go", "DriverSeq: snapshot.claims + 1,", "DriverSeq: int(time.Now().UnixNano()),"},
	{"a claim is announced before its commit", "repository/dispatches/claim.go", "	err = commit(ctx, snapshot, &d, events)\n", "	s.announce(d, events)\n	err = commit(ctx, snapshot, &d, events)\n	if err == nil {\n		return d, true, nil\n	}\n"},
	{"a claim has no event", "repository/dispatches/claim.go", "	return s.journal.WriteEvents(tx, events, NotBefore(snapshot.now, snapshot.dispatch.UpdatedAt).Sub(snapshot.now))\n", "	return nil\n"},
	{"a change is acknowledged and not written", "repository/dispatches/update.go", "		return d, events, at.Sub(now), s.save(", "		if d.Version%4 == 0 {\n			return d, events, at.Sub(now), nil\n		}\n		return d, events, at.Sub(now), s.save("},
	{"the end of a claim is not stored", "repository/dispatches/update.go", "ended && before.Claim != nil", "ended && false"},
	{"a marker refuses taps on later rounds", "service/marker.go", "return m.committed && tap.Round < m.round", "return m.committed"},
	{"the memory refuses taps on later rounds", "service/memory.go", "|| tap.Round > known.round ", ""},
	{"the memory refuses taps without a round for good", "service/memory.go", "|| tap.Round == 0 ", ""},
	{"a marker refuses taps without a round for good", "service/accept.go", "Final: m.committed && tap.Round != 0", "Final: m.committed"},
	{"a claim under way refuses for good", "service/accept.go", "Final: m.committed && tap.Round != 0", "Final: true"},
	{"a lock is not released after a refusal", "service/accept.go", "		err = lease.Release(ctx)\n", "		_ = lease.Release\n"},
	{"the marker of an ended claim stays", "service/marker.go", "	if err := a.unmark(ctx, id, h); err != nil", "	if err := error(nil); err != nil"},
	{"who was refused in this process is not followed up", "service/accept.go", "a.memory.finish(f, r) && mayBeOpen(tap.Round, r.err)", "a.memory.finish(f, r) && false"},
	{"who was refused by a lock is not followed up", "service/accept.go", "		a.memory.follow(offer{tap.Dispatch, tap.Round}, followUpRetry, false)\n", ""},
	{"taps before the opening are not followed up", "service/checks.go", "		a.memory.followAgain(o, f, min(max(early.OpensAt.Sub(asked), followUpRetry), followUpOpening))\n", ""},
	{"an unknown outcome is reported as none", "service/accept.go", "	if err != nil {\n		return Acceptance{}, err\n	}\n	return Acceptance{Dispatch: d", "	if err != nil {\n		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, errors.New(err.Error()))\n	}\n	return Acceptance{Dispatch: d"},
	{"a driver's second tap does not join the first", "service/memory.go", "	case f.driver == tap.Driver:\n		return f, false, nil\n", ""},
	{"taps are not recorded", "service/accept.go", "	a.attempts.Record(ctx, tap, arrived, err)\n", "	_ = arrived\n"},
	{"a withdrawal ends any round", "service/driver_service.go", "round != 0 && round != d.Round && d.HeldBy(me)", "false"},
	{"a driver may have two jobs at a time", "dispatch/rules.go", "	if c.Busy {\n		return nil, ErrDriverBusy\n	}\n", ""},
	{"any driver has the holder's claim", "dispatch/rules.go", "case d.Claim.Driver != c.ID:", "case d.Claim.Driver == \"\":"},
	{"a tap without a round wins after a withdrawal", "dispatch/rules.go", "!current || round == 0 && c.HadIt", "!current"},
	{"a tap wins a later round", "dispatch/rules.go", "!current || round == 0 && c.HadIt", "round == 0 && c.HadIt"},
	{"anybody gives back a claim", "dispatch/rules.go", "	if !d.HeldBy(driver) {\n		return nil, ErrNotHolder\n	}\n	if d.Status != Accepted {", "	if d.Status != Accepted {"},
	{"withdrawals are not limited", "dispatch/withdrawal.go", "	if wait > 0 {\n		return &Too", "	if wait > WithdrawalPeriod {\n		return &Too"},
	{"a claim on a made-up round refuses taps on the true one", "service/marker.go", "case m.round == 0 || tap.Round == 0 || tap.Round == m.round:", "case !m.committed:"},
	{"decisions about different rounds are one", "service/memory.go", "flightKey{offer: offer{tap.Dispatch, tap.Round}}", "flightKey{offer: offer{tap.Dispatch, 0}}"},
	{"drivers who cannot win are not sidelined", "service/memory.go", "	m.sidelined.Add(v, time.Now().Add(sidelinedFor))\n", ""},
	{"a driver is busy with a job at any hour", "repository/dispatches/claim_snapshot.go", "AND o.work_ends_at > d.work_starts_at AND o.work_starts_at < d.work_ends_at AND o.id", "AND o.id"},
	{"a tap before the opening hears that the offer has expired", "dispatch/rules.go", "return nil, &NotOpenYetError{OpensAt: d.OpensAt}\n	}\n	if reasons", "return nil, ErrExpired\n	}\n	if reasons"},
	{"a change of the terms ignores the version", "dispatch/changes.go", "	case version != d.Version:\n		return ErrVersionConflict\n", ""},
}

// TestPlantedBugsFit: each text that TestSoakPlantedBugs replaces is in its file.
func TestPlantedBugsFit(t *testing.T) {
	for _, b := range bugs {
		text, err := os.ReadFile(filepath.Join("../..", b.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), b.before) {
			t.Errorf("%s: the text is not in %s any more: %q", b.name, b.file, b.before)
		}
	}
}

//go:build soak

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"firsttap/testkit"
)

// bug is a fault that is planted in the product: in a file of it, the text before is replaced by after.
type bug struct {
	name          string
	file          string // from the module's root
	before, after string
}

var bugs = []bug{
	{"the claim's write has no condition on the dispatch", "repository/claim.go", "AND status = 'PENDING' AND round = ? AND version = ? AND ", "AND ? + ? > 0 AND "},
	{"the claim's write names neither round nor version", "repository/claim.go", "AND round = ? AND version = ? AND ", "AND ? + ? > 0 AND "},
	{"the claim's write does not look at the end of the offer", "repository/claim.go", "+` AND expires_at > `+s.dialect.now()+`", "+`"},
	{"the claims of a driver are not numbered", "repository/claim.go", "DriverSeq: snapshot.claims + 1,", "DriverSeq: int(time.Now().UnixNano()),"},
	{"a claim is announced before its commit", "repository/claim.go", "	err = commit(ctx, snapshot, &d, events)\n", "	s.announce(d, events)\n	err = commit(ctx, snapshot, &d, events)\n	if err == nil {\n		return d, true, nil\n	}\n"},
	{"a claim has no event", "repository/claim.go", "	return s.writeEvents(tx, events)\n", "	return nil\n"},
	{"a change is acknowledged and not written", "repository/update.go", "		return s.save(tx, before, d, events)\n", "		if d.Version%4 == 0 {\n			return nil\n		}\n		return s.save(tx, before, d, events)\n"},
	{"the end of a claim is not stored", "repository/update.go", "ended && before.Claim != nil", "ended && false"},
	{"a marker refuses taps on later rounds", "service/marker.go", "return m.committed && tap.Round < m.round", "return m.committed"},
	{"the memory refuses taps on later rounds", "service/inflight.go", "tap.Round != 0 && tap.Round <= h.round && ", "tap.Round != 0 && "},
	{"the memory refuses taps without a round for good", "service/inflight.go", "tap.Round != 0 && tap.Round <= h.round && ", "tap.Round <= h.round && "},
	{"a marker refuses taps without a round for good", "service/accept.go", "Final: m.committed && tap.Round != 0", "Final: m.committed"},
	{"a claim under way refuses for good", "service/accept.go", "Final: m.committed && tap.Round != 0", "Final: true"},
	{"a lock is not released after a refusal", "service/accept.go", "		err = lease.Release(ctx)\n", "		_ = lease.Release\n"},
	{"the marker of an ended claim stays", "service/accept.go", "	err := a.gate.Release(ctx, lockName(id), takenValue(ended.Driver, ended.Round))\n", "	var err error\n"},
	{"who was refused in this process is not followed up", "service/accept.go", "a.inflight.finish(f, r) && mayBeOpen(tap.Round, r.err)", "a.inflight.finish(f, r) && false"},
	{"who was refused by a lock is not followed up", "service/accept.go", "		a.reannouncer.schedule(tap, followUpRetry)\n", ""},
	{"taps before the opening are not followed up", "service/reannounce.go", "		r.reschedule(f, min(max(early.OpensAt.Sub(asked), followUpRetry), followUpLook))\n", ""},
	{"an unknown outcome is reported as none", "service/accept.go", "	if err != nil {\n		return Acceptance{}, err\n	}\n	return Acceptance{Dispatch: d", "	if err != nil {\n		return Acceptance{}, errors.Join(dispatch.ErrUnavailable, errors.New(err.Error()))\n	}\n	return Acceptance{Dispatch: d"},
	{"a driver's second tap does not join the first", "service/inflight.go", "	case f.driver == tap.Driver:\n		return f, false, nil\n", ""},
	{"taps are not recorded", "service/accept.go", "	a.attempts.Record(ctx, tap, arrived, err)\n", "	_ = arrived\n"},
	{"a withdrawal ends any round", "service/driver_service.go", "round != 0 && round != d.Round && d.HeldBy(me)", "false"},
	{"a driver may have two jobs at a time", "dispatch/rules.go", "	if c.Busy {\n		return nil, ErrDriverBusy\n	}\n", ""},
	{"any driver has the holder's claim", "dispatch/rules.go", "case d.Claim.Driver != c.ID:", "case d.Claim.Driver == \"\":"},
	{"a tap without a round wins after a withdrawal", "dispatch/rules.go", "!current || round == 0 && c.Withdrew", "!current"},
	{"a tap wins a later round", "dispatch/rules.go", "!current || round == 0 && c.Withdrew", "round == 0 && c.Withdrew"},
	{"anybody gives back a claim", "dispatch/rules.go", "	if !d.HeldBy(driver) {\n		return nil, ErrNotHolder\n	}\n	if d.Status != Accepted {", "	if d.Status != Accepted {"},
	{"withdrawals are not limited", "dispatch/withdrawal.go", "	if wait > 0 {\n		return &Too", "	if wait > WithdrawalPeriod {\n		return &Too"},
	{"a claim on a made-up round refuses taps on the true one", "service/marker.go", "case m.round == 0 || tap.Round == 0 || tap.Round == m.round:", "case !m.committed:"},
	{"decisions about different rounds are one", "service/inflight.go", "flightKey{dispatch: tap.Dispatch, round: tap.Round}", "flightKey{dispatch: tap.Dispatch}"},
	{"drivers who cannot win are not sidelined", "service/sideline.go", "	g.sidelined.Add(v, time.Now().Add(sidelinedFor))\n", ""},
	{"a driver is busy with a job at any hour", "repository/claim_snapshot.go", "AND o.work_ends_at > d.work_starts_at AND o.work_starts_at < d.work_ends_at AND o.id", "AND o.id"},
	{"a tap before the opening hears that the offer has expired", "dispatch/rules.go", "return nil, &NotOpenYetError{OpensAt: d.OpensAt}\n	}\n	if reasons", "return nil, ErrExpired\n	}\n	if reasons"},
	{"a change of the terms ignores the version", "dispatch/changes.go", "	case version != d.Version:\n		return ErrVersionConflict\n", ""},
}

// TestSoakClaims is TestClaims for a longer time, with twenty seeds at least.
func TestSoakClaims(t *testing.T) {
	end := time.Now().Add(testkit.SoakTime(t))
	all := explore(t, func(s sum) bool { return s.histories >= 20 && time.Now().After(end) })
	for _, f := range allFaults {
		if all.struck[f] == 0 {
			t.Errorf("a fault has never struck: %s", f)
		}
	}
}

// plantedSeeds is how many histories may pass until a bug is found: about a minute of 2 cores.
const plantedSeeds = 24

// TestSoakPlantedBugs: the checker finds each of the planted bugs.
func TestSoakPlantedBugs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	table := make([]string, len(bugs))
	t.Run("bugs", func(t *testing.T) {
		for k, b := range bugs {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				table[k] = b.find(t, root)
			})
		}
	})
	t.Log("bug | broken promise | seed | accepts of its history | seconds\n" + strings.Join(table, "\n"))
}

// violated is what a test program prints of the first promise that is broken.
var violated = regexp.MustCompile(`seed (\d+): after (\d+) accepts \d+ promises are broken, the first: ([^:]+):`)

// find builds the simulation with the bug, runs histories until one breaks a promise, and returns the bug's line of the table.
func (b bug) find(t *testing.T, root string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "-overlay", b.overlay(t, root), "./systemtest/sim")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b.name, err, said)
	}
	began := time.Now()
	live := exec.CommandContext(t.Context(), program, "-test.run", "^TestClaims$", "-seeds", fmt.Sprint(plantedSeeds), "-shrink", "0")
	live.Dir = filepath.Join(root, "systemtest/sim")
	said, err := live.CombinedOutput()
	found := violated.FindSubmatch(said)
	if err == nil || found == nil {
		t.Errorf("%s: no promise is broken after %v\n%s", b.name, err, said[max(len(said)-2000, 0):])
		return b.name + " | NOT FOUND"
	}
	return fmt.Sprintf("%s | %s | %s | %s | %.0f", b.name, found[3], found[1], found[2], time.Since(began).Seconds())
}

// overlay returns the path of a file that makes the go command read the bug's file instead of the product's.
func (b bug) overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, b.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(b.before)) {
		t.Fatalf("%s: the text is not in %s any more: %q", b.name, b.file, b.before)
	}
	planted, list := filepath.Join(t.TempDir(), filepath.Base(b.file)), filepath.Join(t.TempDir(), "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{path: planted}})
	for _, err := range []error{
		err, os.WriteFile(planted, bytes.ReplaceAll(text, []byte(b.before), []byte(b.after)), 0o600), os.WriteFile(list, replaced, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

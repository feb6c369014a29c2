//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// newSignIns returns SignIns with the usual limits, and their log.
func newSignIns(store SignInStore, now func() time.Time) (*SignIns, *testkit.LogBuffer) {
	log := &testkit.LogBuffer{}
	return NewSignIns(SignInOptions{Limits: DefaultSignInLimits(), Store: store, Now: now, Log: slog.New(slog.NewJSONHandler(log, nil))}), log
}

// TestTheLogOfFailures: there is at most one line every two seconds, their sums add up, and there is none without failures.
func TestTheLogOfFailures(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, log := newSignIns(nil, time.Now)
		stop := testkit.Run(t, s.Run)
		for i := range 10_000 { // in ten seconds
			s.Fail(ByKey, "203.0.113.7")
			if i%1000 == 0 {
				s.Fail(BySession, "203.0.113.8")
			}
			time.Sleep(time.Millisecond)
		}
		stop()
		lines, failed, limited := 0, 0, 0
		for line := range strings.Lines(log.Drain()) {
			var said struct {
				Level           string
				Failed, Limited int
				MostFrom        string `json:"most_from"`
			}
			Must(t, json.Unmarshal([]byte(line), &said))
			lines, failed, limited = lines+1, failed+said.Failed, limited+said.Limited
			if said.Level != "WARN" || said.MostFrom != "203.0.113.7" {
				t.Errorf("%s", line)
			}
		}
		// An address has 20 at once, and two more in ten seconds.
		if lines < 5 || lines > 6 || failed < 20+10 || failed > 22+10 || failed+limited != 10_010 {
			t.Errorf("%d lines: %d failed, %d limited", lines, failed, limited)
		}
		stop = testkit.Run(t, s.Run)
		s.Succeed(BySession)
		time.Sleep(time.Hour)
		stop()
		testkit.Equal(t, "the log without failures", "", log.Drain())
	})
}

// TestTheAuditOfFailures: an interval has entries for a few addresses, and one for the rest, and the memory for them is bounded.
func TestTheAuditOfFailures(t *testing.T) {
	db := Pooled(t, "sqlite")
	s, log := newSignIns(db, (&clock{fixed}).now)
	const addresses = 2 * maxLoggedAddresses
	for i := range addresses {
		s.Fail(BySession, fmt.Sprint(i))
		s.Fail(ByToken, fmt.Sprint(i))
	}
	if logged := len(s.logged.byAddress); logged != maxLoggedAddresses+1 {
		t.Errorf("%d addresses for the log", logged)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.Run(ctx) // it writes the rest
	entries, _, err := db.Audit(t.Context(), dispatch.AuditQuery{Actor: dispatch.AuditUnknown, Page: dispatch.Page{Limit: 200}})
	if err != nil || len(entries) != maxAuditedAddresses+1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	sums := map[string]int{}
	for _, e := range entries {
		var d struct {
			Failed, Limited int
			Doors           map[string]int
		}
		if err := json.Unmarshal([]byte(e.Detail), &d); err != nil || e.Action != dispatch.AuditSignInRefused {
			t.Errorf("%+v: %v", e, err)
		}
		sums["failed"], sums["limited"] = sums["failed"]+d.Failed, sums["limited"]+d.Limited
		sums["session"], sums["token"] = sums["session"]+d.Doors["session"], sums["token"]+d.Doors["token"]
		if e.Target == otherAddresses {
			sums["others"] = d.Failed + d.Limited
		}
	}
	testkit.Equal(t, "the sums", map[string]int{ // all limits are reached but that of an address
		"failed": 200 + 2000, "limited": 2*addresses - 2200, "others": 2 * (addresses - maxAuditedAddresses), "session": addresses, "token": addresses,
	}, sums)
	log.Drain()
	s.auditFailures(t.Context())
	db.MustCount(t, maxAuditedAddresses+1, "audit WHERE actor = 'unknown'")
	db.Exec(t, "CREATE TRIGGER broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
	s.Fail(ByKey, "198.51.100.1")
	s.auditFailures(t.Context())
	if n := log.Count(`"level":"WARN"`); n != 1 {
		t.Errorf("sign-ins that can't be written: %s", log)
	}
}

// TestFailureLimit: an address and all together may fail as often as the limits say, also at once, and an address above its limit takes
// nothing from the others.
func TestFailureLimit(t *testing.T) {
	c, counted := &clock{fixed}, &counter{}
	s, _ := newSignIns(nil, c.now)
	s.o.Counter = counted
	testkit.Together(1000, func(int) { s.Fail(ByKey, "a") })
	testkit.Equal(t, "told to an address", 20, counted.n[Failed])
	testkit.Equal(t, "an address above its limit", 5*time.Second, s.Wait(BySession, "a"))
	testkit.Equal(t, "another address", 0, s.Wait(ByKey, "b"))
	testkit.Equal(t, "tokens", 0, s.Wait(ByToken, "a"))
	for i := range 300 {
		s.Fail(ByKey, fmt.Sprint(i))
	}
	testkit.Equal(t, "told to all", 200, counted.n[Failed])
	testkit.Equal(t, "anybody above the total", 500*time.Millisecond, s.Wait(ByKey, "c"))
	c.Time = c.Add(5 * time.Second)
	testkit.Equal(t, "after the wait", 0, s.Fail(ByKey, "a"))
	testkit.Equal(t, "once more", 5*time.Second, s.Fail(ByKey, "a"))
}

package app

import (
	"strings"
	"testing"
	"time"

	"firsttap/internal/config"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/schedule"
)

// FIRSTTAP_JOBS changes the times and the holds that it names, and FIRSTTAP_LOCK_LEASE the lease of each lock that is renewed while its job
// works. Without them, all is as usual.
func TestJobSettings(t *testing.T) {
	jobs := func(settings ...string) map[string]schedule.Job {
		t.Helper()
		c, err := readConfig(testkit.Settings(settings...))
		if err != nil {
			t.Fatal(err)
		}
		all, err := jobsOf(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]schedule.Job{}
		for _, j := range all {
			named[j.Name] = j
		}
		return named
	}
	usual := jobs()
	set := jobs("FIRSTTAP_JOBS", `expire-offers=@every 15s; remind=0 0/5 * * * *,atMost=15s; nightly=0 30 3 * * *; supply=off;
		retention=0 0,30 * * * *,atLeast=1m`, "FIRSTTAP_LOCK_LEASE", "45s")
	for name, want := range map[string]struct {
		when      string
		off       bool
		hold, was lock.Hold
	}{
		"expire-offers": {"@every 15s", false, lock.Renewed(45*time.Second, 2*time.Minute), lock.Renewed(10*time.Second, 2*time.Minute)},
		"remind":        {"0 0/5 * * * *", false, lock.Fixed(15 * time.Second), lock.Expected(10 * time.Second)},
		"nightly":       {"0 30 3 * * *", false, lock.Renewed(45*time.Second, time.Hour), lock.Renewed(10*time.Second, time.Hour)},
		"supply":        {usual["supply"].When.String(), true, lock.Between(50*time.Second, 55*time.Second), lock.Between(50*time.Second, 55*time.Second)},
		"retention": {
			"0 0,30 * * * *", false, lock.Hold{TTL: 45 * time.Second, RenewEvery: 15 * time.Second, AtMost: 30 * time.Minute, AtLeast: time.Minute},
			lock.Renewed(30*time.Second, 30*time.Minute),
		},
	} {
		testkit.Equal(t, name, []any{want.when, want.off, want.hold, want.was, false},
			[]any{set[name].When.String(), set[name].Off, set[name].Hold, usual[name].Hold, usual[name].Off})
	}
}

// What a job can't have is refused at the start and by every command, together with what else is wrong, and each error says what to write.
func TestJobsThatCannotBe(t *testing.T) {
	for setting, says := range map[string]string{
		"tidy=off":                            `no job "tidy": want one of expire-offers, remind, nightly, supply, retention`,
		"supply=off;supply=0 * * * * *":       "supply is given twice",
		"supply=* * * * *":                    "has 5 fields, want six",
		"supply=0 61 * * * *":                 `the minute "61" is not within 0 to 59`,
		"supply=0 0 0 30 2 *":                 "has no next time",
		"supply=off,atMost":                   "has 1 fields, want six",
		"supply=@every 30s":                   "its lock is kept for 50s at least, longer than from one time to the next, 30s",
		"supply=@every 1500ms":                "not whole seconds",
		"supply=@every day":                   "want one like @every 30s",
		"supply=atMost=20s":                   "supply: atLeast is 50s, longer than it is held at most, 20s",
		"remind=atLeast=16s,atMost=15s":       "remind: atLeast is 16s, longer than it is held at most, 15s",
		"retention=atLeast=1h":                "longer than it is held at most, 30m0s",
		"expire-offers=@every 5s,atMost=15s":  "expire-offers: its lock is renewed for as long as it works, so it has no atMost",
		"nightly=off,atLeast=1s":              "nightly: it runs on the leader and has no lock of its own",
		"tidy=off;expire-offers=atMost=15s":   "expire-offers: its lock is renewed",
		"expire-offers=atMost=15s;sweep=@x x": `no job "sweep"`,
	} {
		for _, command := range []string{"serve", "doctor"} {
			out, err := commandOf(t, testkit.Settings("FIRSTTAP_JOBS", setting, "FIRSTTAP_ADDR", "nowhere", "FIRSTTAP_LOCK_LEASE", "1s"), command)
			said := out
			if command == "serve" {
				said = err.Error()
			}
			if err == nil || !strings.Contains(said, says) || strings.Count(said, "FIRSTTAP_JOBS: ") != 1 ||
				!strings.Contains(said, "FIRSTTAP_ADDR: ") || !strings.Contains(said, "FIRSTTAP_LOCK_LEASE: 1s is not from 3s to 10m0s") {
				t.Errorf("%s with FIRSTTAP_JOBS=%s: %v\n%s\nwant it to say %s", command, setting, err, out, says)
			}
		}
	}
	if jobs, err := jobsOf(nil, config.Config{}); err != nil || len(jobs) != 5 {
		t.Errorf("without settings: %v, %v", jobs, err)
	}
}

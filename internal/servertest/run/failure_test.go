package main

import (
	"errors"
	"strings"
	"testing"
)

// The summary names each failed test with the lines that ended it, and a program's last lines if no test of it has failed.
func TestFailuresInTheSummary(t *testing.T) {
	run := func(events ...event) string {
		r := &result{suite: suite{pkg: "limit"}, err: errors.New("exit status 1"), output: map[string]*strings.Builder{}}
		for _, e := range events {
			r.add(e)
		}
		var out strings.Builder
		r.printFailures(&out)
		return out.String()
	}
	said := run(
		event{Action: "output", Test: "TestRoom", Output: "=== RUN   TestRoom\n"},
		event{Action: "output", Test: "TestRoom/of_ten", Output: "    room_test.go:12: 11 calls, want 10\n"},
		event{Action: "fail", Test: "TestRoom/of_ten"},
		event{Action: "fail", Test: "TestRoom/of_none"},
		event{Action: "fail", Test: "TestRoom"},
		event{Action: "output", Test: "TestEnd", Output: "    room_test.go:30: it ended\n"},
		event{Action: "pass", Test: "TestEnd"},
	)
	const want = "  firsttap/limit: TestRoom/of_ten\n      room_test.go:12: 11 calls, want 10\n  firsttap/limit: TestRoom\n"
	if said != want {
		t.Errorf("failed tests are listed as\n%swant\n%s", said, want)
	}
	said = run(event{Action: "output", Output: "panic: no memory\n"})
	if want := "  firsttap/limit: exit status 1\n      panic: no memory\n"; said != want {
		t.Errorf("a panic is listed as\n%swant\n%s", said, want)
	}
}

// A long output is often cut to its end, so the last lines name what failed, without the reasons.
func TestVerdict(t *testing.T) {
	r := &result{suite: suite{pkg: "limit", race: true}}
	if got, want := r.verdict(), "firsttap/limit -race"; got != want {
		t.Errorf("without a failed test: %q, want %q", got, want)
	}
	r.failures = []failure{{test: "TestRoom/of_ten", why: []string{"room_test.go:12: 11 calls"}}, {test: "tests/race.spec.ts:7:5 › two windows"}}
	if got, want := r.verdict(), "firsttap/limit -race\n  TestRoom/of_ten\n  tests/race.spec.ts:7:5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for range namedTests {
		r.failures = append(r.failures, failure{test: "TestMore"})
	}
	if got := r.verdict(); !strings.HasSuffix(got, "\n  and 2 more") || strings.Count(got, "\n") != namedTests+1 {
		t.Errorf("of %d failed tests: %q", len(r.failures), got)
	}
}
